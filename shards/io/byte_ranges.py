"""Reads byte ranges of shards: local ones in any order by `preadv`, remote ones by requests, gzip sequentially.

Offsets count bytes of the uncompressed tar; what the bytes mean is for the callers.
"""

from __future__ import annotations

import io
import os
import resource
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, BinaryIO, cast

from shards.errors import ShardsChanged
from shards.io import remote
from shards.io.inflate import CHUNK, GZIP_MAGIC, GzipReader
from shards.io.regular_files import check_regular, open_regular
from shards.io.storage import ranges
from shards.io.storage.clients import is_object

#: Local shards that one reader keeps open.
MAX_OPEN = 64


class OpenShards:
    """Shards to read in any order: local ones opened on first use, the least recently used closed beyond a bound.

    A shard behind a URL is read by a request a range, from any number of threads.

    Args:
        max_open: the bound; None takes `MAX_OPEN`, or a quarter of this process's descriptor limit, if less.
        etags: of objects, by URL: one that has another by now is not read.
    """

    def __init__(self, max_open: int | None = None, etags: Mapping[str, str] | None = None) -> None:
        self._etags = etags or {}
        self._fetched: dict[tuple[str, int, int], memoryview] = {}
        self._max_open = max(1, min(MAX_OPEN, _max_descriptors() // 4)) if max_open is None else max_open
        self._open: OrderedDict[str, int] = OrderedDict()
        self._close = os.close  # of an iterator that was not read to its end it is called when modules are gone

    def __enter__(self) -> OpenShards:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._close(self._open.popitem()[1])

    def descriptor(self, path: str) -> int:
        """File descriptor of a shard, valid until the next call.

        Raises:
            ShardsChanged: the shard is gone.
        """
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        while len(self._open) >= self._max_open:
            os.close(self._open.popitem(last=False)[1])
        try:
            check_regular(path)
            self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise ShardsChanged("the shard is gone", shard=path, todo="restore it or index the store again") from error
        return self._open[path]

    def fetch(self, wanted: Iterable[tuple[str, int, int]]) -> None:
        """Read ranges (path, offset, size) of objects now, near ones in one request, for the `read` that asks for each.

        What an earlier call has fetched is forgotten; local paths and other URLs are left to `read`.
        """
        ordered = sorted({one for one in wanted if is_object(one[0])})
        asked = [ranges.Range(*one, self._etags.get(one[0])) for one in ordered]
        self._fetched = dict(zip(ordered, ranges.read_ranges(asked), strict=True))

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Bytes ``offset`` to ``offset + size`` of a shard.

        Raises:
            ShardsChanged: the shard is gone, ends before, or is an object of another ETag.
            NotShards: the URL cannot be read by ranges.
        """
        if (path, offset, size) in self._fetched:
            return bytes(self._fetched[path, offset, size])
        if remote.is_url(path):
            return remote.read_range(path, offset, size, self._etags.get(path))
        data = bytearray(size)
        self.read_into(path, offset, memoryview(data))
        return bytes(data)

    def read_into(self, path: str, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes of a shard from ``offset`` on; raises as `read` does."""
        descriptor, done = self.descriptor(path), 0
        while done < len(buffer):
            n = os.preadv(descriptor, [buffer[done:]], offset + done)
            if n == 0:
                raise shard_too_short(path, offset + len(buffer), offset + done)
            done += n


def _max_descriptors() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def shard_too_short(shard: str, expected: int, found: int) -> ShardsChanged:
    """The error for a shard that has fewer bytes than its index says."""
    return ShardsChanged(
        "ends before its index says",
        shard=shard,
        expected=f"at least {expected} bytes",
        found=found,
        todo="restore it or index the store again",
    )


def read_ranges(stream: IO[bytes], shard: str, offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield byte ranges of a sequential stream; ranges may overlap.

    Args:
        stream: the uncompressed shard, at its beginning.
        shard: its name, for messages.
        offsets, sizes: of the ranges, bytes; offsets must not decrease.

    Raises:
        ShardsChanged: the stream ends before a range does.
    """
    position, last = 0, b""  # `last`: the bytes read last, which end at `position`; overlapping ranges need them
    for offset, size in zip(offsets, sizes, strict=True):
        if offset > position:
            _skip(stream, shard, offset - position, position)
            position, last = offset, b""
        last = last[len(last) - (position - offset) :]
        missing = size - len(last)
        if missing > 0:
            more = read_exactly(stream, shard, missing, position)
            position, last = position + missing, last + more
        yield last[:size]


def read_exactly(stream: IO[bytes], shard: str, size: int, position: int) -> bytes:
    """The next ``size`` bytes of a stream that stands at byte ``position``; raises `ShardsChanged` at its end."""
    parts, missing = [], size
    while missing and (part := stream.read(missing)):
        parts.append(part)
        missing -= len(part)
    if missing:
        raise shard_too_short(shard, position + size, position + size - missing)
    return b"".join(parts)


def _skip(stream: IO[bytes], shard: str, size: int, position: int) -> None:
    while size:
        step = min(size, CHUNK)
        read_exactly(stream, shard, step, position)
        size, position = size - step, position + step


@contextmanager
def open_stream(location: str, etag: str | None = None) -> Iterator[BinaryIO]:
    """Open a shard, local or remote, as a sequential stream, decompressed where its magic is gzip's.

    Args:
        etag: what the ETag of an object must be; None for any.
    """
    if remote.is_url(location):
        with remote.open_url(location, etag) as stream:
            yield uncompressed(stream)
    else:
        with open_regular(location) as file:
            yield uncompressed(file)


def uncompressed(stream: IO[bytes]) -> BinaryIO:
    """The tar in a stream of a tar or a gzip of one; a damaged gzip ends early instead of raising."""
    buffered = io.BufferedReader(cast(io.RawIOBase, _Readable(stream)), CHUNK)
    if buffered.peek(2)[:2] == GZIP_MAGIC:
        return cast(BinaryIO, io.BufferedReader(GzipReader(buffered), CHUNK))
    return cast(BinaryIO, buffered)


class _Readable(io.RawIOBase):
    """Adapter: any object with ``read`` as a raw stream, to be buffered."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
