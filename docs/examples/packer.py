"""A packer: what numpy saved becomes a store and a target. Here, the arrays are scikit-learn's digits.

A packer yields samples, each a list of (member name, bytes): `write_shards` makes the tars. `pack_arrays` takes what
every packer takes, the path of its source, ``out``, ``seed`` and ``shard_size``, and an option of its own.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from sklearn.datasets import load_digits

import curate
from curate.config.packers import COUNT, PackerSpec, PackOption
from shards.io.atomic import atomic_folder
from shards.tar.writer import Sample, write_shards

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ArraysReport:
    """What was packed: ``--json`` prints the fields, without it the command prints the text."""

    store: int
    target: dict[str, int]

    def text(self) -> str:
        """The counts in a line."""
        return f"packed a store of {self.store:,} images; target: {self.target}"

    def remarks(self) -> list[str]:
        """Lines on stderr, such as what was left out."""
        return []


def samples(images: Pixels, labels: Labels | None = None) -> Iterator[Sample]:
    """One sample an image, shape (n, H, W): a PNG, and a .cls member where there are labels. Keys are positions."""
    for row, pixels in enumerate(images):
        packed = io.BytesIO()
        Image.fromarray(pixels).save(packed, "PNG")
        label = [] if labels is None else [(f"{row:06d}.cls", str(labels[row]).encode())]
        yield [(f"{row:06d}.png", packed.getvalue()), *label]


def pack_arrays(
    source: Path, *, out: Path, seed: int = 0, shard_size: int = 200_000, labelled: int = 500
) -> ArraysReport:
    """Write ``out``/store, unlabelled, and ``out``/target with train/, val/, test/ and classes.txt.

    Args:
        source: a .npz file of ``images``, uint8, shape (n, H, W), and ``labels``, integers from 0, shape (n,).
        labelled: images of the target, drawn by ``seed``: 40 % train, 20 % val, 40 % test.
    """
    arrays = np.load(source)
    order = np.random.default_rng(seed).permutation(len(arrays["images"]))
    images, labels = arrays["images"][order], arrays["labels"][order]
    train, val = 2 * labelled // 5, 3 * labelled // 5
    splits = {"train": slice(0, train), "val": slice(train, val), "test": slice(val, labelled)}
    with atomic_folder(out) as folder:  # all of it, or nothing
        write_shards(folder / "store", samples(images[labelled:]), shard_size=shard_size)
        for split, part in splits.items():
            write_shards(folder / "target" / split, samples(images[part], labels[part]), shard_size=shard_size)
        (folder / "target" / "classes.txt").write_text("".join(f"{name}\n" for name in range(labels.max() + 1)))
    return ArraysReport(len(images[labelled:]), {split: len(images[part]) for split, part in splits.items()})


SPEC = PackerSpec(
    pack_arrays,
    title="a .npz file of images and labels",
    layout="images (n, H, W) of bytes, labels (n,)",
    makes="store and target",
    examples=("digits.npz --out data", "digits.npz --labelled 200 --out data"),
    source="file",
    is_file=True,
    options=(PackOption("labelled", "Images of the target [default: 500].", int, COUNT),),
)


def save_digits(path: Path) -> None:
    """Scikit-learn's digits, 8 x 8 pixels of 0 to 16 made 16 x 16 of 0 to 255."""
    digits = load_digits()
    images = np.kron(digits.images * 255 / 16, np.ones((2, 2))).astype(np.uint8)
    np.savez(path, images=images, labels=digits.target)


def pack_digits(out: Path) -> None:
    """The data of the other examples, unless it is there."""
    save_digits(Path("digits.npz"))
    if not out.exists():
        pack_arrays(Path("digits.npz"), out=out)


if __name__ == "__main__":
    import shards

    save_digits(Path("digits.npz"))
    curate.register_packer("arrays", pack_arrays, title=SPEC.title, layout=SPEC.layout, options=SPEC.options)
    print(curate.pack("arrays", "digits.npz", out="digits", labelled=200).text())
    print(shards.open_index("digits/store").table.slice(0, 3).to_pylist())
