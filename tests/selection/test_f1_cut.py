"""The F1 cut against a search over every quantile, written out from the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.selection.f1_cut import f1_cut

scores = st.lists(st.integers(0, 40).map(lambda k: k / 40), min_size=1, max_size=60)


def by_search(store, target):
    """q = .02, .04 .. .80; kept(q); pi the least kept(q) / (1 - q); the q of the best F1, the largest among equals."""
    rows = []
    for step in range(1, 41):
        q = step / 50
        threshold = np.quantile(target, q)
        rows.append((q, threshold, sum(x >= threshold for x in store)))
    pi = min(kept / (1 - q) for q, _, kept in rows)
    if pi == 0:
        return 0, 0.0, None
    q, threshold, kept = max(rows, key=lambda row: (2 * min(pi * (1 - row[0]), row[2]) / (row[2] + pi), row[0]))
    return kept, pi, min(pi * (1 - q), kept) / kept


@settings(max_examples=150, deadline=None)
@given(scores, scores)
def test_the_cut_is_the_best_of_all_quantiles(store, target):
    """Ties included: scores are of few values."""
    cut = f1_cut(np.array(store), np.array(target))
    kept, pi, purity = by_search(store, target)
    assert (cut.kept, cut.like) == (kept, pytest.approx(pi))
    assert int((np.array(store) >= cut.threshold).sum()) == kept
    if kept:
        assert cut.purity == pytest.approx(purity)


def test_a_clean_gap_keeps_exactly_what_is_alike():
    """2.5 % that score as the target does: all kept, hardly anything else, where the 10 % quantile keeps it all."""
    draws = np.random.default_rng(0)
    store = np.concatenate([draws.normal(0, 1, 7800), draws.normal(6, 1, 200)])
    cut = f1_cut(store, draws.normal(6, 1, 500))
    assert 170 <= cut.kept <= 210
    assert cut.like == pytest.approx(200, rel=0.1)
    assert cut.purity > 0.9


def test_a_store_without_anything_alike_keeps_nothing():
    """pi is 0 as soon as one quantile finds nothing."""
    assert f1_cut(np.zeros(100), np.ones(10)).kept == 0
