"""Packs STL-10: its unlabelled images as a store, the labelled ones as a target, pixels as lossless PNG."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shards.arrays import Int64Array, UInt8Array
from shards.errors import Misuse, ShardError
from shards.io.folders import PassedOver, walk_folder
from shards.io.regular_files import read_regular
from shards.packing.imagefolder import check_paths
from shards.packing.journal import identity_of, resumed_folder
from shards.packing.made import Maker, write_made
from shards.packing.pictures import Pictures, as_png
from shards.packing.splits import split_train_val
from shards.packing.target import shuffled, write_classes
from shards.tar.writer import SHARD_SIZE


@dataclass(frozen=True)
class Stl10Report:
    """What was packed.

    Args:
        store: number of images of the store, 0 where there is none.
        target: number of samples by split.
        classes: names by label.
        notes: remarks for people.
    """

    store: int
    target: dict[str, int]
    classes: tuple[str, ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        """The counts in a line for people."""
        counts = ", ".join(f"{n:,} {name}" for name, n in self.target.items())
        return f"packed a store of {self.store:,} images; target: {counts}"

    def remarks(self) -> list[str]:
        """The notes, a line each."""
        return [f"note: {note}" for note in self.notes]


def pack_stl10(
    folder: Path,
    out: Path,
    *,
    fold: int | None = None,
    seed: int = 0,
    shard_size: int = SHARD_SIZE,
    workers: int = 1,
) -> Stl10Report:
    """Pack the binary files of ``folder`` as ``out``/store and ``out``/target; ``out`` appears whole.

    Train and val are stratified halves of the labelled train images, by ``seed``; test is STL-10's. A key is the part
    and the image's position in it: ``unlabeled/000017``. Without unlabeled_X.bin there is no store.

    Args:
        fold: use only this one of the predefined folds of train, from 0; test stays whole.
        workers: processes that encode; the shards are the same whatever their number.

    Raises:
        Misuse: ``out`` holds files or overlaps ``folder``; no such folder or fold.
        ShardError: a file is missing or has another size or values than STL-10's; fewer than two train images.
    """
    check_paths(folder, out, shard_size)
    source = locate(folder)
    train, test, unlabelled = read_labelled(source, "train"), read_labelled(source, "test"), read_unlabelled(source)
    classes = class_names(source)
    chosen = np.arange(len(train.labels)) if fold is None else read_fold(source, fold, len(train.labels))
    rows = dict(zip(("train", "val"), (chosen[half] for half in split_train_val(train.labels[chosen], None, seed))))
    if not all(map(len, rows.values())):
        raise ShardError("too few images for train and val", shard=str(source), expected="2 or more", found=len(chosen))
    held = {name: _labelled("train", train, shuffled(rows[name], name, seed)) for name in rows}
    held["test"] = _labelled("test", test, shuffled(np.arange(len(test.labels)), "test", seed))
    sets = {} if unlabelled is None else {"store/": _unlabelled(unlabelled)}
    sets |= {f"target/{name}/": maker for name, maker in held.items()}
    asked = identity_of([source / name for name in sorted(_FILES)], fold, seed, shard_size)
    with resumed_folder(out, asked) as (place, journal):
        for name, maker in sets.items():
            write_made(place, name, maker, shard_size, journal, workers)
        write_classes(place / "target", classes)
    counts = {name: maker.count for name, maker in held.items()}
    notes = [f"{source}: has no unlabeled_X.bin, so there is no store"] if unlabelled is None else []
    passed_over = other_files(source).text()
    notes += [f"{source}: passed over {passed_over}"] if passed_over else []
    return Stl10Report(0 if unlabelled is None else len(unlabelled), counts, classes, tuple(notes))


def _unlabelled(planes: UInt8Array) -> Maker[Pictures]:
    def load(rows: range) -> Pictures:
        return Pictures([f"unlabeled/{row:06d}" for row in rows], pixels(planes[rows.start : rows.stop]))

    return Maker(len(planes), load, as_png)


def _labelled(part: str, images: LabelledPart, rows: Int64Array) -> Maker[Pictures]:
    def load(numbers: range) -> Pictures:
        chosen = rows[numbers.start : numbers.stop]
        keys = [f"{part}/{row:06d}" for row in chosen.tolist()]
        return Pictures(keys, pixels(images.planes[chosen]), images.labels[chosen])

    return Maker(len(rows), load, as_png)


SIDE = 96
IMAGE_BYTES = 3 * SIDE * SIDE
#: What the archive of STL-10 unpacks to; the folder above it may be named as well.
FOLDER = "stl10_binary"
_GET = "unpack stl10_binary.tar.gz there, or let --download fetch it"
#: The files of the archive.
_FILES = {"class_names.txt", "fold_indices.txt", "unlabeled_X.bin"} | {
    f"{part}_{what}.bin" for part in ("train", "test") for what in "Xy"
}
_NUMBER = re.compile("[0-9]{1,9}")


@dataclass(frozen=True)
class LabelledPart:
    """The labelled images of train or test.

    Args:
        planes: shape (n, 3, 96, 96), uint8, as stored, i.e. transposed; see `pixels`.
        labels: shape (n,), int64, from 0.
    """

    planes: UInt8Array
    labels: Int64Array


def locate(folder: Path) -> Path:
    """The folder of the binary files: ``folder`` itself, or ``folder``/stl10_binary.

    Raises:
        Misuse: no such folder.
    """
    if not folder.is_dir():
        raise Misuse("no such folder", shard=str(folder), todo=_GET)
    return folder / FOLDER if (folder / FOLDER).is_dir() else folder


def other_files(folder: Path) -> PassedOver:
    """What lies beside the binary files."""
    return walk_folder(folder, _FILES.__contains__)[1]


def pixels(planes: UInt8Array) -> UInt8Array:
    """Shape (..., 3, 96, 96) as stored -> (..., 96, 96, 3): rows, columns, RGB."""
    return np.ascontiguousarray(planes.swapaxes(-3, -1))


def read_labelled(folder: Path, part: str) -> LabelledPart:
    """The images and labels of "train" or "test".

    Raises:
        ShardError: a file is missing, its length is no multiple of an image's, the numbers of images and labels differ,
            or a label is out of range.
    """
    planes = map_images(folder / f"{part}_X.bin")
    path = folder / f"{part}_y.bin"
    labels = np.frombuffer(_bytes(path), np.uint8).astype(np.int64) - 1
    if len(labels) != len(planes):
        raise ShardError("a label an image", shard=str(path), expected=f"{len(planes)} bytes", found=len(labels))
    n_classes = len(class_names(folder))
    wrong = np.flatnonzero((labels < 0) | (labels >= n_classes))
    if len(wrong):
        expected, found = f"1 to {n_classes}", int(labels[wrong[0]]) + 1
        raise ShardError("no class's label", shard=str(path), offset=int(wrong[0]), expected=expected, found=found)
    return LabelledPart(planes, labels)


def read_unlabelled(folder: Path) -> UInt8Array | None:
    """The unlabelled images, shape (n, 3, 96, 96), uint8, as stored; None where the file is missing.

    Raises:
        ShardError: its length is no multiple of an image's.
    """
    path = folder / "unlabeled_X.bin"
    return map_images(path) if path.exists() else None


def map_images(path: Path) -> UInt8Array:
    """Memory-map a file of images.

    Returns:
        Shape (n, 3, 96, 96), uint8, n >= 1: channels, columns, rows.

    Raises:
        ShardError: it is missing or empty, or its length is no multiple of an image's.
    """
    if not path.is_file():
        raise ShardError("is missing", shard=str(path), todo=_GET)
    size = path.stat().st_size
    if not size or size % IMAGE_BYTES:
        expected = f"a multiple of {IMAGE_BYTES} bytes"
        raise ShardError("cut, or no STL-10 images", shard=str(path), expected=expected, found=size, todo=_GET)
    return np.memmap(path, np.uint8, "r", shape=(size // IMAGE_BYTES, 3, SIDE, SIDE))


def class_names(folder: Path) -> tuple[str, ...]:
    """The names in class_names.txt, by label.

    Raises:
        ShardError: the file is missing, empty, or no text.
    """
    names = tuple(line.strip() for line in _text(folder / "class_names.txt").splitlines() if line.strip())
    if not names:
        raise ShardError("names no class", shard=str(folder / "class_names.txt"), todo=_GET)
    return names


def read_fold(folder: Path, number: int, n_images: int) -> Int64Array:
    """Train images of one of the predefined folds: shape (n,), int64, sorted.

    Args:
        number: a line of fold_indices.txt, from 0.
        n_images: number of train images.

    Raises:
        Misuse: there is no fold of that number.
        ShardError: the file is missing, or the line is no list of distinct train images.
    """
    path = folder / "fold_indices.txt"
    lines = _text(path).splitlines()
    if not 0 <= number < len(lines):
        raise Misuse("no such fold", shard=str(path), expected=f"0 to {len(lines) - 1}", found=number)
    words = lines[number].split()
    places = {int(word) for word in words if _NUMBER.fullmatch(word) and int(word) < n_images}
    if not words or len(places) != len(words):
        expected, found = f"different numbers below {n_images}", repr(lines[number][:40])
        raise ShardError(f"line {number + 1} is no fold", shard=str(path), expected=expected, found=found, todo=_GET)
    return np.array(sorted(places), np.int64)


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode()
    except UnicodeDecodeError as error:
        raise ShardError("is no text", shard=str(path), todo=_GET) from error


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise ShardError("is missing", shard=str(path), todo=_GET)
    return read_regular(path)
