"""Learning to reweight (Ren, Zeng, Yang, Urtasun 2018): the weights of a batch come from its own meta-gradient.

At w = 0 the look-ahead step is no step, so the gradient of the target's loss is taken at the parameters themselves.
What helps gets max(0, -h), divided by the batch's sum; nothing is remembered from one visit to the next.
"""

from __future__ import annotations

import torch
from torch import Tensor

from curate.methods.base import PointWeights


class L2rw(PointWeights):
    """Weights that sum to 1 over a batch; each stays, for the ledger, until its image is seen again."""

    looks_ahead = prunes = False

    def weights(self, rows: Tensor) -> Tensor:
        """The batch's weights, made to multiply losses that are averaged: the paper's multiply summed ones."""
        return self.weight[rows] * len(rows)

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """max(0, -h) over its sum; all zero where no image helps, and then the step is none."""
        helps = (-signal).clamp_min(0)
        self.weight[rows] = torch.where(helps.sum() > 0, helps / helps.sum(), 0.0).to(self.weight)
