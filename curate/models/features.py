"""Features of images at a tap of a network: centre crops, running statistics, nothing random.

A tap is a stage of the network, or `pixels` for the image itself; `STAGE:HxW` averages its map to so many places at
most, as in layer2:4x4.
"""

from __future__ import annotations

import re

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from curate.data.augment import Augment
from curate.errors import Misuse
from curate.models.networks import TappedNetwork
from curate.types import Floats

#: Images a pass.
BATCH = 256
_TAP = re.compile(r"(\w+)(?::([1-9][0-9]{0,2})x([1-9][0-9]{0,2}))?")
#: Side to which the map of the second stage is pooled.
POOLED = 4


@torch.no_grad()
def extract(network: TappedNetwork, pixels: Tensor, augment: Augment, tap: str, device: torch.device) -> Floats:
    """Features of uint8 images (n, C, S, S) at ``tap``: shape (n, M), float32.

    Raises:
        Misuse: as `at_tap`.
    """
    network.eval()
    parts = []
    for batch in torch.split(pixels, BATCH):
        x = augment.normalise(augment.centre(batch.to(device)))
        parts.append(at_tap(network, x, tap).float().cpu().numpy())
    return np.concatenate(parts)


def at_tap(network: TappedNetwork, x: Tensor, tap: str) -> Tensor:
    """What a network has at a tap, of normalised images (k, C, H, W): shape (k, M).

    Raises:
        Misuse: no such tap, or one without places to average.
    """
    match = _TAP.fullmatch(tap)
    if match is None:
        raise Misuse(f"--tap {tap}: expected a stage, or one averaged to places as in layer2:4x4")
    stage, *places = match.groups()
    if stage != "pixels" and places[0] is None:
        return network.tap(x, stage)
    maps = x if stage == "pixels" else network.maps(x, stage)
    if places[0] is None:
        return maps.flatten(1)
    if maps.ndim != 4:
        raise Misuse(f"--tap {tap}: {stage} has one place already; give --tap {stage}")
    height, width = (min(int(count), side) for count, side in zip(places, maps.shape[2:]))
    return F.adaptive_avg_pool2d(maps, (height, width)).flatten(1)


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
