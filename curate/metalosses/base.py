"""What every meta-loss offers: a target batch drawn for a step, and its loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from curate.models.networks import Network


@dataclass(frozen=True)
class TargetImages:
    """The target's training images, decoded, on the device.

    Args:
        pixels: shape (n, C, S, S), uint8.
        labels: shape (n,), int64, on the CPU; None for a target without labels.
    """

    pixels: Tensor
    labels: Tensor | None


class MetaLoss(Protocol):
    """The target's loss. Two calls, so that a step may evaluate one batch at several parameters."""

    #: What a person should know of it before a run starts, a line each.
    notes: tuple[str, ...]

    def batch(self, epoch: int, step: int) -> Any:
        """The target batch of one step, keyed by (seed, epoch, step) alone."""

    def shape(self) -> str:
        """The size of a batch, in words."""

    def loss(self, network: Network, batch: Any) -> Tensor:
        """A scalar; a pure function of the network and the batch."""


class ImageLosses(MetaLoss, Protocol):
    """A meta-loss that is the mean of its images' own: what signals besides the meta-gradient ask for."""

    def losses(self, network: Network, batch: Any) -> Tensor:
        """One loss an image, shape (m,); their mean is the meta-loss."""
