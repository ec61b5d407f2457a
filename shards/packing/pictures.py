"""Images that are pixels so far, and become lossless PNGs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shards.arrays import Int64Array, UInt8Array
from shards.io.images import encode_png
from shards.packing.made import Made


class Pictures(NamedTuple):
    """Some images.

    Args:
        keys: of their samples.
        pixels: of each, shape (height, width) or (height, width, 3).
        labels: shape (n,), int64; None where they have none.
    """

    keys: Sequence[str]
    pixels: Iterable[UInt8Array]
    labels: Int64Array | None = None


def as_png(pictures: Pictures) -> list[Made]:
    """The sample of each: a PNG, and its label where there is one."""
    samples = [[(f"{key}.png", encode_png(pixels))] for key, pixels in zip(pictures.keys, pictures.pixels, strict=True)]
    if pictures.labels is not None:
        for key, sample, label in zip(pictures.keys, samples, pictures.labels.tolist(), strict=True):
            sample.append((f"{key}.cls", b"%d" % label))
    return [Made(sample, {}) for sample in samples]
