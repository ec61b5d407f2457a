"""A pretext task: tell whether an image stands upright or upside down."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import curate
from curate.config.catalogue import PretextSpec
from curate.config.schema import NetworkConfig
from curate.data.augment import Augment
from curate.models.networks import Network


class UpsideDown:
    """Every image is in the batch both ways, and both share its one weight."""

    couples = False  # an image's loss is of itself alone, whatever the others of the batch

    def __init__(self, augment: Augment, network: NetworkConfig) -> None:
        self.augment = augment

    def view(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 (k, C, S, S) -> normalised floats (2 k, C, crop, crop). Everything random is drawn here."""
        return self._both(self.augment.training(pixels, generator))

    def plain_view(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """The same without augmentation."""
        return self._both(self.augment.centre(pixels))

    def losses(self, network: Network, view: Tensor) -> Tensor:
        """One loss an image, shape (k,); a pure function of the network and the view, so that it has a tangent."""
        logits = network(view).logits
        assert logits is not None
        answers = torch.arange(2, device=view.device).repeat_interleave(len(view) // 2)
        return F.cross_entropy(logits, answers, reduction="none").view(2, -1).mean(0)

    def _both(self, pixels: Tensor) -> Tensor:
        return self.augment.normalise(torch.cat([pixels, pixels.flip(2)]))


#: Two logits; the sizes and the schedule that its options have by default.
SPEC = PretextSpec(
    UpsideDown,
    outputs=2,
    defaults={
        **{"size": 36, "crop": 32, "colour": "rgb", "mirror": True},
        **{"epochs": 30, "batch": 64, "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4},
    },
)

if __name__ == "__main__":
    from packer import pack_digits

    pack_digits(Path("data"))
    curate.register_pretext("upside-down", UpsideDown, outputs=SPEC.outputs, defaults=SPEC.defaults)
    net = curate.pretrain(
        "data/store", out="net-upside-down", pretext="upside-down", size=16, crop=16, width=4, epochs=1, workers=0
    )
    print(net.metrics()[-1]["pretext_loss"])
