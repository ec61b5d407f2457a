"""The pretext's own loss on target images: no labels needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from curate import ranks
from curate.config.schema import MetaConfig
from curate.data.augment import Augment
from curate.errors import CurateError
from curate.metalosses.base import TargetImages
from curate.models.networks import Network
from curate.pretexts.base import Pretext
from curate.rng import generator_of_part


class SelfSupervised:
    """Mean pretext loss of a target batch drawn without replacement, with fresh augmentation and noise."""

    def __init__(self, target: TargetImages, config: MetaConfig, pretext: Pretext, seed: int) -> None:
        if len(target.pixels) < 2:
            raise CurateError(f"target train has {len(target.pixels)} images that decode; at least 2 are needed")
        self.target, self.pretext, self.seed = target, pretext, seed
        self.notes: tuple[str, ...] = ()
        self.size = min(config.target_batch, len(target.pixels))
        self.view = pretext.view if config.target_augment == "same" else pretext.plain_view

    @classmethod
    def of(
        cls, target: TargetImages, config: MetaConfig, augment: Augment, pretext: Pretext, seed: int
    ) -> SelfSupervised:
        """The pretext's loss on batches of the configuration's size; views are drawn by the pretext."""
        return cls(target, config, pretext, seed)

    def batch(self, epoch: int, step: int) -> Any:
        """A view of ``size`` target images, keyed by (seed, epoch, step); of this rank's among them."""
        own = ranks.part(self.size).own
        g = generator_of_part(self.seed, "target", epoch, step, own, self.size)
        rows = torch.randperm(len(self.target.pixels), generator=g)[: self.size][own]
        return self.view(self.target.pixels[rows.to(self.target.pixels.device, non_blocking=True)], g)

    def shape(self) -> str:
        """Number of images of a batch, in words."""
        return f"{self.size} images, under the pretext's own loss"

    def losses(self, network: Network, batch: Any) -> Tensor:
        """The pretext loss of each image, shape (m,)."""
        return self.pretext.losses(network, batch)

    def loss(self, network: Network, batch: Any) -> Tensor:
        """Mean pretext loss, a scalar; over several ranks, its part of it."""
        return ranks.part(self.size).weighed(self.losses(network, batch).mean())
