"""Nearest neighbours over features: an image counts by its distance to the nearest image of the target."""

from __future__ import annotations

import numpy as np

from curate.selection.base import Scores, Vectors
from curate.types import Floats

#: Images of the store that are compared in one go.
AT_ONCE = 4096


def nearest(store: Vectors, target: Vectors, seed: int) -> Scores:
    """1 / (1 + d^2 / width), d the Euclidean distance of standardised features; has no rule of its own."""
    squared = squared_distances(*standardised(store, target))
    return Scores((1 / (1 + squared / store.shape[1])).astype(np.float32))


def standardised(store: Vectors, target: Vectors) -> tuple[Floats, Floats]:
    """Both in float32, by the store's mean and deviation of each number."""
    wide = store.astype(np.float32)
    mean, deviation = wide.mean(0), wide.std(0) + 1e-6
    return (wide - mean) / deviation, (target.astype(np.float32) - mean) / deviation


def squared_distances(store: Floats, target: Floats) -> Floats:
    """Of each row of ``store`` to the nearest row of ``target``: shape (n,), float32, at least 0."""
    lengths = np.square(target).sum(1)
    parts = [store[at : at + AT_ONCE] for at in range(0, len(store), AT_ONCE)]
    found = [np.square(part).sum(1) + (lengths - 2 * part @ target.T).min(1) for part in parts]
    return np.asarray(np.maximum(np.concatenate(found), 0), np.float32)
