"""RotNet: tell by which of 0, 90, 180, 270 degrees an image was turned (Gidaris, Singh, Komodakis 2018)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from curate.config.schema import NetworkConfig
from curate.data.augment import Augment, rotations
from curate.models.networks import Network


class Rotation:
    """All four rotations of an image are in the batch and share its one weight (docs/method.md section 2)."""

    couples = False

    def __init__(self, augment: Augment) -> None:
        self.augment = augment

    @classmethod
    def of(cls, augment: Augment, network: NetworkConfig) -> Rotation:
        """RotNet; the network's options are not used."""
        return cls(augment)

    def view(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 (k, C, S, S) -> normalised floats (4 k, C, crop, crop), rotation by rotation."""
        return self._turn(self.augment.training(pixels, generator))

    def plain_view(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """The same from centre crops: nothing is random."""
        return self._turn(self.augment.centre(pixels))

    def losses(self, network: Network, view: Tensor) -> Tensor:
        """Mean cross-entropy of an image's four rotations, shape (k,)."""
        logits = network(view).logits
        assert logits is not None
        turns = torch.arange(4, device=view.device).repeat_interleave(len(view) // 4)
        return F.cross_entropy(logits, turns, reduction="none").view(4, -1).mean(0)

    def _turn(self, pixels: Tensor) -> Tensor:
        # Turned as bytes: a quarter of the memory traffic.
        return self.augment.normalise(rotations(pixels))
