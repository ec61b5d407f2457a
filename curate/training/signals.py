"""Other signals than the meta-gradient: what each has, and the running means that they are made of (docs/method.md 11).

A signal looks at the store's batch in the forward that trains the network anyway, and at target images in one of its
own. What it carries from step to step is a dictionary of tensors on the device, which a checkpoint holds as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from curate.config.resolved import ResolvedConfig
from curate.models.networks import Network, Parameters
from curate.training.lookahead import Losses

Running = dict[str, Tensor]


@dataclass(frozen=True)
class SignalInputs:
    """What a signal is made of.

    Args:
        config: of the run.
        network: of the store's forward; moves running statistics.
        meta: of the target's forward.
        bare: the architecture alone, which moves nothing.
        couples: whether the pretext makes an image's loss depend on the others of its batch.
        bind: a module and parameters -> a network, in the run's arithmetic.
    """

    config: ResolvedConfig
    network: nn.Module
    meta: nn.Module
    bare: nn.Module
    couples: bool
    bind: Callable[[nn.Module, Parameters], Network]


class Judged(Protocol):
    """A batch of store images, looked at."""

    @property
    def losses(self) -> Tensor:
        """L_i, shape (k,)."""

    def gradient(self, weights: Tensor) -> Parameters:
        """The gradient of (1/k) sum_i w_i L_i, for weights of shape (k,). Called once."""


class Asked(Protocol):
    """A batch of target images, looked at."""

    @property
    def loss(self) -> Tensor:
        """The mean of their losses, a scalar."""


class StepSignal(Protocol):
    """One definition of how much an image helps the target. Nothing in it waits for the device."""

    def source(self, theta: Parameters, losses: Losses) -> Judged:
        """The forward over store images at theta; ``losses`` maps a network to L of shape (k,)."""

    def target(self, theta: Parameters, losses: Losses) -> Asked:
        """The forward over target images; ``losses`` maps a network to theirs, shape (m,)."""

    def judge(self, running: Running, source: Any, target: Any, lr: float) -> Tensor:
        """What is descended, shape (k,), below 0 for an image that helps; 0 where too little is known yet.

        Args:
            running: what was carried here from the step before; moved on in place. Empty before the first step.
            source, target: of the two calls above, the target at the parameters after the step; None where this step
                asks no target.
            lr: the step's learning rate.
        """


def meta_gradient(given: SignalInputs) -> None:
    """No other signal: the engine takes the meta-gradient by its evaluators."""


def move(running: Running, name: str, value: Tensor, decay: float) -> None:
    """Take ``value`` into a running mean: a decayed sum, and what it is divided by. One that is not finite is left out,
    as if it had not come."""
    weight = f"weight of {name}"
    if name not in running:
        running[name] = torch.zeros_like(value)
        running[weight] = torch.zeros((), dtype=torch.float64, device=value.device)
    moved = torch.lerp(value, running[name], decay)
    whole = torch.isfinite(moved.sum())  # one pass, where a look at every number would take several
    running[name] = torch.where(whole, moved, running[name])
    running[weight] = torch.where(whole, decay * running[weight] + (1 - decay), running[weight])


def mean(running: Running, name: str) -> Tensor:
    """The bias-corrected running mean; 0 before the first finite value."""
    return running[name] / running[f"weight of {name}"].clamp_min(1e-30).to(running[name].dtype)


#: Decay of the running quantile of the target's own, and which quantile it is.
QUANTILE_DECAY, QUANTILE = 0.97, 0.1


def move_reference(running: Running, helps: Tensor) -> None:
    """Take the quantile of what a target batch's own images help, shape (m,), into its running mean."""
    move(running, "reference", torch.quantile(helps, QUANTILE), QUANTILE_DECAY)


def reference(running: Running) -> Tensor | float:
    """r: the running quantile, or 0 where that is above it, and before the first: no image must help more than nothing,
    and where the target's own seem to harm, none must harm less than they."""
    return mean(running, "reference").clamp_max(0.0) if "reference" in running else 0.0


def pack(running: Running, kind: str, values: Parameters) -> None:
    """Carry parameters on, under their names after what they are."""
    running.update({f"{kind} {name}": x for name, x in values.items()})


def unpacked(running: Running, kind: str, like: Parameters) -> Parameters:
    """The parameters of that kind, in the order of ``like``."""
    return {name: running[f"{kind} {name}"] for name in like}
