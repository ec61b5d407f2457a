"""How much of a class train, val and test get where nobody says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.packing.class_splits import default_split, split_by_class, split_by_group, split_counts


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        *[(3, [1, 1, 1]), (5, [3, 1, 1]), (10, [7, 1, 2]), (18, [12, 2, 4]), (57, [40, 6, 11])],
        *[(60, [40, 7, 13]), (99, [40, 20, 39]), (100, [40, 20, 40]), (1000, [400, 200, 400])],
    ],
)
def test_a_small_class_gives_most_to_train(count: int, parts: list[int]) -> None:
    """Of 18 images 7 were left to learn from; of 100 and more nothing changes."""
    assert split_counts(count, default_split(count), "x") == parts


@given(st.integers(3, 400))
def test_a_larger_class_gives_no_less_to_anyone(count: int) -> None:
    """No step down where one image more comes, but for the rounding of one."""
    fewer, more = (split_counts(n, default_split(n), "x") for n in (count, count + 1))
    assert all(b >= a - 1 for a, b in zip(fewer, more, strict=True))
    assert sum(default_split(count)) == pytest.approx(1)


def test_each_class_by_its_own_size() -> None:
    of = {f"few/{n}": "few" for n in range(10)} | {f"many/{n}": "many" for n in range(200)}
    parts, notes = split_by_class(of, ("few", "many"), None, 0)
    assert [sum(of[file] == "few" for file in part) for part in parts] == [7, 1, 2]
    assert [sum(of[file] == "many" for file in part) for part in parts] == [80, 40, 80]
    assert notes == (
        "test has fewer than 10 images of 1 of 2 classes (of few 2): add images, or trust a score over several seeds "
        "alone",
    )


def test_groups_are_spread_by_the_same_shares() -> None:
    """Each class by its own, in whole groups of two."""
    of = {f"few/{n}": "few" for n in range(20)} | {f"many/{n}": "many" for n in range(400)}
    groups = {file: f"{file.partition('/')[0]} {int(file.rpartition('/')[2]) // 2}" for file in of}
    parts, _ = split_by_group(groups, of, ("few", "many"), None, 0)
    counts = np.array([[sum(of[file] == name for file in part) for name in ("few", "many")] for part in parts])
    assert np.abs(counts - [[14, 160], [2, 80], [4, 160]]).max() <= 2
    assert sorted(file for part in parts for file in part) == sorted(of)
