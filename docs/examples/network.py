"""A network: four convolutions with group norm, for small images."""

from __future__ import annotations

from pathlib import Path

from torch import nn

import curate
from curate.config.catalogue import NetworkSpec
from curate.config.resolved import ResolvedImages, ResolvedNetwork
from curate.models.networks import StagedNet


def plain_convolutions(config: ResolvedNetwork, images: ResolvedImages, outputs: int) -> StagedNet:
    """Each stage halves the side and has the name of a tap, which `curate evaluate --tap` can take features from.

    Weights are drawn from torch's generator, which is seeded around this call.
    """
    stages: dict[str, nn.Module] = {}
    inside = images.channels
    for number, outside in enumerate((config.width, config.width * 2, config.width * 4, config.width * 4), start=1):
        convolution = nn.Conv2d(inside, outside, kernel_size=3, stride=2, padding=1)
        stages[f"layer{number}"] = nn.Sequential(convolution, nn.GroupNorm(1, outside), nn.ReLU())
        inside = outside
    # A pretext that compares images asks for a projection of so many numbers in place of logits.
    return StagedNet(stages, nn.Linear(inside, config.projection or outputs))


SPEC = NetworkSpec(plain_convolutions, title="four convolutions")

if __name__ == "__main__":
    from packer import pack_digits

    pack_digits(Path("data"))
    curate.register_network("plain", plain_convolutions, title=SPEC.title)
    net = curate.pretrain(
        "data/store", out="net-plain", network="plain", size=16, crop=16, width=8, epochs=1, workers=0
    )
    print(net.network())
