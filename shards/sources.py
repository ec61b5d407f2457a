"""A shard's uncompressed bytes as one buffer, wherever and however it is stored.

Owns opening: a local tar is a memory map; gzip (told by its magic) and remote shards are streamed once into an unnamed
temporary file, which is mapped, so that memory stays small and every offset counts uncompressed bytes.
"""

from __future__ import annotations

import gzip
import mmap
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from shards import remote
from shards.errors import NotShards
from shards.tars import Buffer

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Source:
    """An opened shard.

    Args:
        buffer: the uncompressed tar.
        size: bytes as stored, compressed ones where it is compressed.
        gzip: whether it is stored compressed.
        damage: why decompression stopped early, else None; ``buffer`` holds what came before.
    """

    buffer: Buffer
    size: int
    gzip: bool
    damage: str | None = None


@contextmanager
def opening(locator: str) -> Iterator[Source]:
    """Open a shard under its path or URL.

    Raises:
        NotShards: it cannot be opened.
    """
    if remote.is_url(locator):
        with remote.opening(locator) as stream, tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(stream, copy, _CHUNK)
            with _source(cast(BinaryIO, copy)) as source:
                yield source
        return
    with _open_file(locator) as file, _source(file) as source:
        yield source


def _open_file(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise NotShards(f"cannot be opened ({error.strerror})", shard=path) from error


@contextmanager
def _source(file: BinaryIO) -> Iterator[Source]:
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    if file.read(2) != _GZIP:
        yield Source(_mapped(file), size, False)
        return
    file.seek(0)
    with tempfile.TemporaryFile() as plain:
        damage = _decompress(file, cast(BinaryIO, plain))
        plain.flush()
        yield Source(_mapped(cast(BinaryIO, plain)), size, True, damage)


def _mapped(file: BinaryIO) -> Buffer:
    # The map closes itself with its last user; an empty file cannot be mapped.
    file.flush()
    if os.fstat(file.fileno()).st_size == 0:
        return b""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _decompress(packed: BinaryIO, plain: BinaryIO) -> str | None:
    with gzip.GzipFile(fileobj=packed, mode="rb") as stream:
        try:
            shutil.copyfileobj(stream, plain, _CHUNK)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            return str(error)
    return None
