"""What every method offers: a weight for each image of a batch, moved by the signal, and a state of one row an example.

A method's tensors live on the device, have one entry a row of the store, and are touched only at the batch's rows
in a step; passes over all rows happen once an epoch.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from curate.records import Floats


class Summary(NamedTuple):
    """Weights as the ledger holds them, each of shape (m,), float32; a and b None for a point weight."""

    mean: Floats
    a: Floats | None
    b: Floats | None


class Method(Protocol):
    """One way to weight the images of a store."""

    #: Whether the signal of the meta-loss moves the weights; if not, the meta-pass is left out.
    learns: bool

    def begin_epoch(self, rows: Tensor, visit: Tensor, epoch: int) -> None:
        """Prepare the weights of an epoch.

        Args:
            rows: shape (m,), int64, increasing: the rows that are trained on.
            visit: shape (m,), int64: the step at which each is visited.
            epoch: from 1.
        """

    def weights(self, rows: Tensor) -> Tensor:
        """The weights of a batch, shape (k,), float32."""

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """Move the weights of a batch against the signal, shape (k,)."""

    def end_epoch(self, rows: Tensor, step: int) -> None:
        """Bring ``rows`` up to ``step``, the first step of the next epoch."""

    def summary(self, rows: npt.NDArray[np.int64]) -> Summary:
        """What the ledger says of ``rows``."""

    def state(self) -> dict[str, Tensor]:
        """The tensors a checkpoint holds."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up the tensors of a checkpoint."""


def on_host(values: Tensor) -> Floats:
    """A float32 numpy copy."""
    return np.asarray(values.to("cpu", torch.float32).numpy())
