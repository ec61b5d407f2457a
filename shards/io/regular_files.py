"""Opens local files that a user named, regular ones only: a pipe would block, a device may never end.

`shards.io.folders` lists whole folders.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: it cannot be opened, or is a pipe, socket or device.
    """
    # Without O_NONBLOCK the opening of a pipe waits for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse_irregular(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def read_regular(path: str | Path) -> bytes:
    """All bytes of a regular file; raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def check_regular(path: str | Path) -> None:
    """Raise `OSError` unless this is a regular file: for libraries that open files themselves."""
    _refuse_irregular(os.stat(path).st_mode, path)


def _refuse_irregular(mode: int, path: str | Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is no regular file, but a pipe, socket or device", os.fspath(path))
