"""From the bytes of a member to uint8 pixels of one size, on the CPU, and the store's colour statistics.

What is a picture and what is not is decided in `shards.io.images`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from curate.config.resolved import ResolvedImages
from curate.data import jpeg
from curate.ranks import Part
from curate.types import ERRORS
from shards.io.images import ImageError, decode
from shards.member_names import RESERVED


@dataclass(frozen=True)
class Pixels:
    """Decoded images of one batch: those that decode, and the rows of those that do not with their error codes.

    Args:
        rows: shape (k,), int64, on the CPU.
        pixels: shape (k, C, size, size), uint8, on the CPU or the device.
        bad: (row, place in `ERRORS`) of each image that does not decode.
        spread: of a batch that several ranks share, which of its images ``pixels`` are, while ``rows`` and ``bad`` are
            of the whole; None where this process has them all.
    """

    rows: Tensor
    pixels: Tensor
    bad: tuple[tuple[int, int], ...] = ()
    spread: Part | None = None

    @property
    def part(self) -> Part:
        """Which images of the batch ``pixels`` are."""
        return self.spread or Part(0, len(self.rows), len(self.rows))

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes as plain arrays: pickle copies these once, a tensor several times."""
        return _of_arrays, (self.rows.numpy(), self.pixels.numpy(), self.bad)


def _of_arrays(rows: Any, pixels: Any, bad: tuple[tuple[int, int], ...]) -> Pixels:
    return Pixels(torch.from_numpy(rows), torch.from_numpy(pixels), bad)


@dataclass(frozen=True)
class Decoder:
    """Turns webdataset-shaped samples into `Pixels`; runs in the loader's workers.

    Args:
        size: side of the images in pixels.
        colour: grey or rgb.
        library: what decodes JPEG: pil, or simplejpeg, at a fraction of its size where that is enough.
    """

    size: int
    colour: str
    library: str = "pil"

    @classmethod
    def of(cls, images: ResolvedImages) -> Decoder:
        """The decoder of a run: its image size, number of channels and library.

        Raises:
            CurateError: the library is not installed.
        """
        if images.decoder == "simplejpeg":
            jpeg.available()
        return cls(images.size, images.colour, images.decoder)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of a decoded image: (C, size, size)."""
        return (3 if self.colour == "rgb" else 1, self.size, self.size)

    @property
    def n_bytes(self) -> int:
        """Bytes of a decoded image."""
        return math.prod(self.shape)

    def __call__(self, samples: list[dict[str, Any]]) -> Pixels:
        """Decode the image of each sample (its only member, beside what the reader says of it)."""
        rows, pictures, bad = [], [], []
        for sample in samples:
            try:
                pictures.append(self.pixels(image_bytes(sample)))
                rows.append(sample["__row__"])
            except ImageError as error:
                bad.append((int(sample["__row__"]), ERRORS.index(error.kind)))
        pixels = torch.stack(pictures) if pictures else torch.empty((0, *self.shape), dtype=torch.uint8)
        return Pixels(torch.tensor(rows, dtype=torch.int64), pixels, tuple(bad))

    def pixels(self, data: bytes) -> Tensor:
        """Decode one image file: uint8, shape (C, size, size).

        Raises:
            ImageError: it does not decode.
        """
        picture = jpeg.decode_jpeg(data, self.size, self.colour) if self.library == "simplejpeg" else None
        return to_pixels(decode(data) if picture is None else picture, self.size, self.colour)


def image_bytes(sample: dict[str, Any]) -> bytes:
    """The image's encoded bytes, of a sample in webdataset's form that holds it and its ``__key__`` alone."""
    return next(bytes(value) for name, value in sample.items() if name not in RESERVED)


def to_pixels(picture: Image.Image, size: int, colour: str) -> Tensor:
    """Shorter side to ``size`` (bicubic, antialiased), centre square -> uint8 (C, size, size)."""
    picture = picture.convert("RGB" if colour == "rgb" else "L")
    if max(picture.size) > 16 * min(picture.size):
        # A strip far longer than wide is cut first: scaled up whole it could take any amount of memory.
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        picture = picture.crop((left, top, left + side, top + side))
    if min(picture.size) != size:
        scale = size / min(picture.size)
        width, height = (max(size, round(side * scale)) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    if picture.size != (size, size):
        picture = _centre(picture, size)
    values = np.array(picture).reshape(size, size, -1)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def measure(batches: Iterable[Tensor]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation per channel in [0, 1] over uint8 images (k, C, H, W), rounded to 6 digits.

    A constant channel gets the deviation 1/255, so that it can be divided by.
    """
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for pixels in batches:
        x = pixels.double() / 255
        count += x.numel() // max(1, x.shape[1])
        total = total + x.sum(dim=(0, 2, 3))
        squares = squares + (x * x).sum(dim=(0, 2, 3))
    mean = total / max(1, count)
    deviation = (squares / max(1, count) - mean**2).clamp_min(0).sqrt().clamp_min(1 / 255)
    return tuple(round(v, 6) for v in mean.tolist()), tuple(round(v, 6) for v in deviation.tolist())


def _centre(picture: Image.Image, size: int) -> Image.Image:
    left, top = (round((side - size) / 2) for side in picture.size)
    return picture.crop((left, top, left + size, top + size))
