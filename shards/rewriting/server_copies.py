"""Which bytes of a new object the server copies from the old ones, and which come here and go back.

A copied byte costs nothing here. But a copy is a part of an upload, which has at least 5 MiB, and so have the bytes
that are written between two of them; and the headers of what is copied are read all the same, as they are checked and
hashed, by a request a sample. Pure: `shards.rewriting.copy` and `forecast` do as it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shards.arrays import Int64Array
from shards.io.storage.uploads import MAX_PART, MIN_PART
from shards.tar.header import BLOCK

#: Bytes that come in the time that one more request takes, with as many under way as there are.
REQUEST_BYTES = 64 << 10
#: Bytes of a part that the server copies: a multiple of a block.
_COPY = 1 << 30


class Piece(NamedTuple):
    """Bytes of a source shard that follow one another in the new shard; ``copied``: by the server."""

    offset: int
    size: int
    copied: bool


class Runs(NamedTuple):
    """Stretches of a source shard that are kept without a gap: shape (n,), int64, bytes and numbers of extents."""

    starts: Int64Array
    sizes: Int64Array
    n_extents: Int64Array


def runs_of(starts: Int64Array, sizes: Int64Array) -> Runs:
    """The runs of extents in their order, whole blocks each."""
    first = np.flatnonzero(np.concatenate(([True], starts[1:] != starts[:-1] + sizes[:-1])))
    ends = np.append(first[1:], len(starts))
    return Runs(starts[first], np.add.reduceat(sizes, first), ends - first)


def worth_copying(runs: Runs, header_bytes: Int64Array) -> Int64Array:
    """Which runs the server had better copy: shape (k,), int64, numbers of runs.

    Args:
        header_bytes: shape (n,): what is read of each run all the same.
    """
    by_server = header_bytes + runs.n_extents * REQUEST_BYTES
    return np.flatnonzero((runs.sizes >= MIN_PART) & (by_server < 2 * runs.sizes))


def pieces_of(runs: Runs, copied: Int64Array, since_copy: int) -> Iterator[Piece]:
    """How the bytes of runs get into a new object.

    Args:
        copied: numbers of the runs to copy, as far as the sizes of parts allow.
        since_copy: bytes of the new object that were written since the last copy.
    """
    chosen = set(copied.tolist())
    for number, (start, size) in enumerate(zip(runs.starts.tolist(), runs.sizes.tolist())):
        fill = max(0, MIN_PART - since_copy) if since_copy else 0
        fill += -fill % BLOCK
        if number not in chosen or size - fill < MIN_PART:
            yield Piece(start, size, False)
            since_copy += size
            continue
        if fill:
            yield Piece(start, fill, False)
        for offset, length in _copies(start + fill, size - fill):
            yield Piece(offset, length, True)
        since_copy = 0


def _copies(start: int, size: int) -> Iterator[tuple[int, int]]:
    """Parts of a stretch, none too small and none too large."""
    n_parts = -(-size // min(_COPY, MAX_PART))
    length = -(-size // n_parts)
    length += -length % BLOCK
    for offset in range(start, start + size, length):
        yield offset, min(length, start + size - offset)
