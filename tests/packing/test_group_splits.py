"""Splits that keep groups whole: no group on two sides, classes spread as far as groups allow, by the seed alone."""

from __future__ import annotations

import warnings
from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from shards.packing.group_splits import missing_classes, split_groups

SHARES = (0.4, 0.4, 0.2)
#: A row: its class, and its group or None. Groups of one class and of several both come.
layouts = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 12).map(str)), max_size=120)
shares = st.sampled_from([SHARES, (0.6, 0.4, 0.0), (0.0, 1.0, 0.0), (0.7, 0.15, 0.1, 0.05)])


def arrays(layout: list[tuple[int, str | None]]) -> tuple[np.ndarray, list[str | None]]:
    return np.array([label for label, _ in layout], np.int64), [group for _, group in layout]


@given(layouts, shares, st.integers(0, 5))
def test_no_group_stands_on_two_sides(
    layout: list[tuple[int, str | None]], shares: tuple[float, ...], seed: int
) -> None:
    labels, groups = arrays(layout)
    sides = split_groups(labels, groups, shares, seed)
    assert sides.shape == labels.shape
    assert all(shares[side] > 0 for side in sides)
    where = defaultdict(set)
    for group, side in zip(groups, sides, strict=True):
        where[group].add(side)
    assert all(len(found) == 1 for group, found in where.items() if group is not None)


@given(layouts, st.integers(0, 5))
def test_a_class_stands_on_as_many_sides_as_its_groups_reach(layout: list[tuple[int, str | None]], seed: int) -> None:
    """Groups of one class each: three fill all sides, two the first two, one the first."""
    own = [(label, None if group is None else f"{label} {group}") for label, group in layout]
    labels, groups = arrays(own)
    sides = split_groups(labels, groups, SHARES, seed)
    for label in set(labels.tolist()):
        mine = [place for place, row in enumerate(own) if row[0] == label]
        n_groups = len({groups[place] or place for place in mine})
        assert set(sides[mine].tolist()) == set(range(min(3, n_groups)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=300), st.integers(0, 5))
def test_shares_of_a_class_are_kept_to_within_its_largest_group(layout: list[tuple[int, int]], seed: int) -> None:
    own = [(label, f"{label} {group}") for label, group in layout]
    labels, groups = arrays(own)
    sides = split_groups(labels, groups, SHARES, seed)
    for label in set(labels.tolist()):
        mine = labels == label
        largest = max(groups.count(group) for group in set(groups) if group.startswith(f"{label} "))
        for side, share in enumerate(SHARES):
            assert abs((sides[mine] == side).sum() - share * mine.sum()) <= 2 * largest


def test_images_alone_are_spread_as_evenly_as_without_groups() -> None:
    labels = np.repeat([0, 1], [100, 50])
    sides = split_groups(labels, [None] * 150, SHARES, 0)
    assert np.bincount(sides[labels == 0]).tolist() == [40, 40, 20]
    assert np.bincount(sides[labels == 1]).tolist() == [20, 20, 10]
    order = [side for side, _ in zip(sides, range(100))]
    assert order != sorted(order)  # at random, not by place


def test_the_split_is_the_seeds_and_not_that_of_the_rows_order() -> None:
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 4, 200), [str(group) for group in rng.integers(0, 40, 200)]
    sides = split_groups(labels, groups, SHARES, 7)
    turn = rng.permutation(200)
    assert (split_groups(labels[turn], [groups[place] for place in turn], SHARES, 7) == sides[turn]).all()
    assert (split_groups(labels, groups, SHARES, 8) != sides).any()


def test_a_side_that_is_not_needed_gives_its_groups_to_those_that_are() -> None:
    """Two groups a class, and the second side only takes what is left."""
    labels, groups = np.array([0, 0, 1, 1]), ["a", "b", "c", "d"]
    sides = split_groups(labels, groups, (0.1, 0.8, 0.1), 0, needed=1)
    assert not len(missing_classes(labels, sides, 0))


def test_one_writer_who_wrote_all_classes_is_not_torn() -> None:
    """Writers hold every class: whole writers move, and every side has every class."""
    labels = np.tile(np.arange(10), 6)
    groups = [str(writer) for writer in np.repeat(np.arange(6), 10)]
    sides = split_groups(labels, groups, (0.5, 0.3, 0.2), 0)
    assert np.bincount(sides).tolist() == [30, 20, 10]
    assert all(not len(missing_classes(labels, sides, side)) for side in range(3))


def test_fewer_classes_are_missing_than_with_equal_folds() -> None:
    """Few groups a class, as tracks of traffic signs: what scikit-learn's folds lose of train is held here."""
    rng = np.random.default_rng(1)
    n_groups = rng.integers(1, 6, 30)
    groups = [f"{label} {group}" for label, count in enumerate(n_groups) for group in range(count) for _ in range(4)]
    labels = np.array([int(group.split()[0]) for group in groups])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folds = list(StratifiedGroupKFold(5, shuffle=True, random_state=0).split(labels, labels, groups))
    theirs = np.setdiff1d(labels, labels[np.concatenate([fold for _, fold in folds[:2]])])
    assert len(theirs) > 0
    assert not len(missing_classes(labels, split_groups(labels, groups, SHARES, 0), 0))
