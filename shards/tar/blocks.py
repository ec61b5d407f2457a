"""A tar as an array of its 512-byte blocks, and the arithmetic on many header fields at once.

Used by the vectorised readers, `shards.tar.bulk_walk` and `shards.tar.header_chain`; `shards.tar.header` parses one
block.
"""

from __future__ import annotations

import mmap
from typing import cast

import numpy as np
import numpy.typing as npt

from shards.arrays import Int64Array
from shards.tar.header import BLOCK

Blocks = npt.NDArray[np.uint8]

_POWERS = 8 ** np.arange(10, -1, -1, dtype=np.int64)


def blocks_of(buffer: bytes | mmap.mmap) -> Blocks:
    """All whole blocks of a tar: shape (blocks, 512), uint8, a view without a copy."""
    return np.frombuffer(cast(bytes, buffer), np.uint8, len(buffer) // BLOCK * BLOCK).reshape(-1, BLOCK)


def digit_values(fields: Blocks) -> Blocks:
    """ASCII digits, shape (n, k) -> values, shape (k, n), uint8; what is no octal digit becomes a number above 7."""
    # One row for each place: numpy is fast along rows. Below "0" it wraps around.
    return np.subtract(fields.T, np.uint8(ord("0")), order="C")


def octal_numbers(digits: Blocks) -> Int64Array:
    """Digit values, shape (k, n), k <= 11, highest first -> (n,), int64; undefined where a digit is above 7."""
    values: Int64Array = _POWERS[-len(digits) :] @ digits.astype(np.int64)
    return values


def concatenated_ranges(first: Int64Array, counts: Int64Array) -> Int64Array:
    """The ranges ``first[i] ... first[i] + counts[i] - 1`` for every i, concatenated: shape (sum of counts,), int64.

    >>> concatenated_ranges(np.array([5, 9]), np.array([2, 3]))
    array([ 5,  6,  9, 10, 11])
    """
    return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
