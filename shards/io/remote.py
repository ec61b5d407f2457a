"""Opens and lists what lies behind a URL: http(s) by the standard library, ``pipe:`` by a shell, the rest by fsspec.

Objects of object stores are `shards.io.storage`'s. Which URLs may come here `shards.io.shard_set` decides. Every
exception of a client, while it opens and while it reads, becomes `NotShards` here.
"""

from __future__ import annotations

import http.client
import io
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from shards.errors import Misuse, NotShards, ShardError, StoreFailed
from shards.io.regular_files import open_regular
from shards.io.storage import objects, ranges
from shards.io.storage.clients import is_object

#: Seconds in which a server must answer, and then send more.
TIMEOUT_S = 60.0
#: Seconds before a request for a range is made again, where the fault may pass.
_PAUSES_S = (0.5, 2.0)
_URL = re.compile(r"(pipe:|[A-Za-z][A-Za-z0-9+.-]*://)")


def is_url(text: str) -> bool:
    """Whether this is a URL and not a local path."""
    return _URL.match(text) is not None


def is_pipe(text: str) -> bool:
    """Whether this is a ``pipe:`` URL: the output of a shell command."""
    return text.startswith("pipe:")


def check_url(url: str) -> None:
    """Raise `Misuse` for an ``http(s):`` URL with a blank or control character."""
    if url.startswith(("http://", "https://")) and re.search(r"[\s\x00-\x20\x7f]", url):
        raise Misuse("a URL with a blank or a control character", shard=ascii(url), todo="write a blank as %20")


@contextmanager
def open_url(url: str, etag: str | None = None) -> Iterator[BinaryIO]:
    """Open a URL as a sequential stream.

    Args:
        etag: what the ETag of an object must be; None for any.

    Raises:
        ShardsChanged: it is another.
        NotShards: it cannot be opened or not be read to its end, or the command of a ``pipe:`` fails.
    """
    if is_pipe(url):
        with _pipe(url) as stream:
            yield stream
        return
    if is_object(url):
        info = ranges.info_of(url, etag)
        with io.BufferedReader(_Blocks(ranges.read_blocks(info, 0, info.size)), 1 << 16) as blocks:
            yield cast(BinaryIO, blocks)
        return
    with _open(url) as stream:
        yield cast(BinaryIO, io.BufferedReader(_RemoteStream(stream, url), 1 << 16))


def read_url(url: str, max_bytes: int) -> bytes:
    """All bytes of a URL.

    Raises:
        NotShards: as `open_url`, or there are more than ``max_bytes``.
    """
    if is_object(url):
        return objects.read_all(url, max_bytes)
    with open_url(url) as stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise NotShards("too long for a list of shards", shard=url, expected=f"at most {max_bytes} bytes")
    return data


def read_range(url: str, offset: int, size: int, etag: str | None = None) -> bytes:
    """Bytes ``offset`` to ``offset + size`` of a file behind a URL, by one request for just these.

    A broken connection, or an answer that the server is busy, is tried again, twice.

    Args:
        etag: what the ETag of an object must be; None for any.

    Raises:
        NotShards: the file cannot be read, ends before, or the server knows no ranges.
        ShardsChanged: the object has another ETag.
    """
    if not size:
        return b""
    if is_object(url):
        return objects.read_range(url, offset, size, etag)
    for pause in _PAUSES_S:
        try:
            return _range_once(url, offset, size)
        except NotShards as error:
            if not _may_pass(error.__cause__):
                raise
            time.sleep(pause)
    return _range_once(url, offset, size)


def _range_once(url: str, offset: int, size: int) -> bytes:
    with _as_shard_error(f"bytes {offset} to {offset + size} cannot be read", url):
        if url.startswith(("http://", "https://")):
            data = _range_over_http(url, offset, size)
        else:
            import fsspec

            files, path = fsspec.core.url_to_fs(url)
            data = bytes(files.cat_file(path, start=offset, end=offset + size))
        if len(data) < size:
            raise EOFError(f"{len(data)} of {size} bytes came")
    return data


def _range_over_http(url: str, offset: int, size: int) -> bytes:
    asked = urllib.request.Request(url, headers={"Range": f"bytes={offset}-{offset + size - 1}"})
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            if answer.status != 206:
                todo = "serve it by one that does, or copy the shards here"
                raise NotShards("the server knows no byte ranges", shard=url, todo=todo)
            return cast(bytes, answer.read(size))
    except urllib.error.HTTPError as error:
        error.close()  # it is a response, too, and holds the connection
        raise


def _may_pass(reason: BaseException | None) -> bool:
    """Whether a request that failed so may do better when it is made again."""
    if isinstance(reason, urllib.error.HTTPError):
        return reason.code == 429 or reason.code >= 500
    final = (FileNotFoundError, PermissionError, http.client.InvalidURL)
    return isinstance(reason, OSError | EOFError | http.client.HTTPException) and not isinstance(reason, final)


def list_folder(url: str) -> list[str]:
    """The URLs of all files below a folder, sorted.

    Raises:
        NotShards: the scheme cannot list folders.
    """
    if is_object(url):
        return sorted(info.url for info in objects.list_objects(url))
    with _as_shard_error("cannot be listed", url, "name the shards by a pattern"):
        import fsspec

        files, prefix = fsspec.core.url_to_fs(url)
        found = files.find(prefix)
        return sorted(files.unstrip_protocol(name) for name in found)


def _open(url: str) -> BinaryIO:
    with _as_shard_error("cannot be opened", url):
        if url.startswith(("http://", "https://")):
            return cast(BinaryIO, urllib.request.urlopen(url, timeout=TIMEOUT_S))
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        files, path = fsspec.core.url_to_fs(url)
        if isinstance(files, LocalFileSystem):
            return open_regular(path)
        return cast(BinaryIO, fsspec.open(url, "rb").open())


@contextmanager
def _as_shard_error(problem: str, url: str, todo: str | None = None) -> Iterator[None]:
    """Turn any exception of a client into one line; the clients' exceptions have no base class in common."""
    try:
        yield
    except (ShardError, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        kind = StoreFailed if _may_pass(error) else NotShards
        raise kind(f"{problem} ({reason})", shard=url, todo=todo) from error


class _RemoteStream(io.RawIOBase):
    """A client's stream, with its exceptions as `NotShards`."""

    def __init__(self, stream: BinaryIO, url: str) -> None:
        self._stream, self._url = stream, url

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _as_shard_error("the connection broke", self._url, "try again"):
            data = self._stream.read(len(buffer))
        # An HTTP response counts down its content length, and ends silently where the connection breaks.
        if not data and getattr(self._stream, "length", None):
            raise StoreFailed("the connection ended early", shard=self._url, todo="try again")
        buffer[: len(data)] = data
        return len(data)


class _Blocks(io.RawIOBase):
    """Blocks of bytes that come one after the other, as a stream."""

    def __init__(self, blocks: Generator[memoryview]) -> None:
        self._blocks, self._left = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = next(self._blocks, memoryview(b""))
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size

    def close(self) -> None:
        self._blocks.close()  # nothing more is asked for
        super().close()


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
