"""Reads the binary files of STL-10: images as memory maps, labels, class names, folds; every size is checked.

An image is 3 x 96 x 96 bytes: the red plane, the green, the blue, each column by column. A label is a byte from 1 on.
What is packed of it, and how, is `pack_stl10`'s.

Reference: Coates, Lee, Ng 2011, An Analysis of Single Layer Networks in Unsupervised Feature Learning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .errors import Misuse, ShardError

SIDE = 96
IMAGE_BYTES = 3 * SIDE * SIDE
#: What the archive of STL-10 unpacks to; the folder above it may be named as well.
FOLDER = "stl10_binary"
_GET = "unpack stl10_binary.tar.gz there, or let --download fetch it"
_NUMBER = re.compile("[0-9]{1,9}")

Planes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Labelled:
    """A labelled part, train or test.

    Args:
        planes: shape (n, 3, 96, 96), uint8, as stored; `pixels` turns one upright.
        labels: shape (n,), int64, from 0.
    """

    planes: Planes
    labels: npt.NDArray[np.int64]


def locate(folder: Path) -> Path:
    """The folder of the binary files: ``folder`` itself, or ``folder``/stl10_binary.

    Raises:
        Misuse: no such folder.
    """
    if not folder.is_dir():
        raise Misuse("no such folder", shard=str(folder), todo=_GET)
    return folder / FOLDER if (folder / FOLDER).is_dir() else folder


def pixels(planes: Planes) -> Planes:
    """Shape (3, 96, 96) as stored -> (96, 96, 3): rows, columns, RGB."""
    return np.ascontiguousarray(planes.transpose(2, 1, 0))


def labelled(folder: Path, part: str) -> Labelled:
    """The part "train" or "test".

    Raises:
        ShardError: a file is missing, no whole number of images or labels long, or a label is no class's.
    """
    planes = images(folder / f"{part}_X.bin")
    path = folder / f"{part}_y.bin"
    labels = np.frombuffer(_bytes(path), np.uint8).astype(np.int64) - 1
    if len(labels) != len(planes):
        raise ShardError("a label an image", shard=str(path), expected=f"{len(planes)} bytes", found=len(labels))
    n_classes = len(class_names(folder))
    wrong = np.flatnonzero((labels < 0) | (labels >= n_classes))
    if len(wrong):
        expected, found = f"1 to {n_classes}", int(labels[wrong[0]]) + 1
        raise ShardError("no class's label", shard=str(path), offset=int(wrong[0]), expected=expected, found=found)
    return Labelled(planes, labels)


def unlabelled(folder: Path) -> Planes | None:
    """The unlabelled images, shape (n, 3, 96, 96), uint8, as stored; None where the file is not there.

    Raises:
        ShardError: it is no whole number of images long.
    """
    path = folder / "unlabeled_X.bin"
    return images(path) if path.exists() else None


def images(path: Path) -> Planes:
    """Map a file of images; nothing is read before it is used.

    Returns:
        Shape (n, 3, 96, 96), uint8, n at least 1: channels, columns, rows.

    Raises:
        ShardError: it is missing, empty, or no whole number of images long.
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


def fold(folder: Path, number: int, n_images: int) -> npt.NDArray[np.int64]:
    """The train images of one of the predefined folds, int64, sorted.

    Args:
        number: a line of fold_indices.txt, from 0.
        n_images: how many train images there are.

    Raises:
        Misuse: there is no fold of that number.
        ShardError: the file is missing, or the line has something else than indices of different train images.
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
    return path.read_bytes()
