"""Plain training: every weight is 1 and nothing is learnt (RotNet, the plain VAE)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from curate.methods.base import Summary


class Uniform:
    """The baseline of every table, and the method of `curate pretrain`."""

    learns = False

    def begin_epoch(self, rows: Tensor, visit: Tensor, epoch: int) -> None:
        """Nothing to prepare."""

    def weights(self, rows: Tensor) -> Tensor:
        """Ones."""
        return torch.ones(len(rows), device=rows.device)

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """Never called."""

    def end_epoch(self, rows: Tensor, step: int) -> None:
        """Nothing to bring up."""

    def summary(self, rows: npt.NDArray[np.int64]) -> Summary:
        """Point weights of 1."""
        return Summary(np.ones(len(rows), np.float32), None, None)

    def state(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Nothing."""
