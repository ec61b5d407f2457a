"""The comparison of methods: the paper's table, Demšar's worked example, and second computations of every number."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from curate.errors import CurateError, Misuse
from curate.experiments.tables import paper_numbers
from curate.stats.friedman import (
    cliques,
    compare,
    critical_difference,
    friedman,
    iman_davenport,
    rank,
    unofficial_decathlon_score,
)
from curate.stats.score_table import ScoreTable, table_of

#: Ranks of C4.5 and its variants with m, with cf, and with both, on 14 data sets (Demšar 2006, table 6, where two
#: scores that print alike were told apart by their ranks).
DEMSAR_RANKS = np.array(
    [
        *([4, 3, 2, 1], [1, 2, 3, 4], [4, 1, 2, 3], [4, 1, 3, 2], [4, 2, 3, 1], [1, 2.5, 4, 2.5], [3, 2, 4, 1]),
        *([2.5, 2.5, 4, 1], [4, 3, 2, 1], [2.5, 2.5, 2.5, 2.5], [4, 2.5, 1, 2.5], [3, 2, 4, 1], [4, 1, 2, 3]),
        [3, 1, 4, 2],
    ]
)
#: Few different values, so that ties are common.
TABLES = st.tuples(st.integers(2, 12), st.integers(2, 7)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(0, 5).map(float), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    ).map(np.array)
)


def table(values: Any) -> ScoreTable:
    array = np.asarray(values, np.float64)
    n, k = array.shape
    return ScoreTable(tuple(f"set {i}" for i in range(n)), tuple("ABCDEFGHIJKL"[:k]), array)


@pytest.mark.parametrize(
    ("scores", "ranks", "chi2", "p", "f", "f_p"),
    [
        (paper_numbers.TABLE2_LOGISTIC, (3.6, 2.8, 2.2, 1.4), 15.60, 0.00137, 9.75, 1.6e-4),
        (paper_numbers.TABLE2_FINETUNED, (2.8, 2.6, 3.3, 1.3), 13.08, 0.00447, 6.96, 1.3e-3),
    ],
)
def test_the_papers_table_gives_the_numbers_of_the_method(
    scores: Any, ranks: tuple[float, ...], chi2: float, p: float, f: float, f_p: float
) -> None:
    """The figures are those of the method's description (section 8), to the digits given there."""
    found = compare(table_of(scores))
    assert [found.ranks[name] for name in ("RotNet", "NN", "L2RW", "BDW")] == pytest.approx(ranks)
    assert (round(found.friedman.chi2, 2), round(found.friedman.p, 5)) == (chi2, p)
    assert found.iman_davenport.f is not None
    assert (round(found.iman_davenport.f, 2), float(f"{found.iman_davenport.p:.1e}")) == (f, f_p)
    assert round(found.cd, 4) == 1.4832
    significant = {(pair.first, pair.second) for pair in found.pairs if pair.significant}
    assert ("BDW", "RotNet") in significant
    assert next(iter(found.ranks)) == "BDW"


def test_the_papers_cliques() -> None:
    """By hand from ranks 1.4 2.2 2.8 3.6 and CD 1.4832: 1.4 apart is not significant, 2.2 is."""
    found = compare(table_of(paper_numbers.TABLE2_LOGISTIC))
    assert found.cliques == (("BDW", "L2RW", "NN"), ("L2RW", "NN", "RotNet"))
    assert [pair.significant for pair in found.pairs] == [False, False, True, False, False, False]


def test_the_papers_means_are_those_of_its_columns() -> None:
    """Each printed mean is that of its ten printed accuracies, to the last digit: a guard against slips in typing."""
    for scores, means in (
        (paper_numbers.TABLE2_LOGISTIC, paper_numbers.TABLE2_LOGISTIC_MEAN),
        (paper_numbers.TABLE2_FINETUNED, paper_numbers.TABLE2_FINETUNED_MEAN),
    ):
        for method, column in scores.items():
            assert tuple(column) == paper_numbers.DOMAINS
            assert np.mean(list(column.values())) == pytest.approx(means[method], abs=0.0051)
    assert set(paper_numbers.DECATHLON_BASELINE) == set(paper_numbers.DOMAINS) - {"stl10"}


def test_tables_2_and_3_of_the_paper_agree_where_they_overlap() -> None:
    """Table 3's accuracies of the fine-tuned STL-10 are also in table 2: BDW's second row, RotNet and L2RW."""
    stl10 = {row.accuracy: row.method for row in paper_numbers.TABLE3}
    for method in ("RotNet", "L2RW", "BDW"):
        assert stl10[paper_numbers.TABLE2_FINETUNED[method]["stl10"]] == method


def test_demsars_worked_example() -> None:
    """Ranks 3.143 2.000 2.893 1.964, CD 1.25 at 0.05 and 1.12 at 0.10; his chi2 9.28 leaves out the ties' correction.

    The correction divides by 1 - sum(t^3 - t) / (N (k^3 - k)): three pairs (6 each) and one four (60) tie.
    """
    found = compare(table(DEMSAR_RANKS), best="lowest")
    assert [round(found.ranks[name], 3) for name in "ABCD"] == [3.143, 2.0, 2.893, 1.964]
    assert round(found.friedman.chi2 * (1 - (3 * 6 + 60) / (14 * 60)), 2) == 9.28
    assert round(found.cd, 2) == 1.25
    assert not any(pair.significant for pair in found.pairs)
    loose = compare(table(DEMSAR_RANKS), best="lowest", alpha=0.1)
    assert round(loose.cd, 2) == 1.12
    assert {pair.first + pair.second for pair in loose.pairs if pair.significant} == {"DA", "BA"}


@pytest.mark.parametrize(
    ("alpha", "printed"),
    [
        (0.05, (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)),
        (0.10, (1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920)),
    ],
)
def test_critical_values_are_demsars(alpha: float, printed: tuple[float, ...]) -> None:
    """Table 5a of Demšar 2006, 2 to 10 methods; its last digit is one off here and there."""
    for k, q in enumerate(printed, start=2):
        assert critical_difference(14, k, alpha) / math.sqrt(k * (k + 1) / (6 * 14)) == pytest.approx(q, abs=0.0012)


@settings(deadline=None)
@given(TABLES)
def test_a_rank_counts_the_better_and_half_of_the_equals(values: Any) -> None:
    counted = [[sum(w > v for w in row) + (sum(w == v for w in row) + 1) / 2 for v in row] for row in values]
    assert rank(values).tolist() == counted
    assert rank(-values, "lowest").tolist() == counted


@settings(deadline=None)
@given(TABLES)
def test_friedman_is_scipys(values: Any) -> None:
    """scipy wants three methods, and has no value where all are tied: there chi2 is 0 and p 1."""
    found = friedman(rank(values))
    if np.ptp(values, axis=1).max() == 0:
        assert (found.chi2, found.p) == (0.0, 1.0)
    elif values.shape[1] > 2:
        expected = stats.friedmanchisquare(*values.T)
        assert (found.chi2, found.p) == pytest.approx((expected.statistic, expected.pvalue), abs=1e-9)


@settings(deadline=None)
@given(TABLES)
def test_iman_davenports_f_is_that_of_an_analysis_of_variance_of_the_ranks(values: Any) -> None:
    """Methods and data sets as factors: between-methods mean square over the residual's (Conover 1999, section 5.8)."""
    ranks = rank(values)
    n, k = ranks.shape
    between = n * np.sum((ranks.mean(axis=0) - (k + 1) / 2) ** 2)
    residual = np.sum((ranks - (k + 1) / 2) ** 2) - between
    found = iman_davenport(ranks)
    if residual < 1e-9:
        assert found.f == (None if between > 1e-9 else 0.0)
    else:
        expected = (between / (k - 1)) / (residual / ((k - 1) * (n - 1)))
        assert found.f == pytest.approx(expected, abs=1e-9)
        assert found.p == pytest.approx(stats.f.sf(expected, k - 1, (k - 1) * (n - 1)), abs=1e-9)


def test_f_is_infinite_where_all_data_sets_agree_and_its_p_is_exact() -> None:
    """3 data sets, 3 methods: two more rows like the first, of 3! = 6 each; with one tie, of 3! / 2! = 3."""
    agreed = iman_davenport(rank(np.array([[3.0, 2, 1]] * 3)))
    assert agreed.f is None
    assert agreed.p == pytest.approx(1 / 36)
    assert iman_davenport(rank(np.array([[2.0, 2, 1]] * 3))).p == pytest.approx(1 / 9)
    assert iman_davenport(rank(np.ones((3, 3)))).f == 0


@settings(max_examples=40, deadline=None)
@given(TABLES, st.sampled_from([0.01, 0.05, 0.5, 0.95]))
def test_cliques_hold_exactly_the_pairs_that_are_not_told_apart(values: Any, alpha: float) -> None:
    """No clique holds a significant pair, every other pair lies in one, and none lies in another."""
    found = compare(table(values), alpha=alpha)
    together = {frozenset(pair) for group in found.cliques for pair in combinations(group, 2)}
    assert together == {frozenset((pair.first, pair.second)) for pair in found.pairs if not pair.significant}
    assert not any(set(one) < set(other) for one, other in combinations(found.cliques, 2))
    assert not any(set(other) < set(one) for one, other in combinations(found.cliques, 2))


@settings(max_examples=40, deadline=None)
@given(TABLES, st.sampled_from([0.05, 0.3]))
def test_pairs_agree_with_their_p_and_go_from_better_to_worse(values: Any, alpha: float) -> None:
    found = compare(table(values), alpha=alpha)
    assert len(found.pairs) == math.comb(values.shape[1], 2)
    for pair in found.pairs:
        assert pair.difference == pytest.approx(found.ranks[pair.second] - found.ranks[pair.first])
        assert pair.difference >= 0
        assert pair.significant == (pair.p <= alpha)
    assert list(found.ranks.values()) == sorted(found.ranks.values())


@settings(max_examples=40, deadline=None)
@given(TABLES)
def test_names_and_order_of_methods_and_data_sets_do_not_matter(values: Any) -> None:
    one = compare(table(values))
    other = compare(ScoreTable(table(values).domains, table(values).methods[::-1], values[::-1, ::-1]))
    assert one.ranks == pytest.approx(other.ranks)
    assert one.friedman.chi2 == pytest.approx(other.friedman.chi2, abs=1e-9)


def test_a_difference_of_exactly_the_critical_one_is_significant() -> None:
    """`cliques` and the pairs draw the same line: at least CD apart is different."""
    assert cliques({"A": 1.0, "B": 2.0}, cd=1.0) == ()
    assert cliques({"A": 1.0, "B": 2.0}, cd=math.nextafter(1.0, 2)) == (("A", "B"),)


def test_small_tables_are_warned_of_and_large_ones_are_not() -> None:
    """chi2 wants more than 10 data sets and more than 5 methods (Demšar 2006, section 3.2.2)."""
    clear = np.arange(6.0) + np.where(np.arange(11)[:, None] % 2, [0, 0, 0, 0, 0, 0], [0, 1.5, 0, 0, 0, 0])
    assert compare(table(clear)).warnings == ()
    assert "10 data sets and 6 methods" in compare(table(clear[:10])).warnings[0]
    assert "11 data sets and 5 methods" in compare(table(clear[:, :5])).warnings[0]
    assert "Wilcoxon" in compare(table(clear[:, :2])).warnings[1]
    assert "read nothing into the pairs" in compare(table([[1, 2], [2, 1]])).warnings[-1]
    assert "tied on every data set" in compare(table(np.ones((11, 6)))).warnings[-1]


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (0, 0)])
def test_one_method_or_one_data_set_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(CurateError, match=f"2 methods on 2 data sets, found {shape[1]} on {shape[0]}"):
        compare(table(np.ones(shape)))


@pytest.mark.parametrize("alpha", [0.0, 1.0, math.nan])
def test_an_alpha_outside_its_range_is_refused(alpha: float) -> None:
    with pytest.raises(Misuse, match=r"alpha .*between 0 and 1"):
        compare(table([[1, 2], [2, 1]]), alpha=alpha)


@pytest.mark.parametrize("k", [2, 4, 10])
def test_the_smallest_alpha_is_exact_and_smaller_ones_are_refused(k: int) -> None:
    """Far out, the chance that any of the k (k - 1) / 2 pairs differs so much is the sum of their chances."""
    bound = stats.norm.isf(1e-10 / (k * (k - 1))) * math.sqrt(k * (k + 1) / (6 * 8))
    assert critical_difference(8, k, 1e-10) == pytest.approx(bound, rel=1e-5)
    with pytest.raises(Misuse, match="alpha 1e-17: smaller than 1e-10, where the critical difference is lost in round"):
        critical_difference(8, k, 1e-17)


def test_scores_that_would_overflow_are_refused() -> None:
    """At 1e100 all numbers are finite, beyond it the place of the score is named."""
    assert critical_difference(2, 2) == compare(table([[1e100, -1e100], [1e100, -1e100]])).cd
    for wrong in (1.1e100, -1e308):
        with pytest.raises(CurateError, match=r"a score of .*e\+(100|308), expected 1e\+100 at most"):
            table([[1.0, 2.0], [3.0, wrong]])


def test_a_table_says_where_it_is_incomplete() -> None:
    with pytest.raises(CurateError, match="set 1, B: expected a number, found nan"):
        table([[1, 2], [3, math.nan]])
    with pytest.raises(CurateError, match=r"expected shape \(1, 2\), found \(2, 2\)"):
        ScoreTable(("svhn",), ("A", "B"), np.ones((2, 2)))
    with pytest.raises(CurateError, match="method 'A' is there twice"):
        ScoreTable(("svhn",), ("A", "A"), np.ones((1, 2)))
    with pytest.raises(CurateError, match="dtd, A: no score"):
        table_of({"A": {"svhn": 1.0}, "B": {"svhn": 2.0, "dtd": 1.0}})


def test_the_decathlon_score_by_hand() -> None:
    """A perfect domain has 1000 points, the baseline 250, twice its error and worse none."""
    base = {"svhn": 95.0, "dtd": 60.0, "gtsrb": 90.0}
    assert unofficial_decathlon_score({"svhn": 100.0}, base) == 1000
    assert unofficial_decathlon_score(base, base) == pytest.approx(750)
    assert unofficial_decathlon_score({"svhn": 90.0, "dtd": 0.0}, base) == 0
    assert unofficial_decathlon_score({"gtsrb": 95.0}, base) == pytest.approx(1000 * 0.75**2)
    nine = paper_numbers.DECATHLON_BASELINE
    assert unofficial_decathlon_score(nine, nine) == pytest.approx(2250)  # the contest's baseline has 2,500 for ten


def test_the_decathlon_score_refuses_what_it_cannot_reckon() -> None:
    with pytest.raises(CurateError, match="found stl10; leave it out"):
        unofficial_decathlon_score({"stl10": 70.0}, paper_numbers.DECATHLON_BASELINE)
    with pytest.raises(CurateError, match="found nothing"):
        unofficial_decathlon_score({}, paper_numbers.DECATHLON_BASELINE)
    for wrong in (-0.1, 100.1, math.nan):
        with pytest.raises(CurateError, match=r"svhn: expected an accuracy in per cent, found "):
            unofficial_decathlon_score({"svhn": wrong}, paper_numbers.DECATHLON_BASELINE)
