"""The image itself as a feature: 9 x 9 colours. What any network's features have to beat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from curate.selection.base import EncoderInputs
from curate.types import Floats

#: Pixels an image is decoded to, and of the side of what is left of it.
SIZE, SIDE = 36, 9


class Pixels:
    """243 numbers in [0, 1]: the means of 4 x 4 pixels."""

    size, colour = SIZE, "rgb"
    calibrated_on = 0

    def __init__(self, inputs: EncoderInputs) -> None:
        self.device = inputs.device
        self.identity: dict[str, Any] = {"size": SIZE, "side": SIDE}

    def calibrate(self, images: Iterator[Tensor]) -> None:
        """Does nothing: pixels need no calibration."""

    def __call__(self, pixels: Tensor) -> Floats:
        """As `curate.selection.base.Encoder`."""
        means = F.adaptive_avg_pool2d(pixels.to(self.device).float() / 255, SIDE)
        return np.asarray(means.flatten(1).cpu().numpy(), np.float32)
