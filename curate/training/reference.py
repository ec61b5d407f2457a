"""The meta-gradient by brute force: the look-ahead step inside the graph, differentiated once more.

Slow and memory-hungry, and written without a line of `curate.training.lookahead`: what the fast evaluators are held
against, by the tests and by scripts/bench_step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from curate.models.networks import Network, Parameters, functional


def meta_gradient(
    module: nn.Module,
    theta: Parameters,
    velocity: Parameters,
    weights: Tensor,
    source: Callable[[Network], Tensor],
    target: Callable[[Network], Tensor],
    rates: tuple[float, float, float],
) -> tuple[Tensor, Parameters]:
    """dM(theta'(w)) / dw by differentiating through the SGD step.

    Args:
        module: the architecture, in training mode, without running statistics.
        theta, velocity: before the step.
        weights: shape (k,).
        source: network -> losses (k,).
        target: network -> meta-loss.
        rates: (learning rate, momentum, weight decay).

    Returns:
        dM/dw, shape (k,), and theta'.
    """
    lr, momentum, decay = rates
    w = weights.detach().clone().requires_grad_()
    leaves = {name: x.detach().clone().requires_grad_() for name, x in theta.items()}
    loss = (w * source(functional(module, leaves))).sum() / len(w)
    grads = torch.autograd.grad(
        loss, list(leaves.values()), create_graph=True, materialize_grads=True, allow_unused=True
    )
    ahead = {name: x - lr * (momentum * velocity[name] + g + decay * x) for (name, x), g in zip(leaves.items(), grads)}
    (answer,) = torch.autograd.grad(target(functional(module, ahead)), w)
    return answer, {name: x.detach() for name, x in ahead.items()}
