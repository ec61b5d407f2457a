"""SimCLR: tell the other view of an image among the views of all images of the batch (Chen et al. 2020)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from curate.config.schema import NetworkConfig
from curate.data.augment import Augment
from curate.models.networks import Network
from curate.ranks import Part
from curate.rng import PartGenerator


class PartOfViews(NamedTuple):
    """Views of the images of a part of a batch, first views, then second views; and which part it is."""

    images: Tensor
    part: Part


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

    def view(self, pixels: Tensor, generator: torch.Generator) -> Tensor | PartOfViews:
        """uint8 (k, C, S, S) -> normalised floats (2 k, C, crop, crop): first views, then second views."""
        return _of_part(torch.cat([self.augment.distorted(pixels, generator) for _ in range(2)]), generator)

    def plain_view(self, pixels: Tensor, generator: torch.Generator) -> Tensor | PartOfViews:
        """Centre crops, twice: what is left of the loss is how far the images lie apart."""
        crops = self.augment.normalise(self.augment.centre(pixels))
        return _of_part(torch.cat([crops, crops]), generator)

    def losses(self, network: Network, view: Tensor | PartOfViews) -> Tensor:
        """NT-Xent of each image, shape (k,); of a part of a batch, among the images of the whole."""
        views, part = (view.images, view.part) if isinstance(view, PartOfViews) else (view, None)
        projections = network(views).logits
        assert projections is not None
        z = F.normalize(projections, dim=1)
        part = part or Part(0, len(z) // 2, len(z) // 2)
        everyone = part.gathered(z.view(2, -1, z.shape[1]), dim=1).flatten(0, 1)
        at = torch.arange(len(everyone), device=z.device).view(2, -1)[:, part.own].flatten()
        itself = F.one_hot(at, len(everyone)).bool()
        similarities = (z @ everyone.T / self.temperature).masked_fill(itself, float("-inf"))
        other = (at + part.whole) % len(everyone)
        return F.cross_entropy(similarities, other, reduction="none").view(2, -1).mean(0)


def _of_part(views: Tensor, generator: torch.Generator) -> Tensor | PartOfViews:
    """The views as they are, but where they are of a part of a batch only."""
    if not (isinstance(generator, PartGenerator) and generator.whole):
        return views
    part = Part(generator.own.start, len(views) // 2, generator.whole)
    return PartOfViews(views, part) if part.is_spread else views
