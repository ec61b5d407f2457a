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
from shards.io.bus_error import mapping
from shards.io.inflate import CHUNK, MAGIC, Inflated
from shards.io.regular_files import opened


@dataclass(frozen=True)
class Source:
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
def opening(locator: str) -> Iterator[Source]:
    """Open a shard under its path or URL.

    Raises:
        NotShards: it cannot be opened, or not be read to its end.
        NoSpace: the temporary copy of a compressed or remote shard does not fit.
    """
    if remote.is_url(locator):
        with _scratch() as copy:
            with remote.opening(locator) as stream, _room(locator):
                shutil.copyfileobj(stream, copy, CHUNK)
            with _source(copy, locator) as source:
                yield source
        return
    with _open_file(locator) as file, _source(file, locator) as source:
        yield source


def _open_file(path: str) -> BinaryIO:
    try:
        return opened(path)
    except OSError as error:
        raise NotShards(f"cannot be opened ({error.strerror})", shard=path) from error


@contextmanager
def _source(file: BinaryIO, locator: str) -> Iterator[Source]:
    file.flush()
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    if file.read(2) != MAGIC:
        with mapping(file, locator) as buffer:
            yield Source(buffer, size, False)
        return
    file.seek(0)
    with _scratch() as plain:
        unpacked = Inflated(file)
        with _room(locator):
            shutil.copyfileobj(unpacked, plain, CHUNK)
            plain.flush()
        with mapping(plain, locator) as buffer:
            yield Source(buffer, size, True, unpacked.damage, unpacked.mismatch)


@contextmanager
def _scratch() -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        yield cast(BinaryIO, file)


@contextmanager
def _room(locator: str) -> Iterator[None]:
    """Say plainly that a temporary copy found no space."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        todo = f"make room in {tempfile.gettempdir()}, or point TMPDIR to a larger disk"
        raise NoSpace("no space for an uncompressed copy", shard=locator, todo=todo) from error


Buffer = bytes | mmap.mmap
