"""One forward of a step, and everything that is asked of it: gradients, and the k inner products with a direction.

A step makes two passes, one over store images and one over target images. `Tangent` serves every network; where the
images of a batch do not touch one another, `curate.training.ghost_products` gives the same products more cheaply. Both
are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from curate.models.networks import Network, Parameters
from curate.training import lookahead
from curate.training.lookahead import Directional, Losses

#: A network's architecture with its parameters still open.
Bind = Callable[[Parameters], Network]


class TargetPass(Protocol):
    """The target's loss at some parameters."""

    @property
    def loss(self) -> Tensor:
        """M, a scalar."""

    def gradient(self) -> Parameters:
        """u = grad M."""


class SourcePass(Protocol):
    """The losses of a batch of store images at theta."""

    @property
    def losses(self) -> Tensor:
        """L_i, shape (k,)."""

    def gradient(self, weights: Tensor) -> Parameters:
        """The gradient of (1/k) sum_i w_i L_i, for weights of shape (k,)."""

    def along(self, direction: Parameters) -> Tensor:
        """<direction, grad L_i> for every i, shape (k,)."""

    def along_target(self, target: Any) -> Tensor:
        """<grad M, grad L_i> for every i, shape (k,): of a target pass of the same evaluator."""


class Evaluator(Protocol):
    """A way to make the two passes of a step."""

    def source(self, theta: Parameters, losses: Losses) -> SourcePass:
        """A forward over store images; ``losses`` maps a network to L of shape (k,)."""

    def target(self, theta: Parameters, loss: Losses) -> TargetPass:
        """A forward over target images; ``loss`` maps a network to a scalar."""


@dataclass(frozen=True)
class Graph:
    """A value with autograd's graph behind it; serves as target pass, and as source pass with its tangent."""

    value: Tensor
    theta: Parameters
    tangent: Callable[[Parameters], Tensor] | None = None

    @property
    def loss(self) -> Tensor:
        """M, a scalar: the value of a target pass."""
        return self.value

    @property
    def losses(self) -> Tensor:
        """L_i, shape (k,): the values of a source pass."""
        return self.value

    def gradient(self, weights: Tensor | None = None) -> Parameters:
        """The gradient by one backward pass, which frees the graph; of a source pass weighted by ``weights`` (k,)."""
        value = self.value if weights is None else (weights * self.value).sum() / len(weights)
        return lookahead.gradient(value, self.theta)

    def along(self, direction: Parameters) -> Tensor:
        """<direction, grad L_i> for every i, shape (k,), by one tangent at the same parameters, batch and noise."""
        assert self.tangent is not None
        return self.tangent(direction)

    def along_target(self, target: TargetPass) -> Tensor:
        """<grad M, grad L_i> for every i, shape (k,): `along` the target's gradient."""
        return self.along(target.gradient())


@dataclass
class Tangent:
    """Any network: autograd for the gradients, one tangent for the products.

    Args:
        network: of the source pass; moves running statistics.
        meta: of the target pass.
        bare: the architecture of the tangent, which moves nothing.
        directional: how the tangent is taken; None until the first one shows what the network's operators allow.
    """

    network: Bind
    meta: Bind
    bare: nn.Module
    directional: Directional | None = None

    def source(self, theta: Parameters, losses: Losses) -> Graph:
        """A forward over store images."""

        def tangent(direction: Parameters) -> Tensor:
            if self.directional is None:
                self.directional = lookahead.evaluator(self.bare, theta, losses)
            return self.directional(self.bare, theta, losses, direction)

        return Graph(losses(self.network(theta)), theta, tangent)

    def target(self, theta: Parameters, loss: Losses) -> Graph:
        """A forward over target images."""
        return Graph(loss(self.meta(theta)), theta)


def agree(evaluator: Evaluator, bare: nn.Module, theta: Parameters, losses: Losses) -> bool:
    """Whether an evaluator's products are those of the tangent on this batch, to float32's rounding.

    Taken along the batch's own mean gradient. An evaluator that assumes something of a network is held to it once.
    """
    source = evaluator.source(theta, losses)
    direction = source.gradient(torch.ones_like(source.losses))
    exact = lookahead.evaluator(bare, theta, losses)(bare, theta, losses, direction)
    error = (source.along(direction) - exact).norm()
    return bool(error <= 1e-3 * exact.norm())
