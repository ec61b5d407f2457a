"""SIGBUS: the signal that Linux sends when a memory-mapped file is truncated while it is read.

Owns the list of files mapped now, and the handler that reports which of them shrank. `shards.io.mapped` opens shards as
maps; nothing else does.
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

#: Files mapped now: descriptor -> name and bytes mapped.
_mapped_files: dict[int, tuple[str, int]] = {}
#: Kept alive, as the system holds a pointer to it.
_handler: Any = None


@contextmanager
def map_file(file: BinaryIO, name: str) -> Iterator[bytes | mmap.mmap]:
    """Map an open file read-only; the buffer outlives the block as long as something refers to it.

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
    """On SIGBUS, call ``tell`` with an error that names the truncated file, and exit this process with status 1."""
    global _handler

    def end(_: int) -> None:
        tell(_shrunken_file())
        os._exit(1)

    # Python's handlers run between bytecodes, and the faulting read never ends; a C handler runs inside it.
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
