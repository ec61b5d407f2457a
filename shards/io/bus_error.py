"""Files that are mapped into memory, and what is said where one of them loses bytes while they are read.

The system then sends SIGBUS, after which nothing can go on: reading from a map has no other way to fail.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from shards.errors import ShardError, ShardsChanged

#: The files that are mapped now: descriptor -> name and bytes mapped.
_mapped_files: dict[int, tuple[str, int]] = {}
#: The handler that the system holds a pointer to.
_handler: Any = None


@contextmanager
def map_file(file: BinaryIO, name: str) -> Iterator[bytes | mmap.mmap]:
    """All bytes of an open file as one buffer, which is good beyond the block, until its last user lets go of it.

    Args:
        name: of the file, for messages.
    """
    descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size
    if size == 0:
        yield b""  # cannot be mapped
        return
    _mapped_files[descriptor] = name, size
    try:
        yield mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    finally:
        del _mapped_files[descriptor]


def install_handler(tell: Callable[[ShardError], object]) -> None:
    """End this process with status 1 where a mapped file loses bytes that are read, after ``tell`` was told of it."""
    global _handler

    def end(_: int) -> None:
        tell(_shrunken_file())
        os._exit(1)

    # Python's own handlers run when the read is over, which it never is: this one runs inside it.
    _handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(end)
    ctypes.CDLL(None).signal(signal.SIGBUS, _handler)


def _shrunken_file() -> ShardError:
    for descriptor, (name, size) in _mapped_files.items():
        found = os.fstat(descriptor).st_size
        if found < size:
            todo = "restore it or index the store again"
            return ShardsChanged(
                "became shorter while it was read", shard=name, expected=f"{size} bytes", found=found, todo=todo
            )
    names = ", ".join(name for name, _ in _mapped_files.values()) or "a file"
    return ShardError("cannot be read to its end (SIGBUS)", shard=names, todo="check the disk, /dev/shm included")
