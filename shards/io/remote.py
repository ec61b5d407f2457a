"""What lies behind a URL, as bytes. Owns the opening and listing of remote shards; knows nothing of tars.

``http(s):`` is the standard library's, ``pipe:`` runs a command and reads its output (as webdataset has it), all other
schemes are fsspec's (``s3:`` needs the extra `s3`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
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
        NotShards: it cannot be opened or not be read to its end, or the command of a ``pipe:`` fails.
    """
    if url.startswith("pipe:"):
        with _pipe(url) as stream:
            yield stream
        return
    with _open(url) as stream:
        try:
            yield stream
        except (ConnectionError, TimeoutError, HTTPException) as error:
            raise NotShards(f"the connection broke ({error})", shard=url, todo="try again") from error
        # A response counts down what it was promised, and ends without a word where it gets less.
        if getattr(stream, "length", None) and not stream.read(1):
            raise NotShards("the connection ended early", shard=url, todo="try again")


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
    try:
        if url.startswith(("http://", "https://")):
            return cast(BinaryIO, urllib.request.urlopen(url))
        import fsspec

        return cast(BinaryIO, fsspec.open(url, "rb").open())
    except (OSError, ImportError, ValueError) as error:
        raise NotShards(f"cannot be opened ({error})", shard=url) from error


@contextmanager
def _pipe(url: str) -> Iterator[BinaryIO]:
    # A shell, because that is what the scheme means: the user writes a command line. A session of its own, so that all
    # of the line can be ended.
    command = url.removeprefix("pipe:")
    with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, start_new_session=True) as process:
        stream, read_to_its_end = cast(BinaryIO, process.stdout), False
        try:
            yield stream
            read_to_its_end = not stream.read(1)
        finally:
            # A reader that has enough may stop; the status says nothing then.
            if not read_to_its_end:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
    if read_to_its_end and process.returncode != 0:
        raise NotShards(f"the command ends with status {process.returncode}", shard=url)
