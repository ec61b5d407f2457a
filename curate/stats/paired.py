"""Two ways of training, scored on the same test images with the same seeds: how much they differ, and how surely.

Both the seeds and the test images are samples, so both add to the uncertainty. The interval is that of a crossed design
of random seeds by random images, one difference in each cell, with Satterthwaite's degrees of freedom; with one seed it
is the paired interval over images alone, that of McNemar's table.

References: Satterthwaite, "An Approximate Distribution of Estimates of Variance Components", Biometrics 2, 1946;
Gallas et al., "A Framework for Random-Effects ROC Analysis", 2009 (readers by cases).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from curate.errors import CurateError

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean in per cent, unrounded, and half the width of its 95 % interval.

    Args:
        half_width: None where nothing tells it: of a single value.
        seeds, images: what it was measured over.
    """

    mean: float
    half_width: float | None
    seeds: int
    images: int

    @property
    def differs(self) -> bool:
        """Whether the 95 % interval excludes 0."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def estimate(shares: npt.ArrayLike) -> Estimate:
    """The mean of values (seeds, images) in [-1, 1], in per cent, and its interval over seeds and images.

    >>> estimate([[1, 1, 0, 1], [1, 1, 0, 1]]).mean
    75.0
    """
    values = 100 * np.asarray(shares, dtype=np.float64)
    if values.ndim != 2 or not values.size:
        raise CurateError(f"interval: expected a row of images for each seed, found {values.shape}; check the scores")
    seeds, images = values.shape
    mean = float(values.mean())
    rows, columns = values.mean(axis=1), values.mean(axis=0)
    parts = []  # of the variance: mean square, degrees of freedom, sign
    if seeds > 1:
        parts.append((images * float(rows.var(ddof=1)), seeds - 1, 1))
    if images > 1:
        parts.append((seeds * float(columns.var(ddof=1)), images - 1, 1))
    if seeds > 1 and images > 1:
        rest = values - rows[:, None] - columns + mean
        freedom = (seeds - 1) * (images - 1)
        parts.append((float((rest**2).sum()) / freedom, freedom, -1))
    return Estimate(mean, _half_width(parts, seeds * images), seeds, images)


def difference(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> Estimate:
    """`estimate` of ours less theirs, taken image by image and seed by seed.

    Args:
        ours, theirs: shape (seeds, test images), in [0, 1]: the share of draws that classify the image correctly.

    Raises:
        CurateError: they are not of the same seeds and images.
    """
    left, right = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if left.shape != right.shape:
        raise CurateError(f"difference: {left.shape} scores against {right.shape}; score both on the same images")
    return estimate(left - right)


def words(found: Estimate) -> str:
    """What follows from a difference: better, worse, or not told apart; of the interval, never of a rounded mean.

    >>> words(Estimate(1.5, 1.0, 3, 100)), words(Estimate(1.5, 2.0, 3, 100)), words(Estimate(1.5, None, 1, 1))
    ('better', 'not told apart', 'not told apart')
    """
    if not found.differs:
        return "not told apart"
    return "better" if found.mean > 0 else "worse"


def _half_width(parts: list[tuple[float, int, int]], cells: int) -> float | None:
    """Of the mean, from signed mean squares; the largest of them is the least that the variance can be."""
    if not parts:
        return None
    whole = sum(sign * square for square, _, sign in parts)
    least, freedom = max((square, float(freedom)) for square, freedom, sign in parts if sign > 0)
    if whole > least:
        freedom = whole**2 / sum(square**2 / freedom for square, freedom, _ in parts)
    return float(stats.t.ppf((1 + LEVEL) / 2, freedom) * (max(whole, least) / cells) ** 0.5)
