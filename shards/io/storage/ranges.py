"""Many byte ranges of objects: near ones in one request, several requests at a time, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from shards.errors import NoSuchObject
from shards.io.storage.clients import changed
from shards.io.storage.objects import ObjectInfo, head, read_range

#: Bytes between two ranges that are read along rather than asked around. Below the size of a small photo, so that
#: scattered samples cost what they weigh.
MAX_GAP = 16 << 10
#: Bytes of a request.
MAX_REQUEST = 8 << 20
#: Requests under way at a time, and bytes of each where an object is read whole.
CONCURRENT, BLOCK = 16, 2 << 20


class Range(NamedTuple):
    """Bytes of an object whose ETag must be ``etag`` (None for any)."""

    url: str
    offset: int
    size: int
    etag: str | None = None


class Request(NamedTuple):
    """Bytes that are read at once, and the number of the ranges asked for that lie in them."""

    bytes: Range
    n_ranges: int


def coalesced(ranges: Iterable[Range], max_gap: int = MAX_GAP) -> Iterator[Request]:
    """The requests that read ranges in order; one that begins before the one before it is a new request.

    A range larger than a request makes one of its own size: see `in_parts`.

    >>> asked = [Range("s3://b/x", 0, 100), Range("s3://b/x", 120, 50), Range("s3://b/x", 90_000, 10)]
    >>> [(request.bytes.offset, request.bytes.size, request.n_ranges) for request in coalesced(asked, max_gap=50)]
    [(0, 170, 2), (90000, 10, 1)]
    """
    held, n_ranges = Range("", 0, 0), 0
    for one in ranges:
        end, stop = held.offset + held.size, one.offset + one.size
        same = (one.url, one.etag) == (held.url, held.etag)
        if n_ranges and same and held.offset <= one.offset <= end + max_gap and stop - held.offset <= MAX_REQUEST:
            held, n_ranges = held._replace(size=max(end, stop) - held.offset), n_ranges + 1
            continue
        if n_ranges:
            yield Request(held, n_ranges)
        held, n_ranges = one, 1
    if n_ranges:
        yield Request(held, n_ranges)


def in_parts(ranges: Iterable[Range]) -> Iterator[Range]:
    """The same bytes, in ranges that are each small enough for one request.

    >>> [(part.offset, part.size >> 20) for part in in_parts([Range("s3://b/x", 0, 9 << 20)])]
    [(0, 8), (8388608, 1)]
    """
    for one in ranges:
        for start in range(0, max(one.size, 1), MAX_REQUEST):
            yield one._replace(offset=one.offset + start, size=min(MAX_REQUEST, one.size - start))


def read_ranges(ranges: Sequence[Range]) -> Iterator[memoryview]:
    """The bytes of ranges, one after the other; little more than they is read.

    Args:
        ranges: best object by object, in order of offset.

    Raises:
        ShardError: as `objects.read_range`.
    """
    blocks = _read_small(list(in_parts(ranges)))
    for one in ranges:
        n_parts = max(1, -(-one.size // MAX_REQUEST))
        yield next(blocks) if n_parts == 1 else memoryview(b"".join(islice(blocks, n_parts)))


def _read_small(ranges: Sequence[Range]) -> Iterator[memoryview]:
    """As `read_ranges`, of ranges that are no larger than a request."""
    requests, place = list(coalesced(ranges)), 0
    for request, data in zip(requests, _read_ahead(request.bytes for request in requests), strict=True):
        for one in ranges[place : place + request.n_ranges]:
            start = one.offset - request.bytes.offset
            yield data[start : start + one.size]
        place += request.n_ranges


def read_blocks(info: ObjectInfo, start: int, stop: int) -> Generator[memoryview]:
    """The bytes of an object from ``start`` to ``stop``, in order; raises as `read_ranges`."""
    places = range(start, stop, BLOCK)
    yield from _read_ahead(Range(info.url, at, min(BLOCK, stop - at), info.etag) for at in places)


def info_of(url: str, etag: str | None = None) -> ObjectInfo:
    """What is known of an object.

    Args:
        etag: what its ETag must be; None for any.

    Raises:
        NoSuchObject: there is none.
        ShardsChanged: it has another ETag.
    """
    info = head(url)
    if info is None:
        raise NoSuchObject("no such object", shard=url)
    if etag is not None and info.etag != etag:
        raise changed(url)
    return info


def _read_ahead(blocks: Iterable[Range]) -> Iterator[memoryview]:
    """The bytes of each, by a request each, some of them under way while the first is used."""
    pool, waiting, left = ThreadPoolExecutor(CONCURRENT), deque[Future[bytes]](), iter(blocks)
    try:
        while True:
            waiting += (pool.submit(read_range, *one) for one in islice(left, CONCURRENT - len(waiting)))
            if not waiting:
                return
            yield memoryview(waiting.popleft().result())
    finally:
        pool.shutdown(cancel_futures=True)
