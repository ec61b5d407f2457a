"""The demo's images, from what scikit-learn ships: handwritten digits, and patches of two photographs.

The target is digits with labels; the store is other digits, without theirs, among nineteen times as many patches. Which
example is which is recorded beside the shards, for scoring only: keys say nothing, and no engine reads the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from sklearn.model_selection import train_test_split

from curate.errors import CurateError
from curate.ledger import table_file
from shards.io.atomic import atomic_folder, atomic_write
from shards.io.images import encode_png
from shards.packing.target import write_classes
from shards.tar.writer import write_shards

#: Images of each kind in the store, and labelled images of the target's splits.
DIGITS, PATCHES, SPLITS = 700, 13_300, {"train": 400, "val": 200, "test": 497}
#: Side of an image in pixels, and of the square of a photograph that is reduced to it.
SIDE, SQUARE = 16, 32
#: Small shards, so that there are several.
SHARD_SIZE = 4_000_000

_DOMAINS = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("key", "domain")])

Picture = npt.NDArray[np.uint8]


def pack(out: Path, seed: int, patches: int = PATCHES) -> None:
    """Write ``out``/source, ``out``/target and ``out``/domains.parquet, unless they are there.

    Args:
        seed: of which digits are the store's, of the patches and of the order.
        patches: number of photograph patches in the store.
    """
    digits = load_digits()
    places = np.arange(len(digits.target))
    rest, source = train_test_split(places, test_size=DIGITS, random_state=seed, stratify=digits.target)
    if not (out / "source").exists():
        pictures = [_digit(digits.images[i]) for i in source] + list(_patches(seed, patches))
        domains = np.array(["digit"] * DIGITS + ["patch"] * patches)
        turn = np.random.default_rng(seed).permutation(len(pictures))
        with atomic_write(out / "domains.parquet") as file:
            keys = [f"{place:05d}" for place in range(len(turn))]
            pq.write_table(pa.table({"key": keys, "domain": domains[turn]}), file, write_page_checksum=True)
        with atomic_folder(out / "source") as folder:
            samples = ([(f"{place:05d}.png", _png(pictures[i]))] for place, i in enumerate(turn))
            write_shards(folder, samples, shard_size=SHARD_SIZE)
    if not (out / "target").exists():
        with atomic_folder(out / "target") as folder:
            for name, chosen in _split(rest, digits.target, seed).items():
                samples = (
                    [
                        (f"{i:05d}.png", _png(_digit(digits.images[i]))),
                        (f"{i:05d}.cls", b"%d" % digits.target[i]),
                    ]
                    for i in chosen
                )
                write_shards(folder / name, samples, shard_size=SHARD_SIZE)
            write_classes(folder, [str(digit) for digit in range(10)])


def domains_of(out: Path, keys: pa.ChunkedArray) -> npt.NDArray[np.str_]:
    """Where the examples of these keys come from: "digit" or "patch".

    Raises:
        CurateError: the file is damaged, or says nothing of a key.
    """
    path, asked = out / "domains.parquet", keys.to_pylist()
    table = table_file.read(path, ["key", "domain"], _DOMAINS).to_pydict()
    known = dict(zip(table["key"], table["domain"]))
    if unknown := [key for key in asked if key not in known]:
        raise CurateError(f"{path}: says nothing of image {unknown[0]!a}; name another --out, where it is written anew")
    return np.array([known[key] for key in asked])


def _split(rest: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], seed: int) -> dict[str, npt.NDArray[np.int64]]:
    """Stratified train, val and test, each in random order."""
    train, others = train_test_split(rest, train_size=SPLITS["train"], random_state=seed, stratify=labels[rest])
    val, test = train_test_split(others, train_size=SPLITS["val"], random_state=seed, stratify=labels[others])
    return {"train": train, "val": val, "test": test}


def _digit(image: npt.NDArray[np.float64]) -> Picture:
    """8 x 8 in 0..16 -> SIDE x SIDE in 0..255."""
    pixels = np.round(image * (255 / 16)).astype(np.uint8)
    return np.asarray(Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def _patches(seed: int, count: int) -> Iterator[Picture]:
    """Random squares of the two photographs in turn, grey, reduced."""
    photographs = [np.asarray(Image.fromarray(image).convert("L")) for image in load_sample_images().images]
    rng = np.random.default_rng([seed, 1])
    for i in range(count):
        photograph = photographs[i % len(photographs)]
        top, left = (int(rng.integers(side - SQUARE + 1)) for side in photograph.shape)
        square = photograph[top : top + SQUARE, left : left + SQUARE]
        yield np.asarray(Image.fromarray(square).resize((SIDE, SIDE), Image.Resampling.BOX))


def _png(picture: Picture) -> bytes:
    return encode_png(picture, compress_level=6)  # a demo's bytes, and so the identity of its runs, stay as they were
