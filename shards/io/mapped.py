"""A whole shard as one buffer of uncompressed bytes, for random access, wherever it is stored.

A local tar is memory-mapped. A gzip (recognised by its magic) or remote shard is copied once to an unnamed temporary
file, which is mapped, so that memory use stays small. Sequential reads are `shards.io.byte_ranges`'; the maps
themselves, and SIGBUS, `shards.io.bus_error`'s.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

from shards.errors import NoSpace, NotShards
from shards.io import remote
from shards.io.bus_error import map_file
from shards.io.inflate import CHUNK, GZIP_MAGIC, GzipReader
from shards.io.regular_files import open_regular
from shards.io.storage import ranges
from shards.io.storage.clients import is_object
from shards.io.storage.objects import ObjectInfo

#: An uncompressed tar in memory, or mapped.
Buffer = bytes | mmap.mmap


@dataclass(frozen=True)
class MappedShard:
    """An opened shard.

    Args:
        buffer: the uncompressed tar.
        size: bytes as stored, i.e. compressed if it is a gzip.
        gzip: whether it is stored compressed.
        damage: why decompression stopped early, else None; ``buffer`` holds what came before.
        mismatch: which checksum of the gzip is wrong, else None; ``buffer`` holds everything.
        etag: of an object; None for any other, or where its store has none.
    """

    buffer: Buffer
    size: int
    gzip: bool
    damage: str | None = None
    mismatch: str | None = None
    etag: str | None = None


@contextmanager
def open_mapped(location: str, etag: str | None = None) -> Iterator[MappedShard]:
    """Open a shard by path or URL.

    Args:
        etag: what the ETag of an object must be; None for any.

    Raises:
        ShardsChanged: it is another.
        NotShards: it cannot be opened, or not be read to its end.
        NoSpace: the temporary copy of a gzip or remote shard does not fit.
    """
    if is_object(location):
        with open_copy(ranges.info_of(location, etag), read_whole) as source:
            yield source
        return
    if remote.is_url(location):
        with _temporary_file() as copy:
            with remote.open_url(location) as stream, _out_of_space_named(location):
                shutil.copyfileobj(stream, copy, CHUNK)
            with _mapped(copy, location) as source:
                yield source
        return
    with _open_local(location) as file, _mapped(file, location) as source:
        yield source


#: Writes bytes of an object to a file of its size, which is empty at first.
Fill = Callable[[ObjectInfo, BinaryIO], None]


@contextmanager
def open_copy(info: ObjectInfo, fill: Fill) -> Iterator[MappedShard]:
    """Open a temporary copy of an object, or of as much of it as ``fill`` writes; the rest are zeros that take no room.

    Raises:
        NotShards: it cannot be read to its end.
        ShardsChanged: it is replaced while it is read.
        NoSpace: the copy does not fit.
    """
    with _temporary_file() as copy:
        with _out_of_space_named(info.url):
            copy.truncate(info.size)
            fill(info, copy)
        with _mapped(copy, info.url) as source:
            yield replace(source, etag=info.etag)


def read_whole(info: ObjectInfo, copy: BinaryIO) -> None:
    """The `Fill` of a whole object."""
    for block in ranges.read_blocks(info, 0, info.size):
        copy.write(block)


def _open_local(path: str) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise NotShards(f"cannot be opened ({error.strerror})", shard=path) from error


@contextmanager
def _mapped(file: BinaryIO, location: str) -> Iterator[MappedShard]:
    file.flush()
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    if file.read(2) != GZIP_MAGIC:
        with map_file(file, location) as buffer:
            yield MappedShard(buffer, size, False)
        return
    file.seek(0)
    with _temporary_file() as plain:
        unpacked = GzipReader(file)
        with _out_of_space_named(location):
            shutil.copyfileobj(unpacked, plain, CHUNK)
            plain.flush()
        with map_file(plain, location) as buffer:
            yield MappedShard(buffer, size, True, unpacked.damage, unpacked.mismatch)


@contextmanager
def _temporary_file() -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        yield cast(BinaryIO, file)


@contextmanager
def _out_of_space_named(location: str) -> Iterator[None]:
    """Turn ENOSPC of the temporary copy into `NoSpace`."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        todo = f"make room in {tempfile.gettempdir()}, or point TMPDIR to a larger disk"
        raise NoSpace("no space for an uncompressed copy", shard=location, todo=todo) from error
