"""The judgement: masses against an independent computation, each rule at, above and below its threshold."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import CurateError, Misuse
from curate.ledger.pruner import (
    ROUNDING,
    below,
    budget_in_words,
    check_budget,
    decodable,
    grid,
    keep,
    keep_share,
    mass_below,
    rule_in_words,
    within,
)
from curate.types import Beliefs


def beta_beliefs(a: Any, b: Any, visits: Any = None, error: Any = None) -> Beliefs:
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    return Beliefs(
        rows=np.arange(len(a)),
        mean=(a / (a + b)).astype(np.float32),
        visits=np.asarray(np.ones(len(a)) if visits is None else visits, np.int32),
        error=np.asarray(np.zeros(len(a)) if error is None else error, np.uint8),
        a=a,
        b=b,
    )


def point_beliefs(mean: Any, visits: Any = None) -> Beliefs:
    mean = np.asarray(mean, np.float32)
    visits = np.asarray(np.ones(len(mean)) if visits is None else visits, np.int32)
    return Beliefs(np.arange(len(mean)), mean, visits, np.zeros(len(mean), np.uint8))


def by_continued_fraction(a: float, b: float, x: float) -> float:
    """I_x(a, b) with 40 digits: Lentz's evaluation of the classical continued fraction (DLMF 8.17.22)."""
    with mpmath.workdps(40):
        p, q, y = mpmath.mpf(a), mpmath.mpf(b), mpmath.mpf(x)
        if y > (p + 1) / (p + q + 2):  # the fraction converges fast on the other side of the mean
            return float(1 - _fraction(q, p, 1 - y))
        return float(_fraction(p, q, y))


def _fraction(p: Any, q: Any, y: Any) -> Any:
    log_front = p * mpmath.log(y) + q * mpmath.log(1 - y) - mpmath.log(p)
    log_front += mpmath.loggamma(p + q) - mpmath.loggamma(p) - mpmath.loggamma(q)
    c, d = mpmath.mpf(1), 1 / (1 - (p + q) * y / (p + 1))
    value = d
    for m in itertools.count(1):
        for numerator in (
            m * (q - m) * y / ((p + 2 * m - 1) * (p + 2 * m)),
            -(p + m) * (p + q + m) * y / ((p + 2 * m) * (p + 2 * m + 1)),
        ):
            d = 1 / (1 + numerator * d)
            c = 1 + numerator / c
            step = c * d
            value *= step
        if abs(step - 1) < mpmath.mpf(10) ** -25:
            return mpmath.exp(log_front) * value


class TestMassBelow:
    CORNERS = (-15.0, -5.0, 0.0, 7.0, 15.0)

    @pytest.mark.parametrize("cut", [0.1, 0.25, 0.5, 0.9])
    def test_it_equals_a_continued_fraction_to_1e_12_corners_included(self, cut: float) -> None:
        pairs = np.exp(np.array(list(itertools.product(self.CORNERS, self.CORNERS))))
        expected = [by_continued_fraction(a, b, cut) for a, b in pairs]
        np.testing.assert_allclose(mass_below(pairs[:, 0], pairs[:, 1], cut), expected, rtol=0, atol=1e-12)

    def test_it_equals_mpmath_where_its_series_converges(self) -> None:
        pairs = np.exp(np.array(list(itertools.product((-15.0, -3.0, 0.7, 4.0), (-15.0, -3.0, 0.7, 4.0)))))
        with mpmath.workdps(40):
            expected = [float(mpmath.betainc(a, b, 0, 0.25, regularized=True)) for a, b in pairs]
        np.testing.assert_allclose(mass_below(pairs[:, 0], pairs[:, 1], 0.25), expected, rtol=0, atol=1e-12)

    @settings(max_examples=40, deadline=None)
    @given(st.floats(-15, 15), st.floats(-15, 15), st.floats(0.01, 0.99))
    def test_anywhere_in_the_range_it_equals_the_continued_fraction(self, log_a: float, log_b: float, cut: float):
        a, b = np.exp([log_a]), np.exp([log_b])
        assert mass_below(a, b, cut)[0] == pytest.approx(by_continued_fraction(a[0], b[0], cut), abs=1e-12)

    def test_over_the_whole_range_it_is_a_probability_and_rises_with_b(self) -> None:
        values = np.exp(np.linspace(-15, 15, 61))
        a, b = np.meshgrid(values, values)
        mass = mass_below(a.ravel(), b.ravel(), 0.25).reshape(a.shape)
        assert np.isfinite(mass).all()
        assert mass.min() >= 0
        assert mass.max() <= 1
        assert (np.diff(mass, axis=0) >= -1e-15).all()  # more mass low with a larger b
        assert (np.diff(mass, axis=1) <= 1e-15).all()  # and less with a larger a

    def test_uniform_and_triangular_beliefs_have_their_hand_computed_mass(self) -> None:
        # Beta(1, 1): the cut itself. Beta(2, 1): density 2w, so cut squared. Beta(1, 2): 1 - (1 - cut)^2.
        mass = mass_below(np.array([1.0, 2.0, 1.0]), np.array([1.0, 1.0, 2.0]), 0.25)
        np.testing.assert_allclose(mass, [0.25, 0.0625, 0.4375], rtol=1e-15)

    def test_float32_parameters_are_widened_before_anything_is_computed(self) -> None:
        a, b = np.array([0.1, 900.7], np.float32), np.array([0.3, 800.2], np.float32)
        mass = mass_below(a, b, 0.5)
        assert mass.dtype == np.float64
        np.testing.assert_array_equal(mass, mass_below(a.astype(np.float64), b.astype(np.float64), 0.5))

    def test_at_the_ends_of_the_unit_interval_there_is_nothing_or_everything(self) -> None:
        a, b = np.exp([-15.0, 15.0, 0.0]), np.exp([-15.0, -15.0, 3.0])
        assert mass_below(a, b, 0.0).tolist() == [0, 0, 0]
        assert mass_below(a, b, 1.0).tolist() == [1, 1, 1]

    @pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
    def test_a_parameter_that_is_no_positive_number_is_named(self, bad: float) -> None:
        with pytest.raises(CurateError, match=r"^belief 1: expected positive a and b, found a = 2, b = "):
            mass_below(np.array([1.0, 2.0]), np.array([1.0, bad]), 0.5)

    @pytest.mark.parametrize("cut", [-0.1, 1.1, np.nan])
    def test_a_cut_that_is_no_weight_is_refused(self, cut: float) -> None:
        with pytest.raises(Misuse, match=r"^lambda .*: expected a number from 0 to 1$"):
            mass_below(np.ones(1), np.ones(1), cut)


class TestKeep:
    @pytest.mark.parametrize(
        ("a", "b", "lam", "rho", "kept"),
        [
            (1, 1, 0.25, 0.5, True),  # the fresh belief: a quarter of its mass lies below
            (1, 1, 0.5, 0.5, True),  # exactly on the boundary: a tie is kept
            (1, 1, 0.5, 0.499, False),
            (1, 2, 0.25, 0.4375, True),  # 1 - .75^2 = .4375, a tie again
            (1, 2, 0.25, 0.4374, False),
            (2, 1, 0.25, 0.06, False),  # .25^2 = .0625
            (2, 1, 0.25, 0.07, True),
            (9, 1, 0.25, 0.5, True),  # a good one
            (1, 9, 0.25, 0.5, False),  # a bad one: the rule's sign, were it turned, fails here
        ],
    )
    def test_pruned_exactly_when_more_than_rho_lies_below_lambda(self, a, b, lam, rho, kept) -> None:
        assert keep(beta_beliefs([a], [b]), lam, rho).tolist() == [kept]

    def test_a_symmetric_belief_is_a_tie_at_one_half_whatever_its_width(self) -> None:
        a = np.exp(np.linspace(-15, 15, 3001)).astype(np.float32)
        assert (mass_below(a, a, 0.5) > 0.5).any()  # rounding of 4e-15, which must not decide
        assert keep(beta_beliefs(a, a), 0.5, 0.5).all()

    def test_the_tolerance_for_a_tie_is_no_wider_than_the_masses_are_exact(self) -> None:
        one = beta_beliefs([1], [1])
        assert keep(one, 0.25, 0.25 - 0.9 * ROUNDING).tolist() == [True]
        assert keep(one, 0.25, 0.25 - 2 * ROUNDING).tolist() == [False]

    @pytest.mark.parametrize(
        ("weight", "lam", "kept"),
        [(0.0, 0.0, False), (1e-30, 0.0, True), (0.1, 0.1, False), (0.25, 0.25, False), (0.2500001, 0.25, True)],
    )
    def test_a_point_weight_at_the_cut_is_pruned_as_float32_stores_it(self, weight, lam, kept) -> None:
        assert keep(point_beliefs([weight]), lam, 0.5).tolist() == [kept]
        assert keep(point_beliefs([weight]), lam, 0.0).tolist() == [kept]  # rho has no part

    def test_what_was_never_visited_is_not_judged(self) -> None:
        assert keep(beta_beliefs([1, 1], [9, 9], visits=[0, 1]), 0.25, 0.5).tolist() == [True, False]
        assert keep(point_beliefs([0, 0], visits=[0, 1]), 0.0, 0.5).tolist() == [True, False]

    def test_what_does_not_decode_is_left_to_the_policy(self) -> None:
        beliefs = beta_beliefs([9, 9, 1], [1, 1, 9], visits=[0, 1, 1], error=[18, 0, 0])
        assert decodable(beliefs).tolist() == [False, True, True]
        assert keep(beliefs, 0.25, 0.5).tolist() == [False, True, False]

    def test_an_empty_record_gives_an_empty_mask(self) -> None:
        assert keep(beta_beliefs([], []), 0.25, 0.5).shape == (0,)

    def test_rho_out_of_range_is_refused(self) -> None:
        with pytest.raises(Misuse, match=r"^rho 1\.5: expected a number from 0 to 1$"):
            keep(beta_beliefs([1], [1]), 0.25, 1.5)

    @settings(max_examples=50, deadline=None)
    @given(
        st.lists(st.tuples(st.floats(-15, 15), st.floats(-15, 15)), min_size=1, max_size=20),
        st.floats(0, 1),
        st.floats(0, 1),
        st.floats(0, 1),
    )
    def test_more_goes_with_a_larger_lambda_and_less_with_a_larger_rho(self, logs, lam, low, high) -> None:
        low, high = sorted((low, high))
        beliefs = beta_beliefs(*np.exp(np.array(logs)).T)
        assert (keep(beliefs, high, lam) <= keep(beliefs, low, lam)).all()
        assert (keep(beliefs, lam, low) <= keep(beliefs, lam, high)).all()


class TestKeepShare:
    def test_exactly_the_rounded_share_of_the_decodable_stays_the_best_first(self) -> None:
        beliefs = beta_beliefs([1, 2, 3, 4, 5], [1, 1, 1, 1, 1], error=[0, 0, 0, 0, 7])
        assert keep_share(beliefs, 0.5).tolist() == [False, False, True, True, False]
        assert keep_share(beliefs, 0.0).sum() == 0
        assert keep_share(beliefs, 1.0).tolist() == [True, True, True, True, False]

    def test_equals_go_by_row(self) -> None:
        assert keep_share(point_beliefs([0.5, 0.7, 0.5, 0.5]), 0.5).tolist() == [True, True, False, False]
        many = keep_share(point_beliefs(np.tile([0.5, 0.25], 5000)), 0.25)  # long enough for an unstable sort to show
        assert np.flatnonzero(many).tolist() == list(range(0, 5000, 2))

    def test_by_its_lower_end_a_sure_belief_beats_an_unsure_one_with_a_larger_mean(self) -> None:
        # Beta(3, 1): mean .75, lower end .1^(1/3) = .46. Beta(70, 30): mean .70, and above .6 but for a few per mille.
        beliefs = beta_beliefs([3, 70], [1, 30])
        assert keep_share(beliefs, 0.5, "mean").tolist() == [True, False]
        assert keep_share(beliefs, 0.5, "lower").tolist() == [False, True]

    def test_the_lower_end_is_that_of_a_over_b(self) -> None:
        assert keep_share(beta_beliefs([1, 9], [9, 1]), 0.5, "lower").tolist() == [False, True]

    def test_the_lower_end_is_a_number_over_the_whole_range(self) -> None:
        values = np.exp(np.linspace(-15, 15, 31))
        a, b = (grid_values.ravel() for grid_values in np.meshgrid(values, values))
        assert keep_share(beta_beliefs(a, b), 0.3, "lower").sum() == round(0.3 * 31 * 31)

    def test_point_weights_have_no_lower_end(self) -> None:
        with pytest.raises(Misuse, match=r"^budget by lower: a point weight has no quantile; rank this run by mean$"):
            keep_share(point_beliefs([0.5]), 0.5, "lower")

    def test_an_unknown_order_and_a_share_out_of_range_are_refused(self) -> None:
        with pytest.raises(Misuse, match=r"^budget by 'upper': expected mean or lower$"):
            keep_share(point_beliefs([0.5]), 0.5, "upper")  # type: ignore[arg-type]
        with pytest.raises(Misuse, match=r"^share 2: expected a number from 0 to 1$"):
            keep_share(point_beliefs([0.5]), 2)

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), max_size=30), st.floats(0, 1))
    def test_no_example_left_out_is_better_than_one_kept(self, examples, share) -> None:
        means = np.array([mean for mean, _ in examples], np.float32)
        broken = np.array([flag for _, flag in examples], np.uint8)
        beliefs = Beliefs(np.arange(len(means)), means, np.zeros(len(means), np.int32), broken)
        kept = keep_share(beliefs, share)
        left = decodable(beliefs) & ~kept
        assert kept.sum() == round(share * decodable(beliefs).sum())
        if kept.any() and left.any():
            assert means[kept].min() >= means[left].max()


class TestGrid:
    def test_every_cell_is_what_keep_keeps_of_the_decodable(self) -> None:
        rng = np.random.default_rng(0)
        a, b = np.exp(rng.uniform(-5, 7, (2, 200)))
        beliefs = beta_beliefs(a, b, visits=rng.integers(0, 2, 200), error=18 * rng.integers(0, 2, 200))
        lams, rhos = [0.1, 0.25, 0.5], [0.0, 0.5, 0.9]
        expected = [[keep(beliefs, lam, rho).sum() / decodable(beliefs).sum() for rho in rhos] for lam in lams]
        np.testing.assert_allclose(grid(beliefs, lams, rhos), expected, rtol=1e-12)

    def test_point_weights_have_one_share_a_cut(self) -> None:
        assert grid(point_beliefs([0, 0.2, 0.4, 0.6]), [0.0, 0.4], [0.1, 0.9]).tolist() == [[0.75] * 2, [0.25] * 2]

    def test_without_a_decodable_example_there_is_no_share(self) -> None:
        with pytest.raises(CurateError, match=r"^share kept: none of 1 examples decodes; look at the ledger's column"):
            grid(beta_beliefs([1], [1], error=[18]), [0.5], [0.5])


def test_the_ledgers_column_is_the_mass_in_float32_and_missing_for_point_weights() -> None:
    column = below(beta_beliefs([2, 1], [1, 2]), 0.25)
    assert column is not None
    assert column.dtype == np.float32
    assert column.tolist() == [0.0625, 0.4375]  # exact in binary
    assert below(point_beliefs([0.5]), 0.25) is None


def test_the_rules_are_told_in_words_with_their_numbers() -> None:
    assert rule_in_words(beta_beliefs([1], [1]), 0.25, 0.5) == "prune when CDF(0.25; a, b) > 0.5"
    assert rule_in_words(point_beliefs([1]), 0.0, 0.5) == "prune when w <= 0.0"
    assert budget_in_words(0.3, "mean") == "keep the share 0.3 of the decodable with the largest mean"
    assert budget_in_words(0.3, "lower").endswith("with the largest quantile 0.1 of Beta(a, b)")


@pytest.mark.parametrize("given", ["20%", None])
def test_what_is_no_number_is_a_misuse(given: Any) -> None:
    """From Python, where nothing has read it as one."""
    with pytest.raises(Misuse, match=r"^--keep .*: expected a number, such as 0\.2 for 20 %$"):
        check_budget(given)
    with pytest.raises(Misuse, match=r"^--lam .*: expected a number"):
        within(given, "--lam")
