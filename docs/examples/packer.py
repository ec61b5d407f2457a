"""A packer: arrays of images become a store, and labelled ones a target. Here, scikit-learn's digits.

A packer is any function that yields samples, each a list of (member name, bytes): `write_shards` makes the tars.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from sklearn.datasets import load_digits

from shards.tar.writer import Sample, write_shards

Pixels = npt.NDArray[np.uint8]
#: Images of each split of the target; all others are the store.
SPLITS = {"train": slice(0, 200), "val": slice(200, 300), "test": slice(300, 500)}


def samples(images: Pixels, labels: npt.NDArray[np.int64] | None = None) -> Iterator[Sample]:
    """One sample an image, shape (n, H, W): a PNG, and a .cls member where there are labels. Keys are places."""
    for place, pixels in enumerate(images):
        packed = io.BytesIO()
        Image.fromarray(pixels).save(packed, "PNG")
        label = [] if labels is None else [(f"{place:06d}.cls", str(labels[place]).encode())]
        yield [(f"{place:06d}.png", packed.getvalue()), *label]


def pack_digits(out: Path) -> None:
    """Write ``out``/store, unlabelled, and ``out``/target with train/, val/, test/ and classes.txt."""
    digits = load_digits()
    images = np.kron(digits.images * 255 / 16, np.ones((2, 2))).astype(np.uint8)  # 8 x 8 in 0..16 -> 16 x 16
    write_shards(out / "store", samples(images[500:]), shard_size=200_000)
    for split, part in SPLITS.items():
        write_shards(out / "target" / split, samples(images[part], digits.target[part]))
    (out / "target" / "classes.txt").write_text("".join(f"{digit}\n" for digit in range(10)))


if __name__ == "__main__":
    import shards

    pack_digits(Path("data"))
    print(shards.open_index("data/store").table.slice(0, 3).to_pylist())
