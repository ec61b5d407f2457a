"""Packs STL-10: the unlabelled images as a store, the labelled ones as a target. Pixels become PNG, without loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import png, stl10
from .errors import ShardError
from .halves import halves
from .order import Rows
from .pack import check_request
from .publish import publishing_folder
from .stl10 import Labelled, Planes
from .target import shuffled, write_target
from .write import SHARD_SIZE, Sample, write_shards


@dataclass(frozen=True)
class Stl10Report:
    """What was packed.

    Args:
        store: images of the store, 0 where there is none.
        target: samples of the target by split.
        classes: names by label.
        notes: what a person should know.
    """

    store: int
    target: dict[str, int]
    classes: tuple[str, ...]
    notes: tuple[str, ...]


def pack_stl10(
    folder: Path, out: Path, *, fold: int | None = None, seed: int = 0, shard_size: int = SHARD_SIZE
) -> Stl10Report:
    """Pack the binary files of ``folder`` as ``out``/store and ``out``/target, which appear together or not at all.

    Train and val are stratified halves, by the seed, of the labelled train images; test is STL-10's. A key is the part
    and the image's place in it: ``unlabeled/000017``. Without unlabeled_X.bin there is a target and no store.

    Args:
        fold: take only this one of the predefined folds of train, from 0; test stays whole.

    Raises:
        Misuse: ``out`` holds something or lies in ``folder``; no such folder or fold.
        ShardError: a file is missing or not of the size or values that STL-10's have; fewer than two train images.
    """
    check_request(folder, out, shard_size)
    source = stl10.locate(folder)
    train, test, unlabelled = stl10.labelled(source, "train"), stl10.labelled(source, "test"), stl10.unlabelled(source)
    classes = stl10.class_names(source)
    chosen = np.arange(len(train.labels)) if fold is None else stl10.fold(source, fold, len(train.labels))
    rows = dict(zip(("train", "val"), (chosen[half] for half in halves(train.labels[chosen], None, seed))))
    if not all(map(len, rows.values())):
        raise ShardError("too few images for train and val", shard=str(source), expected="2 or more", found=len(chosen))
    splits = {name: _labelled("train", train, shuffled(rows[name], name, seed)) for name in rows}
    splits["test"] = _labelled("test", test, shuffled(np.arange(len(test.labels)), "test", seed))
    with publishing_folder(out) as place:
        if unlabelled is not None:
            write_shards(place / "store", _unlabelled(unlabelled), shard_size=shard_size)
        counts = write_target(place / "target", splits, classes, shard_size=shard_size)
    if unlabelled is None:
        return Stl10Report(0, counts, classes, (f"{source}: has no unlabeled_X.bin, so there is no store",))
    return Stl10Report(len(unlabelled), counts, classes, ())


def _unlabelled(planes: Planes) -> Iterator[Sample]:
    for row in range(len(planes)):
        yield [(f"unlabeled/{row:06d}.png", png.encode(stl10.pixels(planes[row])))]


def _labelled(part: str, images: Labelled, rows: Rows) -> Iterator[Sample]:
    for row in rows.tolist():
        key = f"{part}/{row:06d}"
        yield [
            (f"{key}.png", png.encode(stl10.pixels(images.planes[row]))),
            (f"{key}.cls", b"%d" % images.labels[row]),
        ]
