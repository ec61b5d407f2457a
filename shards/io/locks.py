"""One process at a time writes a folder: a lock that ends with the process that holds it, however that ends.

The lock is the system's (flock on the folder itself), so it leaves no file behind and none to clear up after a kill.
Worker processes do not inherit it. Where the file system knows no such lock (some NFS), there is none.
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
    """Keep ``folder`` (made where it is missing, and removed again where it stays empty) to this process for the block.

    Raises:
        Busy: another process has it, or another block of this one.
        Misuse: it is no folder.
        OSError: it cannot be made.
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
    """Lock an open file or folder, which ``path`` must still name; closing it lets go.

    Raises:
        Busy: another process has it.
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
    """In a forked worker: its copy would keep the lock when the process that took it is killed."""
    for descriptor in _locked_folders:
        os.close(descriptor)
    _locked_folders.clear()


os.register_at_fork(after_in_child=_close_in_child)
