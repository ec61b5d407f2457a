"""Small data in the layouts that tables 2 and 3 read, and a scale at which both are done in seconds."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from decathlon_makers import make_domain
from sklearn.datasets import load_digits

from curate.evaluation.grid import Cell, Grid
from curate.experiments.tables.presets import Scale, Table3Grid

#: 24 of 30 and of 40 images; an image of 12 px, a network of 2 channels; an epoch of 3 steps.
TINY = Scale(
    source=24,
    labelled=18,
    few=False,
    training={"network": "small", "width": 2, "size": 12, "crop": 8, "batch": 8, "epochs": 2, "workers": 0},
    decathlon={},
    stl10={"mirror": False},
    episode=(3, 1, 1),
    taps=("layer2", "pool"),
    patience=None,
    grid=Grid((Cell(1e-2, 0.0, 5),), epochs=1, batch=8),
    authors=True,
    table3=Table3Grid(rhos=(0.5,), lams=(0.1, 0.25)),
)
#: Digits of three classes in STL-10's layout; of the 40 without label the first 25 are said to be of the classes.
STL10, TRAIN, TEST, UNLABELLED, INSIDE = "digits96", 30, 15, 40, 25


def make_decathlon(root: Path) -> Path:
    """A source of 30 images and two targets of three classes: 24 train images each, 12 val."""
    root.mkdir(parents=True)
    for name, train, val in (("imagenet12", 10, 1), ("svhn", 8, 4), ("dtd", 8, 4)):
        make_domain(root, name, train, val)
    return root


def make_binaries(folder: Path) -> Path:
    """Digits 0, 1, 2 as 96 x 96 colour images in STL-10's files, with an origin.csv."""
    data = load_digits(n_class=3)
    folder.mkdir(parents=True)
    first = 0
    for part, count in (("train", TRAIN), ("test", TEST), ("unlabeled", UNLABELLED)):
        rows = slice(first, first + count)
        planes = np.kron(data.images[rows] * 15, np.ones((1, 12, 12))).astype(np.uint8)
        (folder / f"{part}_X.bin").write_bytes(np.repeat(planes[:, None], 3, axis=1).transpose(0, 1, 3, 2).tobytes())
        if part != "unlabeled":
            (folder / f"{part}_y.bin").write_bytes((data.target[rows] + 1).astype(np.uint8).tobytes())
        first += count
    (folder / "class_names.txt").write_text("nought\none\ntwo\n")
    with open(folder / "origin.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["archive", "file", "in_the_10_classes"])
        writer.writerows(["train.zip", f"{row}.jpg", "yes"] for row in range(TRAIN))
        writer.writerows(["unlabeled.zip", f"{row}.jpg", "yes" if row < INSIDE else "no"] for row in range(UNLABELLED))
    return folder


def make_material(folder: Path) -> Path:
    """Both layouts in one folder."""
    make_decathlon(folder / "decathlon-1.0")
    make_binaries(folder / STL10)
    return folder


def written(out: Path) -> dict[Path, int]:
    """When each file below a folder was last written."""
    return {path.relative_to(out): path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}


def without_seconds(said: Any) -> Any:
    """What two computations of one table share."""
    if isinstance(said, dict):
        return {key: without_seconds(value) for key, value in said.items() if key != "seconds"}
    return [without_seconds(value) for value in said] if isinstance(said, list) else said
