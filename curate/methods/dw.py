"""DataWeighter: every image has a point weight in [0, 1] that descends the signal (docs/method.md section 5).

All weights start at 0, so the first epoch trains nothing but what weight decay moves; its meta-gradients lift the
images that would help.
"""

from __future__ import annotations

import torch
from torch import Tensor

from curate.methods.base import MethodInputs, PointWeights


class Dw(PointWeights):
    """Weights that are clipped to [0, 1] after every move.

    Args:
        given: rows and device; of the belief: eta.
        dtype: of the state.
    """

    looks_ahead = prunes = True

    def __init__(self, given: MethodInputs, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(given, dtype)
        self.eta = given.belief.rate

    def weights(self, rows: Tensor) -> Tensor:
        """The weights as they are now."""
        return self.weight[rows]

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """w -= eta * signal, clipped."""
        moved = self.weight[rows].double() - self.eta * signal.double()
        self.weight[rows] = moved.clamp(0, 1).to(self.weight.dtype)
