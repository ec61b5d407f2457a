"""A copy of a tar in an object store with all its headers and without its large bodies: what a walk needs of it.

A body smaller than a request is worth is read along. So of photos everything is read, a few megabytes at a time, and of
large members their headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from shards.io.mapped import MappedShard, open_copy, open_mapped
from shards.io.storage import ranges
from shards.io.storage.clients import is_object
from shards.io.storage.objects import ObjectInfo
from shards.tar.bulk_walk import IGNORED_KEYWORDS
from shards.tar.header import BLOCK, BadHeader, parse, pax_records

#: Bytes that are read on where members are small, and at a header behind a body that was passed over.
STRIDE, PROBE = 8 << 20, 64 << 10
#: A body of which so many bytes are left is not worth reading: in that time a request is answered, too.
WORTH_SKIPPING = 1 << 20
_PLAIN = (b"0", b"\0")


@contextmanager
def open_headers(location: str, etag: str | None = None) -> Iterator[MappedShard]:
    """Open a shard for a walk, which reads no body; arguments and errors as `shards.io.mapped.open_mapped` has them."""
    if not is_object(location):
        with open_mapped(location) as source:
            yield source
        return
    with open_copy(ranges.info_of(location, etag), _read_headers) as source:
        yield source


def _read_headers(info: ObjectInfo, copy: BinaryIO) -> None:
    """Write all of an object but large bodies of plain members. What is not plain is no business of this: from the
    first header that is not, everything is read."""
    position, chain = 0, _Chain()
    stride = STRIDE
    while position < info.size:
        stop = min(position + stride, info.size)
        for block in ranges.read_blocks(info, position, stop):
            copy.seek(position)
            copy.write(block)
            chain.follow(position, block)
            position += len(block)
        ahead = chain.next_header - position
        stride = PROBE if ahead >= WORTH_SKIPPING else STRIDE
        position += ahead if ahead >= WORTH_SKIPPING else 0


class _Chain:
    """Follows size fields from header to header through blocks of a tar as they come."""

    def __init__(self) -> None:
        self.next_header = 0
        self._plain = True

    def follow(self, position: int, data: memoryview) -> None:
        """Move on to the first header behind these bytes, which lie at ``position``; it stays where it is in doubt."""
        while self._plain and 0 <= self.next_header - position <= len(data) - BLOCK:
            self.next_header += self._step(data[self.next_header - position :])
        if self.next_header - position < len(data):
            self._plain = False  # a header that lies in two blocks, or the end

    def _step(self, data: memoryview) -> int:
        """Bytes to the header after the one that ``data`` begins with; 0 where that is no plain member's."""
        try:
            header = parse(bytes(data[:BLOCK]))
            self._plain = header.type in _PLAIN or (header.type == b"x" and _is_harmless(data[BLOCK:], header.size))
        except BadHeader:
            self._plain = False
        return BLOCK + header.size + -header.size % BLOCK if self._plain else 0


def _is_harmless(data: memoryview, size: int) -> bool:
    """Whether a PAX header sets neither name, size nor kind; one that is not all in these bytes may."""
    return size <= len(data) and IGNORED_KEYWORDS.issuperset(pax_records(bytes(data[:size])))
