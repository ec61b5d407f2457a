"""Features of images at a tap of a network: centre crops, running statistics, nothing random."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from curate.data.augment import Augment
from curate.models.networks import TappedNetwork
from curate.types import Floats

#: Images a pass.
BATCH = 256
#: Side to which the map of the second stage is pooled.
POOLED = 4


@torch.no_grad()
def extract(network: TappedNetwork, pixels: Tensor, augment: Augment, tap: str, device: torch.device) -> Floats:
    """Features of uint8 images (n, C, S, S) at ``tap``: shape (n, M), float32.

    Raises:
        Misuse: the network has no such tap.
    """
    network.eval()
    parts = []
    for batch in torch.split(pixels, BATCH):
        x = augment.normalise(augment.centre(batch.to(device)))
        parts.append(network.tap(x, tap).float().cpu().numpy())
    return np.concatenate(parts)


def second_stage(network: TappedNetwork, x: Tensor) -> Tensor:
    """The output of ``layer2``, pooled to 4x4 and flattened; of a network without stages, what it calls its features.

    Args:
        x: normalised floats (k, C, H, W).

    Returns:
        Shape (k, d), float32, on the device.
    """
    stages: nn.ModuleDict | None = getattr(network, "stages", None)
    if stages is None:
        return network.tap(x, "pool").float()
    for name, module in stages.items():
        x = module(x)
        if name == "layer2":
            break
    pooled: Tensor = nn.functional.adaptive_avg_pool2d(x, POOLED)
    return pooled.flatten(1).float()
