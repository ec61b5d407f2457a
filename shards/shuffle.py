"""In which order an epoch reads the rows of a store: pure arithmetic on rows, keyed by (seed, epoch).

The order depends neither on workers nor on which shards hold the rows now. Reading it is `stream`'s business.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from shards.arrays import Int64Array

#: Consecutive kept rows that stay close together, so that reads are sequential runs.
BLOCK_ROWS = 1024
#: Blocks whose rows are mixed with one another.
WINDOW_BLOCKS = 16


def random_bits(seed: int, purpose: str, number: int, count: int) -> npt.NDArray[np.uint64]:
    """``count`` uniform 64-bit numbers that depend on the other arguments alone, on any machine and numpy.

    They are the raw output of a Philox generator whose key is a BLAKE2b hash of the arguments.
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}/{number}".encode(), digest_size=16).digest()
    return np.random.Philox(key=np.frombuffer(digest, dtype="<u8")).random_raw(count)


def permutation(seed: int, purpose: str, number: int, count: int) -> Int64Array:
    """A permutation of ``range(count)``, int64, by the same key as `random_bits`."""
    return np.argsort(random_bits(seed, purpose, number, count), kind="stable").astype(np.int64)


def epoch_order(rows: Int64Array, seed: int, epoch: int) -> Int64Array:
    """Permute blocks of 1,024 consecutive rows, then shuffle rows inside windows of 16 blocks.

    Up to 16,384 rows are one window, and so fully permuted.

    Args:
        rows: shape (n,), int64: the kept rows in store order.
        seed, epoch: what the order is keyed by.

    Returns:
        Shape (n,), int64: the same rows in the order in which the epoch reads them.
    """
    blocks = -(-len(rows) // BLOCK_ROWS)
    block = np.argsort(permutation(seed, "order of blocks", epoch, blocks))[np.arange(len(rows)) // BLOCK_ROWS]
    keys = random_bits(seed, "order", epoch, len(rows))
    return np.asarray(rows[np.lexsort((keys, block // WINDOW_BLOCKS))], dtype=np.int64)


def shard_order(rows: Int64Array, shards: npt.NDArray[np.integer], seed: int, epoch: int) -> Int64Array:
    """Permute shards, then shuffle rows inside each: for shards that can only be read from end to end.

    Args:
        rows: shape (n,), int64: the kept rows in store order.
        shards: shape (n,), the shard that holds each row, by number.
        seed, epoch: what the order is keyed by.

    Returns:
        Shape (n,), int64: the same rows; those of one shard stand together.
    """
    held, place = np.unique(shards, return_inverse=True)
    turn = np.argsort(permutation(seed, "order of shards", epoch, len(held)))[place]
    keys = random_bits(seed, "order", epoch, len(rows))
    return np.asarray(rows[np.lexsort((keys, turn))], dtype=np.int64)
