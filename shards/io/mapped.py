"""A shard's uncompressed bytes as one buffer, wherever and however it is stored.

Owns opening: a local tar is a memory map; gzip (told by its magic) and remote shards are streamed once into an unnamed
temporary file, which is mapped, so that memory stays small and every offset counts uncompressed bytes.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from shards.errors import NoSpace, NotShards
from shards.io import remote
from shards.io.bus_error import map_file
from shards.io.inflate import CHUNK, GZIP_MAGIC, GzipReader
from shards.io.regular_files import open_regular


@dataclass(frozen=True)
class MappedShard:
    """An opened shard.

    Args:
        buffer: the uncompressed tar.
        size: bytes as stored, compressed ones where it is compressed.
        gzip: whether it is stored compressed.
        damage: why decompression stopped early, else None; ``buffer`` holds what came before.
        mismatch: which checksum of the compressed file does not hold, else None; ``buffer`` holds all.
    """

    buffer: Buffer
    size: int
    gzip: bool
    damage: str | None = None
    mismatch: str | None = None


@contextmanager
def open_mapped(locator: str) -> Iterator[MappedShard]:
    """Open a shard under its path or URL.

    Raises:
        NotShards: it cannot be opened, or not be read to its end.
        NoSpace: the temporary copy of a compressed or remote shard does not fit.
    """
    if remote.is_url(locator):
        with _temporary_file() as copy:
            with remote.open_url(locator) as stream, _out_of_space_named(locator):
                shutil.copyfileobj(stream, copy, CHUNK)
            with _mapped(copy, locator) as source:
                yield source
        return
    with _open_local(locator) as file, _mapped(file, locator) as source:
        yield source


def _open_local(path: str) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise NotShards(f"cannot be opened ({error.strerror})", shard=path) from error


@contextmanager
def _mapped(file: BinaryIO, locator: str) -> Iterator[MappedShard]:
    file.flush()
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    if file.read(2) != GZIP_MAGIC:
        with map_file(file, locator) as buffer:
            yield MappedShard(buffer, size, False)
        return
    file.seek(0)
    with _temporary_file() as plain:
        unpacked = GzipReader(file)
        with _out_of_space_named(locator):
            shutil.copyfileobj(unpacked, plain, CHUNK)
            plain.flush()
        with map_file(plain, locator) as buffer:
            yield MappedShard(buffer, size, True, unpacked.damage, unpacked.mismatch)


@contextmanager
def _temporary_file() -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        yield cast(BinaryIO, file)


@contextmanager
def _out_of_space_named(locator: str) -> Iterator[None]:
    """Say plainly that a temporary copy found no space."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        todo = f"make room in {tempfile.gettempdir()}, or point TMPDIR to a larger disk"
        raise NoSpace("no space for an uncompressed copy", shard=locator, todo=todo) from error


Buffer = bytes | mmap.mmap
