"""DataWeighter: every image has a point weight in [0, 1] that descends the signal (METHOD.md section 5).

All weights start at 0, so the first epoch trains nothing but what weight decay moves; its meta-gradients lift the
images that would help.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from curate.methods.base import Given, Summary, on_host
from curate.records import Mask


class Dw:
    """One number an example, clipped to [0, 1] after every move.

    Args:
        given: rows and device; of the belief: eta.
        dtype: of the state.
    """

    learns = looks_ahead = prunes = True
    admitted: Mask | None = None

    def __init__(self, given: Given, dtype: torch.dtype = torch.float32) -> None:
        assert given.belief.eta is not None
        self.eta = given.belief.eta
        self.weight = torch.zeros(given.n, dtype=dtype, device=given.device)

    def begin_epoch(self, rows: Tensor, visit: Tensor, epoch: int) -> None:
        """Nothing is drawn."""

    def weights(self, rows: Tensor) -> Tensor:
        """The weights as they are now."""
        return self.weight[rows]

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """w -= eta * signal, clipped."""
        moved = self.weight[rows].double() - self.eta * signal.double()
        self.weight[rows] = moved.clamp(0, 1).to(self.weight.dtype)

    def end_epoch(self, rows: Tensor, step: int) -> None:
        """Nothing to bring up."""

    def summary(self, rows: npt.NDArray[np.int64]) -> Summary:
        """Point weights."""
        return Summary(on_host(self.weight[torch.from_numpy(rows).to(self.weight.device)]), None, None)

    def state(self) -> dict[str, Tensor]:
        """The weights."""
        return {"weight": self.weight}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up a checkpoint's weights."""
        self.weight.copy_(state["weight"])
