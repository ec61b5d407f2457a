"""Groups hold what is within the distance of their representative, whatever the order in which pairs come."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.duplicates import sorted_pairs
from curate.duplicates.groups import distinct, group
from curate.duplicates.sorted_pairs import Pairs, gathering


def pairs_of(edges: dict[tuple[int, int], float], dtype: type = np.uint8) -> Pairs:
    """Edges as a chunk of pairs."""
    left, right = np.array([*edges] or np.empty((0, 2)), np.int64).T
    return Pairs(left, right, np.array([*edges.values()], dtype))


def by_hand(n: int, edges: dict[tuple[int, int], float], order: list[int], within: float) -> list[int]:
    """The rule in words: the most preferred item that nobody covers covers all its neighbours that nobody covers."""
    of = [-1] * n
    for item in sorted(range(n), key=lambda item: order[item]):
        if of[item] < 0:
            near = [a + b - item for (a, b), d in edges.items() if item in (a, b) and d <= within]
            for one in [item, *(other for other in near if of[other] < 0)]:
                of[one] = item
    return of


def test_a_chain_of_small_steps_joins_no_ends() -> None:
    """0 - 1 - 2 - 3 - 4: of two neighbours one represents; 0 and 4 are never of one group."""
    chain = pairs_of({(i, i + 1): 1 for i in range(4)})
    assert group(5, [chain], np.arange(5), 1).tolist() == [0, 0, 2, 2, 4]
    assert group(5, [chain], np.array([1, 0, 2, 4, 3]), 1).tolist() == [1, 1, 1, 4, 4]


def test_no_pair_leaves_all_alone() -> None:
    """And pairs beyond the distance are none."""
    assert group(3, [], np.arange(3), 1).tolist() == [0, 1, 2]
    assert group(0, [], np.arange(0), 1).tolist() == []
    far = pairs_of({(0, 1): 0.2, (1, 2): 0.05}, np.float32)
    assert group(3, [far], np.arange(3), 0.1).tolist() == [0, 1, 1]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_groups_are_those_of_the_rule_in_words(data: st.DataObject) -> None:
    """In whatever chunks pairs come, twice or once."""
    n = data.draw(st.integers(1, 12))
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1])
    edges = data.draw(st.dictionaries(ends, st.integers(0, 4), max_size=30)) if n > 1 else {}
    order = data.draw(st.permutations(range(n)))
    several = [pairs_of({edge: d}) for edge, d in edges.items()] + [pairs_of(edges)]
    found = group(n, data.draw(st.permutations(several)), np.array(order), 2)
    assert found.tolist() == by_hand(n, edges, order, 2)


def test_pairs_come_back_sorted_from_many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, though it was added twice; in chunks of the size that was said."""
    monkeypatch.setattr(sorted_pairs, "_RANGE_BITS", 3)
    monkeypatch.setattr(sorted_pairs, "_IN_MEMORY", 16)
    monkeypatch.setattr(sorted_pairs, "CHUNK", 7)
    rng = np.random.default_rng(0)
    left = rng.integers(0, 50, 300)
    right = left + 1 + rng.integers(0, 50, 300)
    with gathering(101) as gathered:
        for at in range(0, 300, 40):
            gathered.add(left[at : at + 40], right[at : at + 40])
        assert len(gathered.files) == 13
        chunks = list(gathered.read())
    assert max(len(a) for a, _ in chunks) <= 7
    assert [(int(a), int(b)) for one, other in chunks for a, b in zip(one, other)] == sorted({*zip(left, right)})


def test_one_item_of_each_kind_is_the_preferred_one() -> None:
    """Kinds are told by all values together."""
    a, b = np.array([5, 5, 7, 5, 5]), np.array([b"x", b"x", b"x", b"y", b"x"])
    first, inverse = distinct(a, b, order=np.array([3, 1, 0, 2, 4]))
    assert sorted(first.tolist()) == [1, 2, 3]
    assert first[inverse].tolist() == [1, 1, 2, 3, 1]
