"""Beta draws: their distribution, their implicit gradients, and why the range ends where it does."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import special, stats

from curate.methods import beta
from curate.rng import generator

CORNERS = [(x, y) for x in (-5.0, 0.0, 7.0) for y in (-5.0, 0.0, 7.0)]
INSIDE = [(-2.0, -2.0), (1.0, 3.0), (3.0, -1.0), (4.5, 4.5), (-3.0, 2.0)]
N = 20_000


def constant(log_a, log_b, n=N):
    return torch.full((n,), log_a), torch.full((n,), log_b)


def quantiles(draw, a, b):
    """u = F(w; a, b) from the smaller of w and 1 - w, so that no digit is lost near 1."""
    w, c = draw.weight.numpy(), draw.complement.numpy()
    return np.where(w <= 0.5, special.betainc(a, b, w), 1 - special.betainc(b, a, c))


@pytest.mark.parametrize(("log_a", "log_b"), CORNERS + INSIDE)
def test_draws_follow_the_beta(log_a, log_b):
    """Kolmogorov-Smirnov of the quantiles; below 1e-4 for a right sampler once in 10,000.

    Draws below the smallest float64 (a share of at most 1 % at a = e^-5) all land on 0 or 1, so their
    quantiles are spread evenly over the share they stand for.
    """
    a, b = math.exp(log_a), math.exp(log_b)
    draw = beta.draw(*constant(log_a, log_b), generator(3, "beta", 1))
    u = quantiles(draw, a, b)
    g = np.random.default_rng(0)
    tiny = np.nextafter(0, 1)
    low, high = special.betainc(a, b, tiny), special.betainc(b, a, tiny)
    u = np.where(draw.weight.numpy() == 0, low * g.random(N), u)
    u = np.where(draw.complement.numpy() == 0, 1 - high * g.random(N), u)
    assert stats.kstest(u, "uniform").pvalue > 1e-4


def test_torchs_own_sampler_fails_below_the_range():
    """At log a = log b = -8 a draw lies within 0.1 of 0.5 about once in 7,000 draws; torch's does so far more often.

    This is why beliefs are clamped, and why draws here go through log space.
    """
    a = math.exp(-8.0)
    right = special.betainc(a, a, 0.6) - special.betainc(a, a, 0.4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = torch.distributions.Beta(torch.full((N,), a).double(), torch.full((N,), a).double()).sample()
    share = ((theirs - 0.5).abs() < 0.1).double().mean().item()
    ours = beta.draw(*constant(-8.0, -8.0), generator(0, "beta")).weight
    assert right < 0.001
    assert share > 0.3
    assert ((ours - 0.5).abs() < 0.1).double().mean().item() < 0.002


def test_gradients_equal_central_differences_of_the_cdf():
    """dw/dlog a = -(dF/dlog a) / pdf over the whole range and its corners, F by mpmath with 30 digits.

    torch approximates this gradient: to 1e-10 as a rule, to 1e-3 at worst, both seen when the bounds were set.
    """
    g = torch.Generator().manual_seed(6)
    logs = torch.cat([torch.rand(150, 2, generator=g) * 12 - 5, torch.tensor(CORNERS + INSIDE).repeat(6, 1)])
    draw = beta.draw(logs[:, 0], logs[:, 1], generator(1, "beta"))
    errors = []
    for (log_a, log_b), w, c, *found in zip(logs.tolist(), *(column.tolist() for column in draw)):
        # Nearer to 0 or 1 the weight itself has lost its digits.
        if min(w, c) > 1e-280:
            exact = slope(w, c, log_a, log_b), -slope(c, w, log_b, log_a)
            errors += [abs(f - float(e)) / abs(float(e)) for f, e in zip(found, exact)]
    assert len(errors) > 400
    assert np.median(errors) < 1e-6
    assert max(errors) < 5e-3


def slope(w, c, log_a, log_b):
    """dw/dlog a at the fixed quantile, from the smaller tail; dw/dlog b is minus this with the roles exchanged."""
    with mpmath.workdps(30):
        a, b, w, c, step = (mpmath.mpf(x) for x in (math.exp(log_a), math.exp(log_b), w, c, 1e-8))

        def below(log_step):
            moved = a * mpmath.exp(log_step)
            if w <= 0.5:
                return mpmath.betainc(moved, b, 0, w, regularized=True)
            return -mpmath.betainc(b, moved, 0, c, regularized=True)

        log_w, log_c = (mpmath.log(w), mpmath.log1p(-w)) if w <= 0.5 else (mpmath.log1p(-c), mpmath.log(c))
        log_pdf = (a - 1) * log_w + (b - 1) * log_c - mpmath.log(mpmath.beta(a, b))
        return -(below(step) - below(-step)) / (2 * step) / mpmath.exp(log_pdf)


@pytest.mark.parametrize(("log_a", "log_b"), CORNERS + INSIDE)
def test_the_mean_gradient_is_that_of_the_mean(log_a, log_b):
    """E[dw/dlog a] = d E[w] / dlog a = ab / (a + b)^2, within 5 standard errors."""
    draw = beta.draw(*constant(log_a, log_b, 100_000), generator(2, "beta"))
    expected, expected_b = beta.expected_gradients(torch.tensor(log_a), torch.tensor(log_b))
    a, b = math.exp(log_a), math.exp(log_b)
    assert expected.item() == pytest.approx(a * b / (a + b) ** 2, rel=1e-12)
    for found, value in ((draw.by_log_a, expected), (draw.by_log_b, expected_b)):
        error = found.std().item() / len(found) ** 0.5
        assert abs(found.mean().item() - value.item()) < 5 * error + 1e-12


def test_chain_rule_of_a_loss_through_the_draw():
    """d E[f(w)] / dlog a by the draws' gradients equals the derivative of the integral, f(w) = w^2, a = 2, b = 3.

    E[w^2] = a (a + 1) / ((a + b)(a + b + 1)); the derivative in log a is a times that in a, by scipy-free algebra.
    """
    log_a, log_b = math.log(2.0), math.log(3.0)
    draw = beta.draw(*constant(log_a, log_b, 200_000), generator(4, "beta"))
    pathwise = 2 * draw.weight * draw.by_log_a

    def second_moment(a, b):
        return a * (a + 1) / ((a + b) * (a + b + 1))

    step = 1e-6
    exact = (second_moment(math.exp(log_a + step), 3) - second_moment(math.exp(log_a - step), 3)) / (2 * step)
    assert abs(pathwise.mean().item() - exact) < 5 * pathwise.std().item() / len(pathwise) ** 0.5


def test_draws_depend_on_the_key_alone():
    """The same key draws the same, another epoch something else, and the global generator stays untouched."""
    logs = torch.linspace(-5, 7, 50), torch.linspace(7, -5, 50)
    before = torch.random.get_rng_state()
    first, again = (beta.draw(*logs, generator(7, "beta", 3)) for _ in range(2))
    other = beta.draw(*logs, generator(7, "beta", 4))
    assert all(torch.equal(x, y) for x, y in zip(first, again))
    assert not torch.equal(first.weight, other.weight)
    assert torch.equal(before, torch.random.get_rng_state())


def test_public_fallback_agrees():
    """Without torch's private samplers: the mean weight and the mean gradient, within 5 standard errors."""
    concentration = torch.tensor([[2.0, 3.0]], dtype=torch.float64).expand(50_000, 2)
    draw = beta.draw_by_autograd(concentration, generator(1, "beta"))
    for values, expected in ((draw.weight, 0.4), (draw.by_log_a, 0.24), (draw.by_log_b, -0.24)):
        assert abs(values.mean().item() - expected) < 5 * values.std().item() / 50_000**0.5
