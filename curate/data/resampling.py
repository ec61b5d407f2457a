"""How often each image appears in an epoch that is drawn by weights: systematic resampling, the least random draw."""

from __future__ import annotations

import numpy as np

from curate.types import Ints, Reals
from shards import shuffle

#: Expected counts this close to a whole number, relative to it, are that number: what floating point has left of it.
_ROUNDING = 1e-12


def systematic_counts(weights: Reals, seed: int, epoch: int) -> Ints:
    """Draw ``len(weights)`` images in proportion to their weights, each as evenly as whole numbers allow.

    With n images and weights w, image i is expected n w_i / sum(w) times; it comes floor or ceil of that often, and
    over many epochs as often as expected. Whole parts are certain. The remainders are laid end to end, in an order of
    the epoch's own, and one image is taken at each of equal steps from one random start (Kitagawa 1996; Carpenter,
    Clifford and Fearnhead 1999, "Improved particle filter for nonlinear problems").

    Args:
        weights: shape (n,), finite, none negative, not all 0.
        seed, epoch: key of the draw.

    Returns:
        Shape (n,), int64: how often each image appears; they sum to n.
    """
    expected = len(weights) * (weights / weights.sum())
    nearest = np.rint(expected)
    expected = np.where(np.abs(expected - nearest) <= _ROUNDING * np.maximum(nearest, 1), nearest, expected)
    counts: Ints = np.floor(expected).astype(np.int64)
    left = len(weights) - int(counts.sum())
    some = np.flatnonzero(expected > counts)
    if left:
        some = some[shuffle.permutation(seed, "order of resampling", epoch, len(some))]
        counts[some[_at_equal_steps((expected - counts)[some], left, seed, epoch)]] += 1
    return counts


def _at_equal_steps(parts: Reals, count: int, seed: int, epoch: int) -> Ints:
    """The places of ``count`` of ``parts``, each below 1 and together ``count``, that equal steps fall on."""
    ends = np.cumsum(parts)
    start = float(shuffle.random_bits(seed, "resampling", epoch, 1)[0] >> np.uint64(11)) * 2.0**-53
    places = np.searchsorted(ends, (np.arange(count) + start) * (ends[-1] / count), side="right")
    # No part is as long as a step, so that each is taken once, but for rounding: a second time goes to the next one.
    steps = np.arange(count)
    places = np.maximum.accumulate(places - steps) + steps
    return np.asarray(np.minimum(places, len(parts) - count + steps), np.int64)
