"""Systematic resampling: floor or ceil of what is expected, exactly; in the long run, what is expected."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curate.data import resampling
from curate.data.resampling import systematic_counts

some_weights = st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(any)


@given(weights=some_weights, epoch=st.integers(0, 50))
@example(weights=[1, 1, 1], epoch=0)
@example(weights=[2, 1, 1, 0], epoch=0)
@example(weights=[3, 3, 1, 1, 1, 3], epoch=7)
def test_each_comes_floor_or_ceil_of_its_expected_count(weights: list[int], epoch: int) -> None:
    counts = systematic_counts(np.array(weights, float), 0, epoch)
    assert counts.sum() == len(weights)
    for count, weight in zip(counts.tolist(), weights):
        expected = Fraction(len(weights) * weight, sum(weights))
        assert expected.numerator // expected.denominator <= count <= -(-expected.numerator // expected.denominator)


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-300, 1e300 / 1e6])
def test_equal_weights_are_every_image_once(scale: float) -> None:
    """However a sum of many of them is rounded."""
    assert (systematic_counts(np.full(99_991, scale), 0, 3) == 1).all()


@pytest.mark.parametrize("weights", [[0.2, 0.1, 0.0], [0.2, 0.3, 0.3, 0.0]])
def test_whole_expectations_are_met_to_the_image(weights: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where floating point has them a little above, and the draw begins at its very first place."""
    monkeypatch.setattr(resampling.shuffle, "random_bits", lambda *_: np.zeros(1, np.uint64))
    monkeypatch.setattr(resampling.shuffle, "permutation", lambda seed, purpose, epoch, count: np.arange(count))
    of_one = [Fraction(str(weight)) * len(weights) / sum(Fraction(str(w)) for w in weights) for weight in weights]
    counts = systematic_counts(np.tile(weights, 10_001), 0, 1).reshape(-1, len(weights))
    for count, expected in zip(counts.T, of_one):
        if expected.denominator == 1:
            assert (count == int(expected)).all()


@given(parts=st.lists(st.floats(0.01, 0.999), min_size=1, max_size=40), data=st.data())
def test_equal_steps_take_no_part_twice(parts: list[float], data: st.DataObject) -> None:
    """Not even where they are shorter than a part, which rounding alone makes them."""
    count = data.draw(st.integers(1, len(parts)))
    places = resampling._at_equal_steps(np.array(parts), count, 0, data.draw(st.integers(0, 9)))
    assert len(places) == count
    assert (np.diff(places) > 0).all()
    assert (places >= 0).all()
    assert (places < len(parts)).all()


def test_over_many_epochs_each_comes_as_often_as_expected() -> None:
    weights = np.array([0.05, 0.3, 0.3, 0.9, 1.7, 2.75])
    counts = np.array([systematic_counts(weights, 0, epoch) for epoch in range(4000)])
    assert counts.mean(axis=0) == pytest.approx(6 * weights / weights.sum(), abs=0.03)


def test_a_draw_is_a_function_of_seed_and_epoch() -> None:
    weights = np.random.default_rng(0).random(1000)
    first = systematic_counts(weights, 0, 1)
    assert (first == systematic_counts(weights, 0, 1)).all()
    assert (first != systematic_counts(weights, 0, 2)).any()
    assert (first != systematic_counts(weights, 1, 1)).any()


def test_two_images_are_not_bound_together() -> None:
    """In one order for all epochs, two neighbours of a half each would never come both."""
    weights = np.array([0.5, 0.5, 0.5, 0.5, 1.5, 1.5, 1.5, 1.5])
    together = sum((systematic_counts(weights, 0, epoch)[:2] == 1).all() for epoch in range(200))
    assert 0 < together < 200
