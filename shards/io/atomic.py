"""Atomic writes: a file is written as ``.NAME.partial`` beside its place, fsynced, and renamed.

A file under its final name is therefore complete. A kill leaves at most the partial, which the next write overwrites.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from shards.errors import Busy
from shards.io.locks import locked, try_lock

#: Seconds that a worker may take to die with the process that started it: what it writes reaches the disk first.
LOCK_TIMEOUT_S = 1.0
#: Who hears of every folder that is synced.
_followers: list[Callable[[Path], None]] = []


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears as ``path`` when the block ends without an exception, and otherwise not.

    Raises:
        Busy: another process is writing it.
        OSError: disk full, no permission; neither the file nor its partial is left then.
    """
    with atomic_write_unsynced(path) as file:
        yield file
    sync_folder(path.parent)


@contextmanager
def atomic_write_unsynced(path: Path) -> Iterator[BinaryIO]:
    """`atomic_write` without the fsync of the folder: for many files, after the last of which the caller syncs it.

    A power cut before `sync_folder` may undo the rename; the file that is then under the name is still a complete one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with named_in_errors(path), _open_locked(partial) as file:
        try:
            file.truncate()
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Put the file's name into an `OSError` that has none, as those of write and close have."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def _open_locked(partial: Path) -> Iterator[BinaryIO]:
    """Open and lock a partial, waiting up to `LOCK_TIMEOUT_S` for the worker of a killed process to let go of it."""
    give_up = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb") as file:
            try:
                try_lock(file.fileno(), partial)
            except Busy:
                if time.monotonic() > give_up:
                    raise
            else:
                yield file
                return
        time.sleep(0.01)


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically; raises as `atomic_write`."""
    with atomic_write(path) as file:
        file.write(data)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill, that appears as ``path`` when the block ends without an exception, and otherwise not.

    Raises:
        Busy: another process is filling it.
        OSError: ``path`` exists and is not an empty folder, disk full, no permission.
    """
    with partial_folder(path) as partial:
        try:
            empty_folder(partial)
            yield partial
            os.replace(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """The locked folder ``.NAME.partial`` beside ``path``, for whoever fills it and gives it its name in the block.

    Raises:
        Busy: another process holds it.
        OSError: disk full, no permission; an error names ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with named_in_errors(path), locked(partial):
        yield partial
    sync_folder(path.parent)


def empty_folder(folder: Path) -> None:
    """Delete everything in a folder."""
    for path in folder.iterdir():
        remove_path(path)


def remove_path(path: Path) -> None:
    """Delete a file, a link or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def sync_folder(folder: Path) -> None:
    """fsync a folder, so that renames and removals in it survive a power cut; who follows it hears of it then."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with named_in_errors(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for follower in _followers:
        follower(folder)


@contextmanager
def followed(by: Callable[[Path], None]) -> Iterator[None]:
    """Call ``by(folder)`` in this block whenever a folder is on the disk for good; in this process alone.

    What it raises is raised where the folder was synced.
    """
    _followers.append(by)
    try:
        yield
    finally:
        with suppress(ValueError):  # a forked process has none
            _followers.remove(by)


os.register_at_fork(after_in_child=_followers.clear)
