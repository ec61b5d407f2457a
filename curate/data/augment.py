"""Crop, mirror, rotate and normalise whole batches on the device. Pixels stay uint8 until they are normalised.

Where to crop and whether to mirror is drawn on the CPU, so that every device sees the same pictures.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from curate.config.resolved import MeasuredImages


@dataclass(frozen=True)
class Augment:
    """What is done to images on their way into the network.

    Args:
        crop: side of the crop in pixels.
        mirror: whether to mirror with probability 1/2 in training.
        mean, deviation: per channel, in [0, 1]; of the source, for the target's images too.
    """

    crop: int
    mirror: bool
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, images: MeasuredImages) -> Augment:
        """From a configuration whose statistics are known."""
        return cls(images.crop, images.mirror, images.mean, images.deviation)

    def training(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Random crop and mirror. uint8 (k, C, S, S) -> uint8 (k, C, crop, crop)."""
        return crop_and_mirror(pixels, self.crop, self.mirror, generator)

    def centre(self, pixels: Tensor) -> Tensor:
        """Centre crop. uint8 (k, C, S, S) -> uint8 (k, C, crop, crop)."""
        return centre_crop(pixels, self.crop)

    def normalise(self, pixels: Tensor) -> Tensor:
        """uint8 -> float32, (x / 255 - mean) / deviation per channel."""
        return normalise(pixels, self.mean, self.deviation)


def crop_and_mirror(pixels: Tensor, crop: int, mirror: bool, generator: torch.Generator) -> Tensor:
    """Each image's own random crop, mirrored with probability 1/2 where ``mirror``: one gather for the batch."""
    k, channels, height, width = pixels.shape
    top = torch.randint(height - crop + 1, (k, 1), generator=generator)
    left = torch.randint(width - crop + 1, (k, 1), generator=generator)
    flipped = torch.randint(2, (k, 1), generator=generator).bool()
    if (height, width) == (crop, crop) and not mirror:
        return pixels
    along = torch.arange(crop)
    columns = torch.where(flipped & mirror, left + crop - 1 - along, left + along)
    index = ((top + along)[:, :, None] * width + columns[:, None, :]).flatten(1)
    index = index.to(pixels.device, non_blocking=True)[:, None, :].expand(-1, channels, -1)
    return pixels.flatten(2).gather(2, index).view(k, channels, crop, crop)


def centre_crop(pixels: Tensor, crop: int) -> Tensor:
    """The middle (crop, crop) of each image."""
    top, left = (pixels.shape[2] - crop) // 2, (pixels.shape[3] - crop) // 2
    return pixels[:, :, top : top + crop, left : left + crop]


def rotations(x: Tensor) -> Tensor:
    """All images turned by 0, 90, 180 and 270 degrees, exactly: (k, C, S, S) -> (4 k, C, S, S), turn by turn."""
    return torch.cat([x, x.transpose(2, 3).flip(2), x.flip(2, 3), x.transpose(2, 3).flip(3)])


def normalise(pixels: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """uint8 (k, C, H, W) -> float32: (x / 255 - mean) / deviation, as one multiply and one add."""
    scale, shift = _scale_and_shift(mean, deviation, pixels.device)
    return torch.addcmul(shift, pixels.float(), scale)


@functools.lru_cache(maxsize=8)
def _scale_and_shift(
    mean: tuple[float, ...], deviation: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    # Kept on the device: a copy from the host every step would wait for the device.
    scale = torch.tensor([1 / (255 * d) for d in deviation], device=device).view(-1, 1, 1)
    shift = torch.tensor([-m / d for m, d in zip(mean, deviation)], device=device).view(-1, 1, 1)
    return scale, shift
