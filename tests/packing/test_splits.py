"""Stratified halves: disjoint, covering, even in every class, and by the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.packing.splits import even_shares, split_train_val

labels = st.lists(st.integers(-1, 6), max_size=80).map(lambda found: np.array(found, np.int64))
sizes = st.none() | st.integers(0, 100)


@given(labels, sizes, st.integers(0, 5))
def test_halves_are_disjoint_even_and_of_the_size_asked(found: np.ndarray, size: int | None, seed: int) -> None:
    train, val = split_train_val(found, size, seed)
    n_labelled = int((found >= 0).sum())
    assert len(train) + len(val) == (n_labelled if size is None else min(size, n_labelled))
    assert not set(train) & set(val)
    assert 0 <= len(train) - len(val) <= 1
    assert (found[train] >= 0).all()
    assert (found[val] >= 0).all()
    for label in range(7):
        assert abs(int((found[train] == label).sum()) - int((found[val] == label).sum())) <= 1


@given(labels, st.integers(0, 5))
def test_without_a_size_every_labelled_row_is_in_one_half(found: np.ndarray, seed: int) -> None:
    assert sorted(np.concatenate(split_train_val(found, None, seed))) == np.flatnonzero(found >= 0).tolist()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 120))
def test_classes_give_as_evenly_as_they_can(counts: list[int], size: int) -> None:
    """No class gives more than one row above another that could still give."""
    shares = even_shares(np.array(counts), size)
    assert shares.sum() == min(size, sum(counts))
    assert (shares <= counts).all()
    if (shares < counts).any():
        assert shares.max() - shares[shares < counts].min() <= 1


def test_the_papers_sizes_are_equal_numbers_of_every_class() -> None:
    """GTSRB is uneven, and 2,150 is 43 x 50: 25 + 25 a class (docs/method.md section 7)."""
    found = np.repeat(np.arange(43), 60 + 10 * np.arange(43))
    for half in split_train_val(found, 2_150, seed=0):
        assert np.bincount(found[half]).tolist() == [25] * 43


def test_the_seed_alone_decides() -> None:
    found = np.repeat(np.arange(4), 20)
    first, again, other = (split_train_val(found, 40, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_a_classs_rows_do_not_depend_on_other_classes() -> None:
    alone, both = np.repeat(0, 20), np.repeat([0, 1], 20)
    for half, of_both in zip(split_train_val(alone, None, 3), split_train_val(both, None, 3), strict=True):
        assert half.tolist() == [row for row in of_both.tolist() if row < 20]


@pytest.mark.parametrize(("counts", "expected"), [([], ([], [])), ([1], ([0], []))])
def test_too_few_rows_leave_a_half_empty(counts: list[int], expected: tuple[list[int], list[int]]) -> None:
    train, val = split_train_val(np.repeat(np.arange(len(counts)), counts), None, 0)
    assert (train.tolist(), val.tolist()) == expected
