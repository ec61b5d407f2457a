"""Features without any training: small networks as they are drawn, their batch norms calibrated on the store.

What matters is that nothing has specialised: a network trained on rotations forgets what it does not need
(docs/method.md section 5). The second stage keeps where in the image something is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from curate.config.resolved import ResolvedImages, ResolvedNetwork
from curate.data.augment import Augment
from curate.data.decode import measure
from curate.errors import Misuse
from curate.models.features import second_stage
from curate.models.networks import TappedNetwork, build
from curate.rng import generator
from curate.selection.base import EncoderInputs
from curate.types import Floats

#: Pixels an image is decoded to, and of its centre crop; channels of the first stage.
SIZE, CROP, WIDTH = 36, 32, 16
#: Images that the running statistics are measured on, and how many a pass.
CALIBRATED_ON, BATCH = 2000, 250
#: Images that go through the networks at a time: so few that their maps stay in a core's cache.
AT_ONCE = 64


class Untrained:
    """One to three networks side by side, 512 numbers each: the second stage, pooled to 4x4."""

    size, colour = SIZE, "rgb"
    calibrated_on = CALIBRATED_ON

    def __init__(self, inputs: EncoderInputs) -> None:
        if not 1 <= inputs.nets <= 3:
            raise Misuse(f"--nets {inputs.nets}: expected 1 to 3")
        self.device = inputs.device
        drawn = (_drawn(number).to(memory_format=torch.channels_last) for number in range(inputs.nets))
        self.networks = [network.to(inputs.device).eval() for network in drawn]
        self.identity: dict[str, Any] = {"nets": inputs.nets, "width": WIDTH, "size": SIZE, "crop": CROP, "stage": 2}
        self.identity["layout"] = "channels last"  # sums are taken in another order
        self.augment: Augment | None = None

    @torch.no_grad()
    def calibrate(self, images: Iterator[Tensor]) -> None:
        """Measure colours and the statistics of every batch norm."""
        pixels = torch.cat(list(images))
        self.augment = Augment(CROP, False, *measure([pixels]))
        norms = [part for network in self.networks for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean over all passes
        for network in self.networks:
            network.train()
            for batch in torch.split(pixels, BATCH):
                second_stage(network, self._input(batch))
            network.eval()

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Floats:
        """As `curate.selection.base.Encoder`."""
        parts = []
        for some in torch.split(pixels, AT_ONCE):
            x = self._input(some)
            parts.append(torch.cat([second_stage(network, x) for network in self.networks], 1).cpu().numpy())
        return np.concatenate(parts)

    def _input(self, pixels: Tensor) -> Tensor:
        assert self.augment is not None
        x = self.augment.normalise(self.augment.centre(pixels.to(self.device)))
        return x.contiguous(memory_format=torch.channels_last)


def _drawn(number: int) -> TappedNetwork:
    """The small ResNet with a stem of stride 2, a quarter of the work."""
    config = ResolvedNetwork(network="small", width=WIDTH)
    images = ResolvedImages(size=SIZE, crop=CROP, colour="rgb", mirror=False)
    network = build(config, images, generator(0, "untrained", number))
    stem = network.get_submodule("stages.stem.0")
    assert isinstance(stem, nn.Conv2d)
    stem.stride = (2, 2)
    return network
