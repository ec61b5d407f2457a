"""A random subset: what every other choice is to be held against."""

from __future__ import annotations

import numpy as np

from curate.selection.base import Scores, Vectors
from shards import shuffle


def random_subset(store: Vectors, target: Vectors, seed: int) -> Scores:
    """A score by the seed alone, all different; of the features only their number counts."""
    n = len(store)
    score = np.empty(n, np.float32)
    score[shuffle.permutation(seed, "random subset", 0, n)] = 1 - np.arange(n) / max(1, n)
    return Scores(score)
