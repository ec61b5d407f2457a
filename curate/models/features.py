"""Features of images at a tap of a network: centre crops, running statistics, nothing random."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from curate.data.augment import Augment
from curate.models.networks import TappedNetwork
from curate.types import Floats

#: Images a pass.
BATCH = 256


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
