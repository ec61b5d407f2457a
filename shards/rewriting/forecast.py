"""What a rewrite will read, write, have copied, and ask for: counted from its plan, without a byte of a shard."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from shards.indexing.index import Index
from shards.io.shard_set import locate
from shards.io.storage.clients import is_object
from shards.io.storage.ranges import BLOCK, Range, coalesced, in_parts
from shards.io.storage.uploads import MIN_PART, PART
from shards.rewriting.copy import copies_at_server
from shards.rewriting.finalize import RewritePlan
from shards.rewriting.needed import SourceSlice, needed
from shards.rewriting.rewrite import new_shards, source_slices
from shards.rewriting.server_copies import Piece
from shards.tar.writer import END

#: Requests that read and write for what lies beside the shards of a set, and of a shard beside its bytes: looks at what
#: is there, and a record.
_READS_BESIDE, _WRITES_BESIDE, _READS_OF_SHARD, _WRITES_OF_SHARD = 3, 8, 2, 1
#: Objects that one request lists.
_LISTED = 1000


@dataclass(frozen=True)
class Forecast:
    """Bytes and requests of a rewrite.

    Args:
        bytes_read, bytes_written, bytes_copied: from the source, to the new shards, and from one to the other by the
            server alone.
        reads, writes: requests that read, and those that write, copy or list; none for what is local.
    """

    bytes_read: int
    bytes_written: int
    bytes_copied: int
    reads: int
    writes: int

    def cost(self, get: float, put: float, transfer: float) -> float:
        """In the currency of the prices, of the work alone: what is kept afterwards costs by the month.

        Args:
            get, put: of a thousand requests that read, and of a thousand that write, copy or list.
            transfer: of a gigabyte that is read; within one region of a store it usually costs nothing.
        """
        return (self.reads * get + self.writes * put) / 1000 + self.bytes_read / 1e9 * transfer


def forecast(index: Index, work: RewritePlan, out: Path | str) -> Forecast:
    """Count what a rewrite will do.

    Args:
        work: its plan, as `shards.rewriting.rewrite.make_plan` makes it.
        out: where the new shards would go.
    """
    totals, to_objects, shards = Counter[str](), is_object(str(out)), new_shards(index, work)
    for shard in shards:
        pieces: list[Piece] = []
        for one in source_slices(index, work, shard):
            since_copy = _since_copy(pieces)
            pieces += _of_slice(index.root, one, since_copy, copies_at_server(index.root, str(out)), totals)
        stretches = [
            (copied, [piece.size for piece in some]) for copied, some in groupby(pieces, lambda one: one.copied)
        ]
        totals["written"] += len(END) + sum(sum(sizes) for copied, sizes in stretches if not copied)
        totals["copied"] += sum(sum(sizes) for copied, sizes in stretches if copied)
        if to_objects:
            totals["reads"] += _READS_OF_SHARD
            totals["writes"] += _WRITES_OF_SHARD + _upload_requests(stretches)
    if to_objects:
        totals["reads"] += _READS_BESIDE
        totals["writes"] += _WRITES_BESIDE + _lists(0) + _lists(2 * len(shards)) + _lists(len(shards))
    if is_object(index.root):
        totals["writes"] += _lists(len(index.shards))
    return Forecast(totals["read"], totals["written"], totals["copied"], totals["reads"], totals["writes"])


def _lists(n_objects: int) -> int:
    """Requests that list so many objects."""
    return 1 + n_objects // _LISTED


def _since_copy(pieces: list[Piece]) -> int:
    """Bytes since the last copy."""
    total = 0
    for piece in reversed(pieces):
        if piece.copied:
            break
        total += piece.size
    return total


def _of_slice(root: str, one: SourceSlice, since_copy: int, at_server: bool, totals: Counter[str]) -> list[Piece]:
    """The pieces of a slice; what is read for them goes to ``totals``."""
    location, far = locate(root, one.shard.path), is_object(root)
    plain = one.prefix is None and not one.shard.borrows and not one.shard.gzip
    wanted = needed(one, since_copy, at_server and plain)
    if far and not plain:
        totals["read"] += one.shard.size
        totals["reads"] += 1 - (-one.shard.size // BLOCK)
    elif far:
        places = zip(wanted.starts.tolist(), wanted.sizes.tolist())
        for request in coalesced(in_parts(Range(location, *place) for place in places)):
            totals["read"] += request.bytes.size
            totals["reads"] += 1
    else:
        totals["read"] += sum(piece.size for piece in wanted.pieces)
    return list(wanted.pieces)


def _upload_requests(stretches: list[tuple[bool, list[int]]]) -> int:
    """Requests that write an object of stretches that come from here, and of such that the server copies."""
    has_copies = any(copied for copied, _ in stretches)
    n_bytes = sum(sum(sizes) for _, sizes in stretches) + len(END)
    if not has_copies and n_bytes < MIN_PART:
        return 1
    parts = sum(len(sizes) if copied else _n_parts(sum(sizes)) for copied, sizes in stretches)
    return 2 + parts + (stretches[-1][0])  # the end of the tar is a part of its own behind a copy


def _n_parts(size: int) -> int:
    return max(0, size - MIN_PART) // PART + 1
