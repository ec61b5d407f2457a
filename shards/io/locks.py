"""Advisory locks: one process at a time writes a folder, and the lock ends with that process.

flock on the folder itself leaves no lock file, and nothing to clean up after a kill. Forked workers do not inherit it.
A file system without flock (some NFS) gives no lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shards.errors import Busy, Misuse

#: The open folders that are locked.
_locked_folders: set[int] = set()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder`` for the block; it is created if missing, and removed again if left empty.

    Raises:
        Busy: another process, or another block of this one, holds it.
        Misuse: it is no folder.
        OSError: it cannot be created.
    """
    if folder.exists() and not folder.is_dir():
        raise Misuse("not a folder", shard=str(folder), todo="choose another --out")
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    _locked_folders.add(descriptor)
    try:
        try_lock(descriptor, folder)
        try:
            yield
        finally:
            if made:
                _remove_empty(folder)
    finally:
        _locked_folders.discard(descriptor)
        os.close(descriptor)


def try_lock(descriptor: int, path: Path) -> None:
    """Lock an open file or folder without waiting, provided that ``path`` still names it; closing it unlocks.

    Raises:
        Busy: another process holds the lock, or has renamed it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        mine = False  # renamed by whoever had it
    except OSError as error:
        mine = error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    if not mine:
        raise Busy("another process is writing this", shard=str(path), todo="wait for it, or name another place")


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


def _close_in_child() -> None:
    """After a fork: the child's copy of a descriptor would keep the lock when its parent is killed."""
    for descriptor in _locked_folders:
        os.close(descriptor)
    _locked_folders.clear()


os.register_at_fork(after_in_child=_close_in_child)
