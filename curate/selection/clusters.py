"""Clusters of images by their features: k-means, the same for the same seed."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from curate.selection.base import Vectors
from curate.types import Counts, Floats, Ints
from shards import shuffle

#: Images that the centres are fitted on at most; and how many are put into clusters in one go.
FITTED_ON, AT_ONCE = 100_000, 8192


def clusters(values: Vectors, count: int, seed: int) -> Counts:
    """The cluster of each image: k-means over features standardised to mean 0 and deviation 1 each.

    Args:
        values: shape (m, d).
        count: of clusters, at most m.
        seed: of the images that the centres begin with.

    Returns:
        Shape (m,), int32, in [0, count); a cluster may be empty.

    Reference: Sculley, "Web-scale k-means clustering", 2010.
    """
    chosen = np.sort(shuffle.permutation(seed, "clusters", 0, len(values))[:FITTED_ON])
    mean, deviation = moments(values, chosen)
    fit = MiniBatchKMeans(count, batch_size=4096, n_init=3, max_iter=30, random_state=seed % 2**32)
    fit.fit((values[chosen] - mean) / deviation)
    parts = [values[at : at + AT_ONCE] for at in range(0, len(values), AT_ONCE)]
    return np.concatenate([fit.predict((part - mean) / deviation) for part in parts]).astype(np.int32)


def moments(values: Vectors, rows: Ints) -> tuple[Floats, Floats]:
    """Mean and deviation of each number over some rows, float32."""
    wide = values[rows].astype(np.float32)
    return wide.mean(0), wide.std(0) + np.float32(1e-6)
