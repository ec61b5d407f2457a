"""Beta beliefs: draws with their implicit gradients, means, and the range in which the parameters live.

The cumulative distribution, which torch lacks, is in `curate.ledger.pruner`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from curate.errors import Misuse
from curate.types import Floats, Prior, Reals

#: log a and log b are kept in this range: a Beta(e^-5, e^-5) is a coin, a Beta(e^7, e^7) a point.
LOWEST, HIGHEST = -5.0, 7.0
#: In log-odds: how far from a cut a prior mean keeps, wider than what float32 takes of log a and log b.
APART = 4e-6


class Draw(NamedTuple):
    """Weights drawn from Betas, and how they move with the parameters. Each of shape (n,), float64.

    `weight` and `complement` add up to 1; near 1 the weight alone has lost the digits that its complement keeps.
    """

    weight: Tensor
    complement: Tensor
    by_log_a: Tensor
    by_log_b: Tensor


def draw(log_a: Tensor, log_b: Tensor, generator: torch.Generator) -> Draw:
    """Draw w_i ~ Beta(a_i, b_i) by reparameterisation.

    A Gamma(a) is drawn as Gamma(a + 1) U^(1/a) in log space, right for any a, where the usual sampler
    underflows below e^-5 and then returns values near 0.5.

    Args:
        log_a, log_b: shape (n,), any float type and device; computed in float64 on the CPU.
        generator: a CPU generator; a, b and U are taken in row order, so the draws are the same everywhere.

    Returns:
        `Draw`, float64, on the CPU. ``by_log_a`` is dw/dlog a at the fixed quantile (>= 0), ``by_log_b`` <= 0.

    Reference: Figurnov, Mohamed, Mnih, "Implicit Reparameterization Gradients", 2018.
    """
    concentration = torch.stack([log_a, log_b], dim=-1).detach().to("cpu", torch.float64).exp()
    if not hasattr(torch, "_dirichlet_grad"):
        return draw_by_autograd(concentration, generator)
    log_gamma = torch._standard_gamma(concentration + 1, generator=generator).log()
    uniform = torch.rand(concentration.shape, dtype=torch.float64, generator=generator)
    log_gamma += torch.log1p(-uniform) / concentration
    difference = log_gamma[..., 0] - log_gamma[..., 1]
    weight, complement = torch.sigmoid(difference), torch.sigmoid(-difference)
    return Draw(weight, complement, *implicit_gradients(concentration, weight, complement))


def draw_by_autograd(concentration: Tensor, generator: torch.Generator) -> Draw:
    """The same draw through public `torch.distributions` only, for a torch without the private samplers.

    Slower, and below e^-5 wrong (both Gammas underflow, and the sampler returns 0.5); beliefs never go there.
    """
    logs = concentration.log().requires_grad_()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(generator.initial_seed())
        weight = torch.distributions.Beta(logs[..., 0].exp(), logs[..., 1].exp()).rsample()
        (slopes,) = torch.autograd.grad(weight.sum(), logs)
    weight = weight.detach()
    return Draw(weight, 1 - weight, slopes[..., 0], slopes[..., 1])


def implicit_gradients(concentration: Tensor, weight: Tensor, complement: Tensor) -> tuple[Tensor, Tensor]:
    """dw/dlog a and dw/dlog b of a draw: -(dF/dlog a) / (dF/dw), F the cumulative distribution.

    Args:
        concentration: shape (n, 2), float64: a and b.
        weight, complement: shape (n,), float64: w and 1 - w.
    """
    both = torch.stack([weight, complement], dim=-1)
    total = concentration.sum(-1, keepdim=True).expand_as(concentration)
    gradient = torch._dirichlet_grad(both, concentration, total) * concentration
    by_log_a, by_log_b = gradient[..., 0] * complement, -gradient[..., 1] * weight
    # A weight that rounds to exactly 0 or 1 does not move.
    inside = (weight > 0) & (complement > 0)
    zero = torch.zeros((), dtype=torch.float64)
    return torch.where(inside, by_log_a, zero), torch.where(inside, by_log_b, zero)


def expected_gradients(log_a: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
    """The means of dw/dlog a and dw/dlog b over the draws: ab / (a + b)^2 and its negative."""
    mean = torch.sigmoid((log_a - log_b).double())
    slope = mean * (1 - mean)
    return slope, -slope


def prior(known: Prior, strength: float, boundary: float) -> tuple[Floats, Floats]:
    """Betas of one strength s with the means of a prior: a = s m, b = s (1 - m); Beta(1, 1) where nothing is known.

    Where the prior has a cut, its means are moved along, in log-odds, until the cut lies at ``boundary``:
    m = expit(logit p - logit p_cut + logit boundary). What it keeps stays `APART` above, what it drops as much below,
    so that no rounding of log a and log b moves an image, a tie among them, over the cut.

    Args:
        known: n images; a and b, where it has them, stand as they are.
        strength: a + b.
        boundary: the mean on which the pruning rule's boundary lies (`curate.ledger.pruner.boundary_mean`).

    Returns:
        a and b, each of shape (n,), float32, their logarithms in [`LOWEST`, `HIGHEST`].

    Raises:
        Misuse: the boundary is so near to 0 or 1 that one side of it has no room in this range.
    """
    least, most = np.exp(LOWEST), np.exp(HIGHEST)
    if known.a is not None and known.b is not None:
        a, b = known.a, known.b
    else:
        low, high = _log_odds(np.array([max(least / strength, 1 - most / strength), 1 - least / strength]))
        at = float(_log_odds(np.array(boundary)))
        odds = _log_odds(known.mean)
        if known.kept is not None and known.cut is not None:
            if not low + APART < at < high - APART:
                raise Misuse(
                    f"--prior-strength {strength:g}: --lam and --rho cut it at a mean of {boundary:.2g}, beyond what a "
                    "and b can hold; give a larger strength, or milder --lam and --rho"
                )
            odds = odds - float(_log_odds(np.array(known.cut))) + at
            odds = np.where(known.kept, np.maximum(odds, at + APART), np.minimum(odds, at - APART))
        m = 1 / (1 + np.exp(-np.clip(odds, low, high)))
        a, b = strength * m, strength * (1 - m)
    unknown = np.isnan(known.mean)
    narrow = [np.where(unknown, 1.0, np.clip(x, least, most)).astype(np.float32) for x in (a, b)]
    return narrow[0], narrow[1]


def _log_odds(p: Reals) -> Reals:
    """log(p / (1 - p)), finite: a probability in float32 may have been rounded to 0 or 1."""
    held = np.clip(p, 2.0**-25, 1 - 2.0**-25)
    return np.asarray(np.log(held) - np.log1p(-held))


def mean(log_a: Tensor, log_b: Tensor) -> Tensor:
    """E[w] = a / (a + b), shape (n,), float64.

    >>> mean(torch.zeros(1), torch.zeros(1))
    tensor([0.5000], dtype=torch.float64)
    """
    return torch.sigmoid(log_a.double() - log_b.double())
