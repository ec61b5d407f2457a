"""Crop, mirror, rotate and normalise whole batches on the device. Pixels stay uint8 until they are normalised.

Where to crop and whether to mirror is drawn on the CPU, so that every device sees the same pictures.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from curate.config.resolved import MeasuredImages
from curate.rng import drawn


@dataclass(frozen=True)
class Strength:
    """How far a view may be from its image.

    Args:
        area: least share of the image that a crop takes.
        tone: brightness and contrast are multiplied by 1 - tone .. 1 + tone.
        tint: so is each channel of a colour image, by its own number.
        grey: probability that a colour image loses its colour.
    """

    area: float
    tone: float
    tint: float
    grey: float


#: Small images bear less than the crops and colours of SimCLR, which "strong" follows (Chen et al. 2020, appendix A).
STRENGTHS = {"mild": Strength(0.3, 0.3, 0.2, 0.0), "strong": Strength(0.08, 0.8, 0.4, 0.2)}
#: Sides of a crop: from 3 by 4 to 4 by 3.
ASPECT = 4 / 3


@dataclass(frozen=True)
class Augment:
    """What is done to images on their way into the network.

    Args:
        crop: side of the crop in pixels.
        mirror: whether to mirror with probability 1/2 in training.
        mean, deviation: per channel, in [0, 1]; of the source, for the target's images too.
        strength: of `distorted`: one of `STRENGTHS`.
    """

    crop: int
    mirror: bool
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    strength: str = "mild"

    @classmethod
    def of(cls, images: MeasuredImages) -> Augment:
        """The augmentation of a run: its crop, mirroring and strength, and the mean and deviation of its pixels."""
        return cls(images.crop, images.mirror, images.mean, images.deviation, images.augment_strength or "mild")

    def training(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Random crop, mirrored with probability 1/2: uint8 (k, C, S, S) -> uint8 (k, C, crop, crop)."""
        return crop_and_mirror(pixels, self.crop, self.mirror, generator)

    def distorted(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Random crop, resized, mirror, and tone: uint8 (k, C, S, S) -> normalised floats (k, C, crop, crop)."""
        how = STRENGTHS[self.strength]
        return self.normalise(toned(resized_crop(pixels, self.crop, self.mirror, how, generator), how, generator))

    def centre(self, pixels: Tensor) -> Tensor:
        """Centre crop. uint8 (k, C, S, S) -> uint8 (k, C, crop, crop)."""
        return centre_crop(pixels, self.crop)

    def normalise(self, pixels: Tensor) -> Tensor:
        """uint8 -> float32, (x / 255 - mean) / deviation per channel."""
        return normalise(pixels, self.mean, self.deviation)


def crop_and_mirror(pixels: Tensor, crop: int, mirror: bool, generator: torch.Generator) -> Tensor:
    """Each image's own random crop, mirrored with probability 1/2 where ``mirror``, as one gather for the batch.

    uint8 (k, C, S, S) -> uint8 (k, C, crop, crop)."""
    k, channels, height, width = pixels.shape

    def below(most: int) -> Tensor:
        return drawn(lambda n: torch.randint(most, (n, 1), generator=generator), k, generator)

    top, left, flipped = below(height - crop + 1), below(width - crop + 1), below(2)
    if (height, width) == (crop, crop) and not mirror:
        return pixels
    along = torch.arange(crop)
    columns = torch.where(flipped.bool() & mirror, left + crop - 1 - along, left + along)
    index = ((top + along)[:, :, None] * width + columns[:, None, :]).flatten(1)
    index = index.to(pixels.device, non_blocking=True)[:, None, :].expand(-1, channels, -1)
    return pixels.flatten(2).gather(2, index).view(k, channels, crop, crop)


def resized_crop(pixels: Tensor, crop: int, mirror: bool, how: Strength, generator: torch.Generator) -> Tensor:
    """Each image's own random part of ``how.area`` .. 1 of it, scaled to (crop, crop), mirrored with probability 1/2
    where ``mirror``: uint8 -> floats in 0 .. 255, one bilinear look-up for the batch."""
    area, aspect, across, down, flip = _uniform(pixels, 5, generator)
    area, aspect = how.area + (1 - how.area) * area, ASPECT ** (2 * aspect - 1)
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    right, below, none = (2 * across - 1) * (1 - width), (2 * down - 1) * (1 - height), torch.zeros_like(area)
    if mirror:
        width = torch.where(flip < 0.5, -width, width)
    theta = torch.stack([width, none, right, none, height, below], 1).view(-1, 2, 3)
    grid = F.affine_grid(theta, [*pixels.shape[:2], crop, crop], align_corners=False)
    return F.grid_sample(pixels.float(), grid, padding_mode="reflection", align_corners=False)


def toned(x: Tensor, how: Strength, generator: torch.Generator) -> Tensor:
    """Each image's own contrast, brightness and, of three channels, tint or none: floats in 0 .. 255, and back."""
    drawn = _uniform(x, 6, generator).T[:, :, None, None]
    contrast, brightness = (1 + how.tone * (2 * drawn[:, i : i + 1] - 1) for i in (0, 1))
    mean = x.mean((1, 2, 3), keepdim=True)
    x = ((x - mean) * contrast + mean) * brightness
    if x.shape[1] == 3:
        x = x * (1 + how.tint * (2 * drawn[:, 2:5] - 1))
        x = torch.where(drawn[:, 5:] < how.grey, x.mean(1, keepdim=True), x)
    return x.clamp(0, 255)


def _uniform(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(count, k) numbers in [0, 1), drawn on the CPU, on the device of ``x``."""
    numbers = drawn(lambda n: torch.rand(count, n, generator=generator), len(x), generator, dim=1)
    return numbers.to(x.device, non_blocking=True)


def centre_crop(pixels: Tensor, crop: int) -> Tensor:
    """The central square of side ``crop`` of each image: (k, C, H, W) -> (k, C, crop, crop), a view."""
    top, left = (pixels.shape[2] - crop) // 2, (pixels.shape[3] - crop) // 2
    return pixels[:, :, top : top + crop, left : left + crop]


def rotations(x: Tensor) -> Tensor:
    """All images turned by 0, 90, 180 and 270 degrees, exactly: (k, C, S, S) -> (4 k, C, S, S), turn by turn."""
    return torch.cat([x, x.transpose(2, 3).flip(2), x.flip(2, 3), x.transpose(2, 3).flip(3)])


def normalise(pixels: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """(k, C, H, W) in 0 .. 255 -> float32: (x / 255 - mean) / deviation, as one multiply and one add."""
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
