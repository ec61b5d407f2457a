"""Paired differences over seeds and test images: the interval, its coverage, and the words that follow from it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from curate.errors import CurateError
from curate.stats.paired import Estimate, difference, estimate, words


def test_one_image_of_264_tells_nothing():
    """Three seeds that agree to the last image, but one: rounded, and over seeds alone, this was "better"."""
    theirs = np.ones((3, 264))
    theirs[:, 17] = 0
    found = difference(np.ones((3, 264)), theirs)
    assert found.mean == pytest.approx(100 / 264)
    assert words(found) == "not told apart"


@pytest.mark.parametrize(("gained", "lost", "said"), [(9, 1, "better"), (6, 4, "not told apart"), (1, 9, "worse")])
def test_one_seed_is_mcnemars_table(gained, lost, said):
    """Of 200 images, by the variance of a difference of proportions: (b + c - (b - c)^2 / n) / (n (n - 1))."""
    ours, theirs = np.zeros(200), np.zeros(200)
    ours[:gained], theirs[gained : gained + lost] = 1, 1
    found = difference([ours], [theirs])
    deviation = ((gained + lost - (gained - lost) ** 2 / 200) / (200 * 199)) ** 0.5
    assert found.half_width == pytest.approx(100 * stats.t.ppf(0.975, 199) * deviation)
    assert words(found) == said
    exact = stats.binomtest(gained, gained + lost).pvalue
    assert (exact < 0.05) == (said != "not told apart")


def test_images_that_agree_leave_students_interval_over_seeds():
    """Every image gains the same from a seed: scipy's t-interval of the seeds' means."""
    seeds = np.array([0.1, 0.25, 0.4])
    found = estimate(np.repeat(seeds[:, None], 50, axis=1))
    low, high = stats.t.interval(0.95, 2, loc=25, scale=100 * stats.sem(seeds))
    assert (found.mean, found.half_width) == pytest.approx(((low + high) / 2, (high - low) / 2))


@pytest.mark.parametrize("spread", [(0.0, 0.0), (3.0, 0.0), (0.0, 20.0), (3.0, 20.0)])
def test_the_interval_covers_what_it_says(spread):
    """4 seeds by 60 images, effects of seeds, images and noise of 30: 95 % of 400 intervals hold the true mean, within
    four standard errors (1.1 %) below; never too few."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        values = rng.normal(0, spread[0], (4, 1)) + rng.normal(0, spread[1], (1, 60)) + rng.normal(0, 30, (4, 60))
        found = estimate((values + 5) / 100)
        held += abs(found.mean - 5) <= found.half_width
    assert held / 400 > 0.95 - 0.044


def test_a_bootstrap_over_seeds_and_images_has_the_same_width():
    """Of many seeds, where a bootstrap is right: resampled 2,000 times over both, within 15 %."""
    rng = np.random.default_rng(1)
    values = 5 + rng.normal(0, 4, (40, 1)) + rng.normal(0, 20, (1, 300)) + rng.normal(0, 30, (40, 300))
    means = [values[rng.integers(40, size=40)][:, rng.integers(300, size=300)].mean() for _ in range(2000)]
    low, high = np.percentile(means, [2.5, 97.5])
    assert estimate(values / 100).half_width == pytest.approx((high - low) / 2, rel=0.15)


def test_a_single_value_has_no_interval():
    """And tells nothing."""
    found = estimate([[1.0]])
    assert found == Estimate(100.0, None, 1, 1)
    assert words(found) == "not told apart"


def test_scores_of_other_images_are_refused():
    """One line, with both shapes."""
    with pytest.raises(CurateError, match=r"difference: \(1, 3\) scores against \(1, 2\)"):
        difference([[1, 0, 1]], [[1, 0]])
    with pytest.raises(CurateError, match="interval: expected a row of images for each seed"):
        estimate([])
