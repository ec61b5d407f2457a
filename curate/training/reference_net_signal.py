"""Whether an image is still to be learnt by a network that has learnt target images alone: L_i(theta) - L_i(phi).

phi is a copy of the network that takes a step of the same SGD on every target batch, beside theta's on the store's
(docs/method.md 11; Mindermann et al. 2022 hold a trained phi fixed).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from curate.models.networks import Parameters
from curate.training import lookahead
from curate.training.lookahead import Losses
from curate.training.signals import Running, SignalInputs, move_reference, pack, reference, unpacked


@dataclass(frozen=True)
class Beside:
    """Losses of a batch at theta, and what gives them at other parameters."""

    losses: Tensor
    theta: Parameters
    batch: Losses

    @property
    def loss(self) -> Tensor:
        """Their mean."""
        return self.losses.detach().mean()

    def gradient(self, weights: Tensor) -> Parameters:
        """The gradient of (1/k) sum_i w_i L_i, by one backward pass."""
        return lookahead.gradient((weights * self.losses).sum() / len(weights), self.theta)


class ReferenceNetSignal:
    """-(L_i(theta) - L_i(phi) - r), both parameters as they were before the step, r the reference of the target batch's
    own gaps (`curate.training.signals.reference`).

    Args:
        given: the network and the options ``reference`` and those of the SGD.
    """

    def __init__(self, given: SignalInputs) -> None:
        self.given = given

    def source(self, theta: Parameters, losses: Losses) -> Beside:
        """The forward that trains."""
        return Beside(losses(self.given.bind(self.given.network, theta)), theta, losses)

    def target(self, theta: Parameters, losses: Losses) -> Beside:
        """A forward over target images, of which no gradient is taken."""
        fixed = {name: x.detach() for name, x in theta.items()}
        return Beside(losses(self.given.bind(self.given.meta, fixed)), fixed, losses)

    def judge(self, running: Running, source: Beside, target: Beside | None, lr: float) -> Tensor:
        """phi judges the batch, and the target batch before it is trained on it."""
        if not running:
            begin(running, source.theta)
        bind, phi = partial(self.given.bind, self.given.bare), unpacked(running, "phi", source.theta)
        quantile = self.given.config.belief.reference == "quantile"
        with torch.no_grad():
            gap = source.losses.detach() - source.batch(bind(phi))
        if target is not None:
            leaves = {name: x.detach().requires_grad_() for name, x in phi.items()}
            theirs = target.batch(bind(leaves))
            if quantile:
                move_reference(running, target.losses - theirs.detach())
            self._learn(running, leaves, lookahead.gradient(theirs.mean(), leaves), lr)
        return reference(running) - gap if quantile else -gap

    def _learn(self, running: Running, phi: Parameters, u: Parameters, lr: float) -> None:
        velocity, train = unpacked(running, "velocity", phi), self.given.config.train
        ahead, moved = lookahead.sgd_step(phi, velocity, u, lr, train.momentum, train.weight_decay)
        pack(running, "phi", {name: x.detach() for name, x in ahead.items()})
        pack(running, "velocity", moved)


def begin(running: Running, theta: Parameters) -> None:
    """phi as theta is, at rest."""
    pack(running, "phi", {name: x.detach().clone() for name, x in theta.items()})
    pack(running, "velocity", {name: torch.zeros_like(x) for name, x in theta.items()})
