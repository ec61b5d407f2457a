"""A meta-loss: supervised contrast of target images (Khosla et al. 2020), which pulls a class together."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import curate
from curate.config.catalogue import MetaLossSpec
from curate.config.schema import MetaConfig
from curate.data.augment import Augment
from curate.metalosses.base import TargetImages
from curate.models.networks import Network
from curate.pretexts.base import Pretext
from curate.rng import generator

TEMPERATURE = 0.1


class Batch(NamedTuple):
    """Images (m, C, crop, crop), normalised, and which pairs are of one class, bool (m, m), false on the diagonal."""

    images: Tensor
    alike: Tensor


class Contrast:
    """Mean over images of -log softmax of the similarities to the images of its own class."""

    notes: tuple[str, ...] = ()

    def __init__(self, target: TargetImages, config: MetaConfig, augment: Augment, pretext: Pretext, seed: int) -> None:
        assert target.labels is not None  # said by `needs_labels`, checked before
        self.pixels, self.labels = target.pixels, target.labels
        self.augment, self.seed, self.size = augment, seed, min(config.target_batch, len(target.pixels))

    def batch(self, epoch: int, step: int) -> Batch:
        """The target batch of a step: keyed by (seed, epoch, step) alone, so that a resumed run draws it again."""
        g = generator(self.seed, "contrast", epoch, step)
        rows = torch.randperm(len(self.pixels), generator=g)[: self.size]
        labels, device = self.labels[rows], self.pixels.device
        alike = (labels[:, None] == labels[None]).fill_diagonal_(False)
        images = self.augment.training(self.pixels[rows.to(device)], g)
        return Batch(self.augment.normalise(images), alike.to(device))

    def shape(self) -> str:
        """The size of a batch, in words, for the dry run."""
        return f"{self.size} images in contrast"

    def loss(self, network: Network, batch: Batch) -> Tensor:
        """A scalar; a pure function of the network and the batch."""
        features = F.normalize(network(batch.images).features, dim=1)
        itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
        near = (features @ features.T / TEMPERATURE).masked_fill(itself, -1e9)
        own = (near.log_softmax(1) * batch.alike).sum(1) / batch.alike.sum(1).clamp(min=1)
        return -own.mean()


SPEC = MetaLossSpec(Contrast, needs_labels=True)

if __name__ == "__main__":
    from packer import pack_digits

    pack_digits(Path("data"))
    curate.register_meta_loss("contrast", Contrast, needs_labels=True)
    run = curate.run(
        "data/store",
        "data/target",
        out="run-contrast",
        meta_loss="contrast",
        size=16,
        crop=16,
        width=4,
        epochs=1,
        workers=0,
    )
    print(run.metrics()[-1]["meta_loss"])
