"""Pairs of items, found in any order and more of them than memory holds, given back sorted.

A pair travels as three aligned arrays (`Pairs`). While they are gathered each stands as one number in a file of its own
range of left items, so that only one range is ever sorted at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from curate.types import Floats, Ints

#: Hamming distances of 64 bits, or cosine distances.
Distances = npt.NDArray[np.uint8] | Floats
#: Left items of a range and the number of ranges, as powers of two; bytes of a range that stay in memory.
_RANGE_BITS, _MOST_RANGES_BITS, _IN_MEMORY = 18, 6, 1 << 24
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
    """Pairs without their distances, to be read once in the order of (left, right), each once; see `gathering`."""

    def __init__(self, files: list[IO[bytes]], bits: int) -> None:
        self.files, self.bits = files, bits

    def add(self, left: Ints, right: Ints) -> None:
        """Take in pairs of shape (k,), left < right, in any order, some perhaps there already."""
        codes = left.astype(np.uint64) << np.uint64(32) | right.astype(np.uint64)
        part = left >> self.bits
        order = np.argsort(part, kind="stable")
        numbers, starts = np.unique(part[order], return_index=True)
        for number, piece in zip(numbers.tolist(), np.split(codes[order], starts[1:])):
            self.files[number].write(piece.tobytes())

    def read(self) -> Iterator[tuple[Ints, Ints]]:
        """Left and right, sorted by (left, right), in chunks of at most `CHUNK`."""
        for file in self.files:
            file.seek(0)
            codes = np.unique(np.frombuffer(file.read(), np.uint64))
            for at in range(0, len(codes), CHUNK):
                chunk = codes[at : at + CHUNK]
                left, right = chunk >> np.uint64(32), chunk & np.uint64(0xFFFFFFFF)
                yield left.astype(np.int64), right.astype(np.int64)


@contextmanager
def gathering(n: int) -> Iterator[Gathered]:
    """A place for pairs of ``n`` items, at most `MOST_ITEMS`; what is too much for memory lies in files without a name.

    Raises:
        OSError: the disk of temporary files is full.
    """
    assert n <= MOST_ITEMS
    bits = max(_RANGE_BITS, n.bit_length() - _MOST_RANGES_BITS)
    with ExitStack() as stack:
        files = [tempfile.SpooledTemporaryFile(_IN_MEMORY) for _ in range((n >> bits) + 1)]  # noqa: SIM115
        yield Gathered([stack.enter_context(file) for file in files], bits)
