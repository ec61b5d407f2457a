"""The random order in which an epoch reads samples: pure functions of (rows, seed, epoch).

The order depends neither on the number of workers nor on which shard holds a row now. `shards.stream` reads in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from shards.arrays import Int64Array

#: Rows of a block: these stay close together, so that reads are sequential.
BLOCK_ROWS = 1024
#: Blocks that are shuffled together.
WINDOW_BLOCKS = 16


def random_bits(seed: int, purpose: str, number: int, count: int) -> npt.NDArray[np.uint64]:
    """``count`` uniform random numbers, shape (count,), uint64: a pure function of the arguments, on any machine.

    The raw output of a Philox generator whose key is the BLAKE2b hash of seed, purpose and number.
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}/{number}".encode(), digest_size=16).digest()
    return np.random.Philox(key=np.frombuffer(digest, dtype="<u8")).random_raw(count)


def permutation(seed: int, purpose: str, number: int, count: int) -> Int64Array:
    """A random permutation of ``range(count)``: shape (count,), int64; keyed as `random_bits` is."""
    return np.argsort(random_bits(seed, purpose, number, count), kind="stable").astype(np.int64)


def epoch_order(rows: Int64Array, seed: int, epoch: int) -> Int64Array:
    """Block shuffle: permute blocks of 1,024 consecutive rows, then shuffle the rows of every 16 blocks together.

    Up to 16,384 rows are therefore shuffled fully; reads of larger stores stay nearly sequential.

    Args:
        rows: shape (n,), int64: the rows to read, in store order.
        seed, epoch: key of the order.

    Returns:
        Shape (n,), int64: the same rows in reading order.
    """
    blocks = -(-len(rows) // BLOCK_ROWS)
    block = np.argsort(permutation(seed, "order of blocks", epoch, blocks))[np.arange(len(rows)) // BLOCK_ROWS]
    keys = random_bits(seed, "order", epoch, len(rows))
    return np.asarray(rows[np.lexsort((keys, block // WINDOW_BLOCKS))], dtype=np.int64)


def windowed_order(count: int, seed: int, epoch: int, start: int = 0) -> Iterator[tuple[int, Int64Array]]:
    """A block shuffle of ``range(count)`` as `epoch_order` makes it, a window of 16 blocks at a time.

    Each window has a key of its own, so that no more than one is in memory, and an order is entered in its middle at
    once.

    Args:
        count: how many places are ordered.
        seed, epoch: key of the order.
        start: windows that end at or before this position of the order are not made.

    Yields:
        The position of a window's first place in the order, and its places, int64.
    """
    blocks, first = permutation(seed, "windowed order of blocks", epoch, -(-count // BLOCK_ROWS)), 0
    for number, at in enumerate(range(0, len(blocks), WINDOW_BLOCKS)):
        begins = blocks[at : at + WINDOW_BLOCKS] * BLOCK_ROWS
        places = (begins[:, None] + np.arange(BLOCK_ROWS)).ravel()
        places = places[places < count]
        if first + len(places) > start:
            turn = permutation(seed, f"windowed order, window {number}", epoch, len(places))
            yield first, places[turn]
        first += len(places)


def shard_order(rows: Int64Array, shards: npt.NDArray[np.integer], seed: int, epoch: int) -> Int64Array:
    """Permute the shards, then shuffle the rows of each: for shards that can only be read sequentially.

    Args:
        rows: shape (n,), int64: the rows to read, in store order.
        shards: shape (n,): the number of the shard that holds each row.
        seed, epoch: key of the order.

    Returns:
        Shape (n,), int64: the same rows in reading order, those of one shard together.
    """
    distinct, position = np.unique(shards, return_inverse=True)
    rank = np.argsort(permutation(seed, "order of shards", epoch, len(distinct)))[position]
    keys = random_bits(seed, "order", epoch, len(rows))
    return np.asarray(rows[np.lexsort((keys, rank))], dtype=np.int64)
