"""Reads MNIST-layout files: IDX arrays of bytes, plain or gzip (told by its magic), images with their labels.

Owns the format and what can be wrong with a file. What becomes of the images is `pack_idx`'s.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from shards.errors import ShardError

Bytes = npt.NDArray[np.uint8]

#: Type of an IDX element: unsigned byte.
_UBYTE = 0x08
_GZIP = b"\x1f\x8b"
#: Bytes that are read into memory at most.
LARGEST = 1 << 32


@dataclass(frozen=True)
class IdxSplit:
    """One split of a set.

    Args:
        images: shape (n, height, width), uint8.
        labels: shape (n,), uint8.
    """

    images: Bytes
    labels: Bytes


def read_split(folder: Path, split: str) -> IdxSplit:
    """The images and labels of ``train`` or ``t10k``, from files named as MNIST's.

    Raises:
        ShardError: a file is missing or not what its name says, or there is not one label an image.
    """
    images, labels = (read(_file_of(folder, split, part), sides) for part, sides in (("images", 3), ("labels", 1)))
    if len(images) != len(labels):
        raise ShardError(
            f"{split}: not one label an image",
            shard=str(folder),
            expected=f"{len(images)} labels",
            found=len(labels),
            todo="fetch both files again",
        )
    return IdxSplit(images, labels)


def read(path: Path, sides: int) -> Bytes:
    """The array of an IDX file of unsigned bytes with ``sides`` dimensions, none of them 0.

    Raises:
        ShardError: another magic, a size that does not hold, a cut or damaged gzip; one line that says which.
    """
    try:
        with open(path, "rb") as plain:
            packed = plain.read(2) == _GZIP
            plain.seek(0)
            if not packed:
                return _read(plain, path, sides)
            with gzip.open(plain) as unpacked:
                return _read(unpacked, path, sides)  # type: ignore[arg-type]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _wrong(path, f"cut or damaged gzip ({error})") from error


def _read(file: BinaryIO, path: Path, sides: int) -> Bytes:
    expected = bytes([0, 0, _UBYTE, sides])
    head = file.read(4 + 4 * sides)
    if head[:4] != expected:
        raise _wrong(
            path, f"not an IDX file of bytes with {sides} dimensions", expected.hex(), head[:4].hex() or "none"
        )
    if len(head) < 4 + 4 * sides:
        raise _wrong(path, "ends in its header", f"{4 + 4 * sides} bytes", len(head))
    shape = struct.unpack(f">{sides}I", head[4:])
    n_bytes = math.prod(shape)
    if not 0 < n_bytes <= LARGEST:
        raise _wrong(path, "its header states an impossible size", f"1 to {LARGEST} bytes", " x ".join(map(str, shape)))
    body = file.read(n_bytes + 1)
    if len(body) != n_bytes:
        found = len(body) if len(body) < n_bytes else "more"
        raise _wrong(path, "its length is not the one in its header", f"{n_bytes} bytes after it", found)
    return np.frombuffer(body, np.uint8).reshape(shape)


def _file_of(folder: Path, split: str, part: str) -> Path:
    """``train-images-idx3-ubyte`` or ``train-images.idx3-ubyte``, with or without ``.gz``."""
    rank = 3 if part == "images" else 1
    names = [f"{split}-{part}{mark}idx{rank}-ubyte{suffix}" for mark in "-." for suffix in (".gz", "")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise ShardError(
        f"no {split} {part} in MNIST's layout",
        shard=str(folder),
        expected=f"{names[1]} or {names[0]}",
        found="neither",
        todo="name a folder that holds them",
    )


def _wrong(path: Path, problem: str, expected: object = None, found: object = None) -> ShardError:
    return ShardError(problem, shard=str(path), expected=expected, found=found, todo="fetch the file again")
