"""A tar as an array of its 512-byte blocks, and the arithmetic on many header fields at once.

Used by the vectorised readers, `shards.tar.bulk_walk` and `shards.tar.header_chain`; `shards.tar.header` parses one
block.
"""

from __future__ import annotations

import mmap
from typing import cast

import numpy as np
import numpy.typing as npt

from shards.arrays import BoolArray, Int64Array
from shards.tar.header import BLOCK

Blocks = npt.NDArray[np.uint8]

#: A tar's bytes in words of four, little-endian.
Words = npt.NDArray[np.uint32]

_FOUR_ZEROS, _NO_DIGITS = np.uint32(0x30303030), np.uint32(0xF8F8F8F8)
#: Make of eleven digits and an end byte twelve digits.
_ELEVEN = np.array([[0xFFFFFFFF], [0xFFFFFFFF], [0xFFFFFF]], np.uint32)
_FILLED = np.array([[0], [0], [0x30000000]], np.uint32)


def blocks_of(buffer: bytes | mmap.mmap) -> Blocks:
    """All whole blocks of a tar: shape (blocks, 512), uint8, a view without a copy."""
    return np.frombuffer(cast(bytes, buffer), np.uint8, len(buffer) // BLOCK * BLOCK).reshape(-1, BLOCK)


def words_of(blocks: Blocks) -> Words:
    """The same bytes as words of four: shape (n, 128), uint32, a view."""
    return blocks.view("<u4")


def octal_numbers(words: Words) -> tuple[Words, Words, BoolArray]:
    """Words of four ASCII octal digits, shape (k, n), uint32 -> their values, 0 to 4095, the digits, and which hold.

    Returns:
        values: shape (k, n); undefined in columns that do not hold.
        digits: shape (k, n), one a byte.
        sound: shape (n,), bool: whether all words of a column are octal digits.
    """
    digits = words - _FOUR_ZEROS
    sound = (digits & _NO_DIGITS).max(axis=0) == 0
    # Digits to pairs, pairs to fours: the first digit is the lowest byte of its word.
    pairs = (digits << 3) + (digits >> 8) & 0x3F003F
    return (pairs << 6) + (pairs >> 16) & 0xFFF, digits, sound


def octal_sizes(words: Words) -> tuple[Int64Array, BoolArray]:
    """Size fields, bytes 124 to 135 of headers -> numbers (n,), int64, and whether each is octal digits and an end byte.

    Args:
        words: shape (3, n), uint32.
    """
    end = words[2] >> 24
    quads, _, sound = octal_numbers(words & _ELEVEN | _FILLED)
    values: Int64Array = (quads[0].astype(np.int64) << 12 | quads[1]) << 9 | quads[2] >> 3
    return values, sound & ((end == 0) | (end == ord(" ")))


def concatenated_ranges(first: Int64Array, counts: Int64Array) -> Int64Array:
    """The ranges ``first[i] ... first[i] + counts[i] - 1`` for every i, concatenated: shape (sum of counts,), int64.

    >>> concatenated_ranges(np.array([5, 9]), np.array([2, 3]))
    array([ 5,  6,  9, 10, 11])
    """
    return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
