"""Multinomial logistic regression by L-BFGS in float32 on any device, with scikit-learn's objective.

For problems of a size that float64 on the host is too slow for: loss and gradient are summed over blocks of rows.
Which C a protocol takes, and which solver when, is the part of `curate.evaluation.logistic`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from curate.types import Floats

#: Logits held at once, so the rows of a block are this over the classes.
BLOCK = 2**24
#: Done when no component of the gradient of the mean objective is larger: scikit-learn's `tol`.
TOLERANCE = 1e-4
#: Given up when an iteration lowers the mean objective by less: float32 resolves no more.
LEAST_STEP = 1e-9


@dataclass(frozen=True)
class Solution:
    """Where the solver ended.

    Args:
        weights: shape (classes, M), float32; (1, M) for two classes, of the second against the first.
        intercepts: shape (classes,), or (1,), float32.
        iterations: of L-BFGS.
        gradient: largest absolute component of the gradient of the mean objective there.
    """

    weights: Floats
    intercepts: Floats
    iterations: int
    gradient: float


def minimise(x: Tensor, y: Tensor, classes: int, inverse_penalty: float, iterations: int) -> Solution:
    """Minimise C * (summed cross-entropy) + |weights|^2 / 2 from zero; the intercepts are not penalised.

    Args:
        x: shape (n, M), float32, on the device that computes.
        y: shape (n,), int64, in 0 .. classes - 1, on the same device.
        classes: at least 2.
        inverse_penalty: C, > 0.
        iterations: at most so many.
    """
    logits = 1 if classes == 2 else classes
    weights = torch.zeros(logits, x.shape[1], device=x.device, requires_grad=True)
    intercepts = torch.zeros(logits, device=x.device, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights, intercepts],
        max_iter=iterations,
        max_eval=10 * iterations,
        tolerance_grad=TOLERANCE,
        tolerance_change=LEAST_STEP,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        return accumulate(weights, intercepts, x, y, inverse_penalty)

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    closure()  # the gradient where it ended, not where its last line search looked
    ended = largest_gradient(weights, intercepts)
    taken = int(optimiser.state[weights]["n_iter"])
    return Solution(_on_host(weights), _on_host(intercepts), taken, ended)


def accumulate(weights: Tensor, intercepts: Tensor, x: Tensor, y: Tensor, inverse_penalty: float) -> Tensor:
    """The mean objective, that is, divided by C * n; its gradient is added to that of ``weights`` and ``intercepts``.

    Returns:
        A float64 scalar.
    """
    penalty = weights.square().sum() / (2 * inverse_penalty * len(y))
    penalty.backward()  # type: ignore[no-untyped-call]
    total = penalty.detach().double()
    rows = max(1, BLOCK // len(intercepts))
    for some, labels in zip(torch.split(x, rows), torch.split(y, rows)):
        scores = torch.addmm(intercepts, some, weights.T)
        if len(intercepts) == 1:
            scores = F.pad(scores, (1, 0))  # the first of two classes scores 0
        part = F.cross_entropy(scores, labels, reduction="sum") / len(y)
        part.backward()  # type: ignore[no-untyped-call]
        total += part.detach().double()
    return total


def gradient_at(weights: Floats, intercepts: Floats, x: Floats, y: np.ndarray, inverse_penalty: float) -> float:
    """`Solution.gradient` of any solver's answer, computed in float64 on the host."""
    at = [torch.tensor(values, dtype=torch.float64, requires_grad=True) for values in (weights, intercepts)]
    accumulate(at[0], at[1], torch.from_numpy(x).double(), torch.from_numpy(y), inverse_penalty)
    return largest_gradient(at[0], at[1])


def largest_gradient(weights: Tensor, intercepts: Tensor) -> float:
    """The largest absolute component of both gradients."""
    assert weights.grad is not None
    assert intercepts.grad is not None
    return max(float(weights.grad.abs().max()), float(intercepts.grad.abs().max()))


def _on_host(x: Tensor) -> Floats:
    return x.detach().cpu().numpy()
