"""Where a prior puts the weights: its cut on the boundary of the pruning rule, by scipy's own Beta."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit, logit

from curate.config.resolved import ResolvedBelief, ResolvedPrune
from curate.errors import Misuse
from curate.ledger import pruner
from curate.methods import beta
from curate.methods.base import MethodInputs
from curate.methods.bdw import Bdw
from curate.methods.dw import Dw, point_prior
from curate.rng import generator
from curate.types import Beliefs, Prior

CPU = torch.device("cpu")
rules = st.builds(ResolvedPrune, lam=st.floats(0.05, 0.9), rho=st.floats(0.1, 0.9))
scores = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=30)


def belief(strength=4.0):
    return ResolvedBelief(
        **{"eta": 1.0, "eta_scale": "raw", "reference": "none", "contrast": "none", "meta_average": 0.0, "warmup": 0},
        **{"prior": "classifier", "prior_strength": strength},
    )


def bdw(n, strength=4.0):
    return Bdw(MethodInputs(n, belief(strength), 0, CPU))


def cut_at(score, cut):
    """A classifier's prior: what scores at least ``cut`` is kept."""
    held = np.asarray(score, np.float32)
    return Prior(held.astype(np.float64), held >= cut, float(cut))


@given(rules, st.floats(0.1, 100))
def test_the_boundary_mean_is_where_the_rule_is_undecided(rule, strength):
    """CDF(lam; s m, s (1 - m)) = rho, by scipy.stats; a mean above is kept, one below is not."""
    m = pruner.boundary_mean(rule.lam, rule.rho, strength)
    assert stats.beta.cdf(rule.lam, strength * m, strength * (1 - m)) == pytest.approx(rule.rho, abs=1e-9)
    for shift, kept in ((0.01, True), (-0.01, False)):
        at = expit(logit(m) + shift)
        assert (stats.beta.cdf(rule.lam, strength * at, strength * (1 - at)) <= rule.rho) == kept


@given(scores, st.integers(0, 29), rules, st.sampled_from([1.0, 2.0, 4.0, 16.0, 100.0]), st.booleans())
def test_who_is_kept_is_the_cut_exactly(score, place, rule, strength, beside):
    """At the cut, one rounding of float32 below it, at 0 and at 1: in the ledger's a and b and in the state's."""
    cut = np.float32(score[place % len(score)])
    m = pruner.boundary_mean(rule.lam, rule.rho, strength)
    assume(np.exp(beta.LOWEST) / strength < 0.9 * min(m, 1 - m))
    near = [cut, *([np.nextafter(cut, np.float32(0))] if beside else [])]
    prior = cut_at([*score, *near], cut)
    method = bdw(len(prior.mean), strength)
    start = method.begin_from(prior, rule)
    assert np.array_equal(
        stats.beta.cdf(rule.lam, start.a.astype(float), start.b.astype(float)) <= rule.rho, prior.kept
    )
    method.take_up(start)
    held = method.summary(np.arange(len(prior.mean)))
    for a, b in ((start.a, start.b), (held.a, held.b)):
        beliefs = Beliefs(np.arange(len(a)), start.mean, np.ones(len(a), np.int32), np.zeros(len(a), np.uint8), a, b)
        assert np.array_equal(pruner.keep(beliefs, rule.lam, rule.rho), prior.kept)
    assert np.array_equal(method.logs.numpy(), np.log(np.stack([start.a, start.b], 1).astype(float)).astype(np.float32))
    assert (method.logs >= beta.LOWEST - 1e-5).all()
    assert (method.logs <= beta.HIGHEST + 1e-5).all()


def test_means_are_moved_along_in_log_odds():
    """m = expit(logit p - logit p_cut + logit m*), a + b the strength; Beta(1, 1) where nothing is known."""
    p, cut, rule = np.array([0.2, 0.55, 0.7, 0.95, np.nan]), 0.6, ResolvedPrune(lam=0.25, rho=0.5)
    start = bdw(5, 6.0).begin_from(Prior(p, p >= cut, cut), rule)
    m = expit(logit(p) - logit(cut) + logit(pruner.boundary_mean(0.25, 0.5, 6.0)))
    np.testing.assert_allclose(start.mean[:4], m[:4], rtol=1e-6)
    np.testing.assert_allclose((start.a + start.b)[:4], 6.0, rtol=1e-6)
    assert (start.a[4], start.b[4]) == (1, 1)


def test_given_means_and_beliefs_stand_as_they_are():
    """Without a cut nothing is moved; what lies beyond the range of log a and log b is put on its edge."""
    rule = ResolvedPrune(lam=0.25, rho=0.5)
    start = bdw(3, 4.0).begin_from(Prior(np.array([0.0, 0.5, 0.9])), rule)
    np.testing.assert_allclose(start.a, [np.exp(-5), 2, 3.6], rtol=1e-6)
    np.testing.assert_allclose(start.b, [4 - np.exp(-5), 2, 0.4], rtol=1e-6)
    a, b = np.array([0.5, 3.0, 1e9]), np.array([2.0, 1.0, 1.0])
    start = bdw(3, 4.0).begin_from(Prior(a / (a + b), a=a, b=b), rule)
    np.testing.assert_allclose(start.a, [0.5, 3, np.exp(7)], rtol=1e-6)
    np.testing.assert_allclose(start.b, b, rtol=1e-6)


def test_a_boundary_that_no_belief_reaches_is_refused():
    """Where what is to be dropped would need a log a below the range."""
    with pytest.raises(Misuse, match=r"--prior-strength 0\.1: --lam and --rho cut it at a mean of .*; give a larger"):
        bdw(1, 0.1).begin_from(cut_at([0.5], 0.5), ResolvedPrune(lam=0.9, rho=0.01))


def test_the_first_update_is_that_of_the_usual_belief():
    """log a and log b move from (a0, b0) by -eta h dw/dlog a: the draw's quantile held, by differences of scipy's."""
    prior, rule, h = cut_at([0.3, 0.6, 0.8, 0.97], 0.5), ResolvedPrune(lam=0.25, rho=0.5), [1.0, -1.0, 0.5, -2.0]
    method, rows = bdw(4), torch.arange(4)
    start = method.begin_from(prior, rule)
    method.take_up(start)
    before = method.logs.clone().double()
    method.begin_epoch(rows, torch.zeros(4, dtype=torch.int64), 1)
    method.update(rows, torch.tensor(h), 0)
    drawn = beta.draw(before[:, 0], before[:, 1], generator(0, "beta", 1))
    torch.testing.assert_close(method.weights(rows), drawn.weight.float())
    a, b = (before[:, column].exp().numpy() for column in (0, 1))
    quantile, step = stats.beta.cdf(drawn.weight.numpy(), a, b), 1e-4
    for column, (up_a, up_b) in enumerate(((step, 0), (0, step))):
        high = stats.beta.ppf(quantile, a * np.exp(up_a), b * np.exp(up_b))
        low = stats.beta.ppf(quantile, a * np.exp(-up_a), b * np.exp(-up_b))
        moved = before[:, column].numpy() - np.array(h) * (high - low) / (2 * step)
        np.testing.assert_allclose(method.logs[:, column].numpy(), moved, atol=2e-3)


@given(scores, st.integers(0, 29), st.one_of(st.just(0.0), st.floats(0, 0.95)), st.booleans())
def test_a_point_weight_is_kept_by_the_cut_exactly(score, place, lam, beside):
    """w > lam, in float32, if and only if the score reaches the cut; the order of the scores stays."""
    cut = np.float32(score[place % len(score)])
    near = [cut, *([np.nextafter(cut, np.float32(0))] if beside else [])]
    prior = cut_at([*score, *near], cut)
    method = Dw(MethodInputs(len(prior.mean), belief(), 0, CPU))
    method.take_up(method.begin_from(prior, ResolvedPrune(lam=lam)))
    weight = method.summary(np.arange(len(prior.mean))).mean
    assert np.array_equal(weight > np.float32(lam), prior.kept)
    assert (np.diff(weight[np.argsort(prior.mean, kind="stable")]) >= 0).all()
    assert (weight >= 0).all()
    assert (weight <= 1).all()


def test_a_point_weight_is_the_share_of_the_way_from_the_cut():
    """By hand, lam 0: half of the way from .6 to 1 is .5; lam .2: .6 -> .2, .3 -> .1, .8 -> .6; unknown is kept."""
    p = np.array([0.3, 0.6, 0.8, 1.0, np.nan])
    prior = Prior(p, p >= 0.6, 0.6)
    np.testing.assert_allclose(point_prior(prior, 0.0), [0, 0, 0.5, 1, 0], atol=1e-7)
    np.testing.assert_allclose(point_prior(prior, 0.2), [0.1, 0.2, 0.6, 1, 0.2], atol=1e-7)
    assert (point_prior(prior, 0.2)[[1, 4]] > np.float32(0.2)).all()
    np.testing.assert_allclose(point_prior(Prior(p), 0.2)[:4], p[:4], atol=1e-7)
