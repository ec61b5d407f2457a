"""The only code that gives a file its final name: written under a temporary name beside it, fsync, rename.

A file under its final name is therefore complete, and a kill leaves at most a ``.NAME.partial``,
which the next attempt overwrites.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shards.errors import Busy
from shards.io.locks import locked, try_lock

#: Seconds that a worker may take to die with the process that started it: what it writes reaches the disk first.
LOCK_TIMEOUT_S = 1.0


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears as ``path`` when the block ends well, and not at all otherwise.

    Raises:
        Busy: another process is writing it.
        OSError: disk full, no permission; nothing is left under either name then.
    """
    with atomic_write_unsynced(path) as file:
        yield file
    sync_folder(path.parent)


@contextmanager
def atomic_write_unsynced(path: Path) -> Iterator[BinaryIO]:
    """As `atomic_write`, for one of many files of a folder: their names last from the `sync_folder` that ends them all.

    A power cut before that may take the file away, whole; what stands under its name is complete in any case.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with _named_in_errors(path), _open_locked(partial) as file:
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
def _named_in_errors(path: Path) -> Iterator[None]:
    """Name the file in an error that does not: a write, and the close after it, say only what went wrong."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def _open_locked(partial: Path) -> Iterator[BinaryIO]:
    """Open and lock a partial; one that the worker of a killed process still holds is waited for, a moment."""
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
    """Write ``data`` to ``path``, whole or not at all."""
    with atomic_write(path) as file:
        file.write(data)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Fill a folder that appears as ``path`` when the block ends well, and not at all otherwise.

    ``path`` must be missing or an empty folder.

    Raises:
        Busy: another process is filling it.
        OSError: ``path`` holds something, disk full, no permission.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with _named_in_errors(path), locked(partial):
        try:
            _empty(partial)
            yield partial
            os.replace(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    sync_folder(path.parent)


def _empty(folder: Path) -> None:
    """Remove what is in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Make renames and removals in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with _named_in_errors(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
