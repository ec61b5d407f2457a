"""What lies behind a URL, as bytes. Owns the opening and listing of remote shards; knows nothing of tars.

``http(s):`` is the standard library's, ``pipe:`` runs a command and reads its output (as webdataset has it), all other
schemes are fsspec's (``s3:`` needs the extra `s3`).
"""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from shards.errors import NotShards

_URL = re.compile(r"(pipe:|[A-Za-z][A-Za-z0-9+.-]*://)")


def is_url(text: str) -> bool:
    """Whether this names something that is not a local path."""
    return _URL.match(text) is not None


@contextmanager
def opening(url: str) -> Iterator[BinaryIO]:
    """Open what a URL names, to be read once from its beginning.

    Raises:
        NotShards: it cannot be opened, or the command of a ``pipe:`` fails.
    """
    if url.startswith("pipe:"):
        with _pipe(url) as stream:
            yield stream
        return
    try:
        stream = _open(url)
    except (OSError, ImportError, ValueError) as error:
        raise NotShards(f"cannot be opened ({error})", shard=url) from error
    with stream:
        yield stream


def read(url: str) -> bytes:
    """All the bytes that a URL names."""
    with opening(url) as stream:
        return stream.read()


def list_folder(url: str) -> list[str]:
    """The URLs of all files below a folder, sorted.

    Raises:
        NotShards: the scheme cannot list folders.
    """
    try:
        import fsspec

        files, prefix = fsspec.core.url_to_fs(url)
        found = files.find(prefix)
        return sorted(files.unstrip_protocol(name) for name in found)
    except (OSError, ImportError, ValueError, NotImplementedError) as error:
        raise NotShards(f"cannot be listed ({error})", shard=url, todo="name the shards by a pattern") from error


def _open(url: str) -> BinaryIO:
    if url.startswith(("http://", "https://")):
        return cast(BinaryIO, urllib.request.urlopen(url))
    import fsspec

    return cast(BinaryIO, fsspec.open(url, "rb").open())


@contextmanager
def _pipe(url: str) -> Iterator[BinaryIO]:
    # A shell, because that is what the scheme means: the user writes a command line.
    process = subprocess.Popen(url.removeprefix("pipe:"), shell=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as stream:
        yield cast(BinaryIO, stream)
    if process.wait() != 0:
        raise NotShards(f"the command ends with status {process.returncode}", shard=url)
