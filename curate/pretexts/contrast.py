"""SimCLR: tell the other view of an image among the views of all images of the batch (Chen et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from curate.config.schema import NetworkConfig
from curate.data.augment import Augment
from curate.models.networks import Network


class Contrast:
    """Two views an image; the loss is NT-Xent, the mean of its two views' cross-entropies.

    All images of a batch are one another's negatives, those of weight 0 too: a weight says how much an image pulls, not
    whether it is there.
    """

    couples = True

    def __init__(self, augment: Augment, temperature: float) -> None:
        self.augment, self.temperature = augment, temperature

    @classmethod
    def of(cls, augment: Augment, network: NetworkConfig) -> Contrast:
        """SimCLR at the configuration's temperature."""
        assert network.temperature is not None
        return cls(augment, network.temperature)

    def view(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 (k, C, S, S) -> normalised floats (2 k, C, crop, crop): first views, then second views."""
        return torch.cat([self.augment.distorted(pixels, generator) for _ in range(2)])

    def plain_view(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Centre crops, twice: what is left of the loss is how far the images lie apart."""
        crops = self.augment.normalise(self.augment.centre(pixels))
        return torch.cat([crops, crops])

    def losses(self, network: Network, view: Tensor) -> Tensor:
        """NT-Xent of each image, shape (k,)."""
        projections = network(view).logits
        assert projections is not None
        z = F.normalize(projections, dim=1)
        rows = len(z)
        itself = torch.eye(rows, dtype=torch.bool, device=z.device)
        similarities = (z @ z.T / self.temperature).masked_fill(itself, float("-inf"))
        other = torch.arange(rows, device=z.device).roll(rows // 2)
        return F.cross_entropy(similarities, other, reduction="none").view(2, -1).mean(0)
