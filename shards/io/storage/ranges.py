"""Many byte ranges of one object: near ones in one request, several requests at a time, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from shards.io.storage.objects import read_range

#: Bytes between two ranges that are read along rather than asked around. Below the size of a small photo, so that
#: scattered samples cost what they weigh.
MAX_GAP = 16 << 10
#: Bytes of a request, where a range alone is no larger.
MAX_REQUEST = 8 << 20
#: Requests under way at a time.
CONCURRENT = 8


class Request(NamedTuple):
    """Bytes that are read at once: ``n_ranges`` of the ranges asked for, from ``offset`` on."""

    offset: int
    size: int
    n_ranges: int


def coalesced(ranges: Iterable[tuple[int, int]], max_gap: int = MAX_GAP) -> Iterator[Request]:
    """The requests that read ranges (offset, size) in order; one that begins before the one before it is a new request.

    >>> list(coalesced([(0, 100), (100, 50), (200, 10), (90_000, 10)], max_gap=50))
    [Request(offset=0, size=210, n_ranges=3), Request(offset=90000, size=10, n_ranges=1)]
    """
    first, end, n_ranges = 0, 0, 0
    for offset, size in ranges:
        near = first <= offset <= end + max_gap and offset + size - first <= MAX_REQUEST
        if n_ranges and not near:
            yield Request(first, end - first, n_ranges)
            n_ranges = 0
        if not n_ranges:
            first = end = offset
        end, n_ranges = max(end, offset + size), n_ranges + 1
    if n_ranges:
        yield Request(first, end - first, n_ranges)


def read_ranges(url: str, ranges: Sequence[tuple[int, int]], etag: str | None = None) -> Iterator[bytes]:
    """The bytes of ranges (offset, size) of an object, one after the other; little more than they is read.

    Args:
        ranges: best in order of offset.
        etag: what the object's ETag must be; None for any.

    Raises:
        ShardError: as `objects.read_range`.
    """
    waiting: deque[tuple[Request, Future[bytes]]] = deque()
    todo, pool, place = coalesced(ranges), ThreadPoolExecutor(CONCURRENT), 0
    try:
        while True:
            while len(waiting) < CONCURRENT and (request := next(todo, None)) is not None:
                waiting.append((request, pool.submit(read_range, url, request.offset, request.size, etag)))
            if not waiting:
                return
            request, due = waiting.popleft()
            data = due.result()
            for offset, size in ranges[place : place + request.n_ranges]:
                yield data[offset - request.offset : offset - request.offset + size]
            place += request.n_ranges
    finally:
        pool.shutdown(cancel_futures=True)
