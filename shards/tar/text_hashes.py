"""64-bit hashes of many short texts at once, for finding those that occur twice among many without holding them all.

The same on every machine. Equal texts have equal hashes; texts of at most eight bytes have different ones where they
differ, longer ones nearly always. Nobody may rely on that last part: whoever finds two equal looks at the texts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shards.arrays import UInt8Array

Hashes = npt.NDArray[np.uint64]

_ODD, _HALF = np.uint64(0x9FB21C651E98DF25), np.uint64(32)


def hashes_of(fields: UInt8Array) -> Hashes:
    """Texts, shape (n, bytes), padded with NULs, of any width -> hashes, shape (n,); the padding does not count."""
    words = np.zeros((len(fields), -(-fields.shape[1] // 8)), "<u8")
    words.view(np.uint8)[:, : fields.shape[1]] = fields
    hashes = np.zeros(len(fields), np.uint64)
    for column in words.T:
        mixed = (hashes ^ column) * _ODD
        mixed ^= mixed >> _HALF
        np.copyto(hashes, mixed, where=column > 0)
    return hashes


def any_twice(hashes: Hashes) -> bool:
    """Whether two are equal."""
    ordered = np.sort(hashes)
    return bool((ordered[1:] == ordered[:-1]).any())
