"""Stratified random splits of labelled rows into train and val: pure functions of labels and seed."""

from __future__ import annotations

import numpy as np

from shards.arrays import Int64Array
from shards.shuffle import permutation


def split_train_val(labels: Int64Array, size: int | None, seed: int) -> tuple[Int64Array, Int64Array]:
    """Train and val rows: disjoint, each sorted, int64.

    Every class gives as many rows as every other, as far as it has them (docs/method.md section 7); the rows of a class
    are halved, so that train and val differ by at most one, in each class and in all.

    Args:
        labels: shape (n,), int64; rows with a negative label are left out.
        size: rows of train and val together; None, or more than there are, for all.
        seed: of the choice; which rows a class gives does not depend on the other classes.

    >>> train, val = split_train_val(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 4, seed=0)
    >>> len(train), len(val), len(set(train) & set(val))
    (2, 2, 0)
    """
    classes, counts = np.unique(labels[labels >= 0], return_counts=True)
    parts: tuple[list[Int64Array], list[Int64Array]] = ([], [])
    larger = 0  # the half that gets the odd row, in turn
    for label, wanted in zip(classes.tolist(), even_shares(counts, size).tolist(), strict=True):
        rows = np.flatnonzero(labels == label)
        drawn = rows[permutation(seed, "halves of class", label, len(rows))[:wanted]]
        middle = (wanted + 1) // 2
        parts[larger].append(drawn[:middle])
        parts[1 - larger].append(drawn[middle:])
        larger = (larger + wanted) % 2
    train, val = (np.sort(np.concatenate([np.empty(0, np.int64), *part])) for part in parts)
    return train, val


def even_shares(counts: Int64Array, size: int | None) -> Int64Array:
    """How many of its ``counts`` rows each class gives, so that all give ``size`` together, as evenly as possible.

    A class with too few rows gives them all; a remainder goes to the first classes that have more.

    >>> even_shares(np.array([10, 2, 10]), 13), even_shares(np.array([3, 3]), None)
    (array([6, 2, 5]), array([3, 3]))
    """
    if size is None or size >= counts.sum():
        return counts
    level = int(np.searchsorted([np.minimum(counts, n).sum() for n in range(counts.max() + 1)], size, "right")) - 1
    shares = np.minimum(counts, level)
    more = np.flatnonzero(counts > level)[: size - shares.sum()]
    shares[more] += 1
    return shares
