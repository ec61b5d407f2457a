"""From the raw meta-gradient of a batch to the signal that moves the beliefs (docs/method.md section 10).

Order of a step: the mean square of the raw finite h enters the scale; the reference is subtracted; the scale divides.
Everything stays on the device. All off (raw, none, 0) the signal is h itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from curate.config.resolved import ResolvedBelief
from curate.models.networks import Parameters

#: Decay of the running mean square (`--eta-scale recent`), and of the mean value of a target image.
RECENT, REFERENCE = 0.99, 0.95


@dataclass
class Signal:
    """Running quantities of the signal, all tensors on one device.

    Args:
        square: sum (history) or decayed sum (recent) of the steps' mean squares of h; scalar float64.
        weight: what that sum is divided by; scalar float64.
        help: decayed sum of -(alpha/k) <u_t, u_(t-1)>; scalar float64.
        help_weight: what that sum is divided by.
        mean_u: decayed sum of u; None until the first step, or where u is not averaged and no reference needs it.
        mean_weight: what that sum is divided by.
    """

    square: Tensor
    weight: Tensor
    help: Tensor
    help_weight: Tensor
    mean_weight: Tensor
    mean_u: Parameters | None = None

    @classmethod
    def fresh(cls, device: torch.device) -> Signal:
        """The running quantities before the first step: all 0, no mean gradient."""
        square, weight, help_, help_weight, mean_weight = torch.zeros(5, dtype=torch.float64, device=device)
        return cls(square, weight, help_, help_weight, mean_weight)

    def scalars(self) -> dict[str, Tensor]:
        """The running scalars by name, for a checkpoint."""
        return {name: getattr(self, name) for name in ("square", "weight", "help", "help_weight", "mean_weight")}


def needs_gradient(config: ResolvedBelief) -> bool:
    """Whether the signal asks for u itself: to average it, or to measure what a target image is worth."""
    return bool(config.meta_average) or config.reference == "target"


def direction(signal: Signal, u: Parameters, scale: float, config: ResolvedBelief) -> Parameters:
    """The vector along which the tangent is taken: u, or its bias-corrected running mean.

    Also measures what a fresh target image would be worth, from two independent target batches:
    -(alpha/k) <u_(t-1), u_t>, with the running mean up to t-1 in place of u_(t-1) where u is averaged,
    and never with a mean that holds u_t itself.

    Args:
        signal: updated in place.
        u: grad M(theta').
        scale: alpha / k.
        config: names what is on.
    """
    decay = config.meta_average
    if not needs_gradient(config):
        return u
    if config.reference == "target" and signal.mean_u is not None:
        product = inner(u.values(), signal.mean_u.values()) / signal.mean_weight
        signal.help = REFERENCE * signal.help + (1 - REFERENCE) * -scale * product
        signal.help_weight = REFERENCE * signal.help_weight + (1 - REFERENCE)
    if signal.mean_u is None:
        signal.mean_u = {name: (1 - decay) * x for name, x in u.items()}
    else:
        kept = torch._foreach_mul(list(signal.mean_u.values()), decay)
        torch._foreach_add_(kept, list(u.values()), alpha=1 - decay)
        signal.mean_u = dict(zip(u, kept))
    signal.mean_weight = decay * signal.mean_weight + (1 - decay)
    if not decay:
        return u
    return {name: (x / signal.mean_weight).to(x.dtype) for name, x in signal.mean_u.items()}


class Refined(NamedTuple):
    """The signal of a batch, shape (k,), float64, zero where h is not finite; the mean square of the finite h, and
    how many are not finite, device scalars."""

    signal: Tensor
    mean_square: Tensor
    nonfinite: Tensor


def refine(signal: Signal, h: Tensor, config: ResolvedBelief) -> Refined:
    """h in units of its own size, against the reference.

    Args:
        signal: updated in place.
        h: shape (k,), dM/dw_i.
        config: names what is on.
    """
    h = h.double()
    finite = torch.isfinite(h)
    h = torch.where(finite, h, 0.0)
    n_finite = finite.sum()
    some = n_finite.clamp_min(1)
    mean_square = torch.dot(h, h) / some
    refined = h
    if config.reference == "target":
        worth = torch.where(signal.help_weight > 0, signal.help / signal.help_weight, 0.0)
        refined = h - 0.5 * worth.clamp_max(0.0)
    elif config.reference == "batch":
        refined = h - h.sum() / some
    if config.eta_scale != "raw":
        old, new = (1.0, 1.0) if config.eta_scale == "history" else (RECENT, 1 - RECENT)
        signal.square = old * signal.square + new * mean_square
        signal.weight = old * signal.weight + new
        size = (signal.square / signal.weight).sqrt()
        refined = torch.where(size > 0, refined / size, 0.0)
    if refined is not h:
        refined = torch.where(finite, refined, 0.0)
    return Refined(refined, mean_square, len(h) - n_finite)


def inner(left: Iterable[Tensor], right: Iterable[Tensor]) -> Tensor:
    """The inner product of two lists of tensors, a float64 scalar on their device."""
    return torch.stack([(x * y).sum(dtype=torch.float64) for x, y in zip(left, right)]).sum()


def state(signal: Signal) -> dict[str, Any]:
    """The running scalars in full, as JSON holds them."""
    return {name: value.item() for name, value in signal.scalars().items()}


def restore(scalars: dict[str, float], mean_u: Parameters | None, device: torch.device) -> Signal:
    """The signal of a checkpoint."""
    values = {name: torch.tensor(value, dtype=torch.float64, device=device) for name, value in scalars.items()}
    return Signal(**values, mean_u=mean_u)
