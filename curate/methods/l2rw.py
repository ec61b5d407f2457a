"""Learning to reweight (Ren, Zeng, Yang, Urtasun 2018): the weights of a batch come from its own meta-gradient.

At w = 0 the look-ahead step is no step, so the gradient of the target's loss is taken at the parameters themselves.
What helps gets max(0, -h), divided by the batch's sum; nothing is remembered from one visit to the next.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from curate.methods.base import Given, Summary, on_host
from curate.records import Mask


class L2rw:
    """State of one row an example: the weight of its last visit, for the ledger."""

    learns = True
    looks_ahead = False
    prunes = False
    admitted: Mask | None = None

    def __init__(self, given: Given) -> None:
        self.weight = torch.zeros(given.n, device=given.device)

    def begin_epoch(self, rows: Tensor, visit: Tensor, epoch: int) -> None:
        """Nothing to prepare."""

    def weights(self, rows: Tensor) -> Tensor:
        """The batch's weights, made to multiply losses that are averaged: the paper's multiply summed ones."""
        return self.weight[rows] * len(rows)

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """max(0, -h) over its sum; all zero where no image helps, and then the step is none."""
        helps = (-signal).clamp_min(0)
        self.weight[rows] = torch.where(helps.sum() > 0, helps / helps.sum(), 0.0).to(self.weight)

    def end_epoch(self, rows: Tensor, step: int) -> None:
        """Nothing to bring up."""

    def summary(self, rows: npt.NDArray[np.int64]) -> Summary:
        """Point weights that sum to 1 over a batch."""
        return Summary(on_host(self.weight[torch.from_numpy(rows).to(self.weight.device)]), None, None)

    def state(self) -> dict[str, Tensor]:
        """The weights of the last visits."""
        return {"weight": self.weight}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up a checkpoint's tensors."""
        self.weight.copy_(state["weight"])
