"""Pairs of items, found in any order and more of them than memory holds, given back sorted.

A pair travels as three aligned arrays (`Pairs`). While they are gathered each stands as one number in a file of its own
range of left items, so that only one range is ever sorted at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from curate.types import Floats, Ints

#: Hamming distances of 64 bits, or cosine distances.
Distances = npt.NDArray[np.uint8] | Floats
#: Left items of a range, a power of two, and bytes of it that stay in memory.
_RANGE_BITS, _IN_MEMORY = 18, 1 << 24
#: Pairs of a chunk that is given back.
CHUNK = 1 << 20
#: Items that a pair can name: two places share 64 bits.
MOST_ITEMS = 1 << 32


class Pairs(NamedTuple):
    """Pairs of items that are alike.

    Args:
        left, right: shape (k,), int64, left < right in each.
        distance: shape (k,): uint8 (bits that differ) or float32.
    """

    left: Ints
    right: Ints
    distance: Distances


class Gathered:
    """Pairs of ``n`` items without their distances, to be read once in the order of (left, right), each once.

    Args:
        n: at most `MOST_ITEMS`.
    """

    def __init__(self, n: int) -> None:
        assert n <= MOST_ITEMS
        self.files: list[IO[bytes]] = [
            tempfile.SpooledTemporaryFile(_IN_MEMORY) for _ in range(max(1, -(-n >> _RANGE_BITS)))
        ]

    def add(self, left: Ints, right: Ints) -> None:
        """Take in pairs of shape (k,), left < right, in any order, some perhaps there already."""
        codes = left.astype(np.uint64) << np.uint64(32) | right.astype(np.uint64)
        if len(self.files) == 1:
            self.files[0].write(codes.tobytes())
            return
        part = left >> _RANGE_BITS
        order = np.argsort(part, kind="stable")
        numbers, starts = np.unique(part[order], return_index=True)
        for number, piece in zip(numbers.tolist(), np.split(codes[order], starts[1:])):
            self.files[number].write(piece.tobytes())

    def read(self) -> Iterator[tuple[Ints, Ints]]:
        """Left and right, sorted by (left, right), in chunks of at most `CHUNK`; what was read is gone."""
        for file in self.files:
            file.seek(0)
            codes = np.unique(np.frombuffer(file.read(), np.uint64))
            file.close()
            for at in range(0, len(codes), CHUNK):
                chunk = codes[at : at + CHUNK]
                left, right = chunk >> np.uint64(32), chunk & np.uint64(0xFFFFFFFF)
                yield left.astype(np.int64), right.astype(np.int64)
