"""Packs data sets of MNIST's layout (IDX files): one mixed unlabelled store with its domains, and one set as target.

The store holds training images of all sets; the target has images of its own set alone (Ericsson, Gouk, Hospedales
2020, section 4.1): train drives the weights, val selects, test is the set's own. No image is in two places.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from shards.arrays import Int64Array, UInt8Array
from shards.errors import Misuse, ShardError
from shards.indexing import domains, index, index_file
from shards.io import shard_set
from shards.io.regular_files import open_regular
from shards.member_names import storable
from shards.packing.imagefolder import check_paths
from shards.packing.journal import Journal, identity_of, resumed_folder
from shards.packing.made import Maker, write_made
from shards.packing.pictures import Pictures, as_png
from shards.packing.target import write_classes
from shards.shuffle import permutation
from shards.tar.writer import SHARD_SIZE

#: Images of its set that a target gets: `OWN` where the set has at least `MNIST`, else one in `SHARE`.
OWN, MNIST, SHARE = 10_000, 60_000, 6
#: Val gets a tenth of these, at most this many.
MAX_VAL = 1_000


@dataclass(frozen=True)
class Limits:
    """The number of images at most; None for all there are.

    Args:
        store: of each set.
        train, val, test: of the target.
    """

    store: int | None = None
    train: int | None = None
    val: int | None = None
    test: int | None = None


@dataclass(frozen=True)
class IdxReport:
    """What was packed.

    Args:
        store: number of images of the store, by set.
        target: number of images of the target, by split.
        classes: number of the target's classes.
        own: the set that is the target.
    """

    store: dict[str, int]
    target: dict[str, int]
    classes: int
    own: str

    def text(self) -> str:
        """The counts in a line for people."""
        store = ", ".join(f"{n:,} {name}" for name, n in self.store.items())
        target = ", ".join(f"{n:,} {name}" for name, n in self.target.items())
        return f"packed a store of {store}; target {self.own}: {target} in {self.classes} classes"

    def remarks(self) -> list[str]:
        """None: a set is packed whole or refused."""
        return []


@dataclass(frozen=True)
class TrainingSplit:
    """Where a set's own training images go, as positions in its file; disjoint, each part shuffled."""

    train: Int64Array
    val: Int64Array
    store: Int64Array


def pack_idx(
    sets: Sequence[Path],
    own: str,
    out: Path,
    *,
    take: Limits | None = None,
    seed: int = 0,
    shard_size: int = SHARD_SIZE,
    workers: int = 1,
) -> IdxReport:
    """Write ``out/store`` with its index and domains, and ``out/target``; ``out`` appears whole, a kill loses little.

    Images are gray PNGs with keys ``SET-train-00017``, the number being the image's position in its file; a domain has
    the name of its folder. The order of the store is random by ``seed``.

    Args:
        sets: folders of MNIST-layout files.
        own: name of the folder that becomes the target.
        take: limits for smaller scales; which images are taken is random by ``seed``.
        workers: processes that encode; the shards are the same whatever their number.

    Raises:
        Misuse: ``out`` holds files or overlaps a set; two sets of one name, or a name that no domain may have; ``own``
            is none of the sets; an invalid limit.
        ShardError: a file cannot be used; the message says which and why.
    """
    for folder in sets:
        check_paths(folder, out, shard_size)
    take = take or Limits()
    named = _named(sets, own, take)
    training = {name: read_split(folder, "train") for name, folder in named.items()}
    test = read_split(named[own], "t10k")
    parts = split_training_images(len(training[own].images), take, seed)
    chosen = {name: _store_images(name, split, take, seed) for name, split in training.items()} | {own: parts.store}
    splits = {"train": (training[own], "train", parts.train), "val": (training[own], "train", parts.val)}
    splits["test"] = (test, "t10k", _shuffled(len(test.images), f"test of {own}", seed)[: take.test])
    asked = identity_of(_files_of(named, own), own, vars(take), seed, shard_size)
    with resumed_folder(out, asked) as (folder, journal):
        _write_store(folder, training, chosen, seed, shard_size, journal, workers)
        for split, (source, origin, places) in splits.items():
            maker = _labelled(own, origin, source, places)
            write_made(folder, f"target/{split}/", maker, shard_size, journal, workers)
        classes = 1 + max(int(source.labels.max()) for source in (training[own], test))
        write_classes(folder / "target", [str(label) for label in range(classes)])
    counts = {split: len(places) for split, (_, _, places) in splits.items()}
    return IdxReport({name: len(places) for name, places in chosen.items()}, counts, classes, own)


def split_training_images(count: int, take: Limits, seed: int) -> TrainingSplit:
    """Split the ``count`` training images of the target's set: it gets 10,000 of 60,000 or more, else a sixth.

    Raises:
        ShardError: too few images for a train, a val and a store.
    """
    held = OWN if count >= MNIST else count // SHARE
    n_val = min(MAX_VAL, held // 10)
    if n_val < 1:
        todo = "name another set as the target's own"
        raise ShardError("too few images for a target", expected="60 or more to train on", found=count, todo=todo)
    turn = permutation(seed, "parts of the target's set", 0, count)
    val, train, store = turn[:n_val], turn[n_val:held], turn[held:]
    return TrainingSplit(train[: take.train], val[: take.val], store[: take.store])


def _named(sets: Sequence[Path], own: str, take: Limits) -> dict[str, Path]:
    named = {folder.resolve().name: folder for folder in sets}
    for name, folder in named.items():
        domains.check_name(name, storable(str(folder)))
    if len({_stem(name) for name in named}) < len(sets):
        twice = ", ".join(sorted(folder.resolve().name for folder in sets))
        raise Misuse("two sets of one name", found=twice, todo="rename a folder: its name is its images' domain")
    if own not in named:
        known = ", ".join(named)
        raise Misuse("the target's own set is not among the sets", expected=known, found=own, todo="name one of them")
    for name, limit in vars(take).items():
        if limit is not None and limit < 1:
            raise Misuse(f"a limit of {name}", expected="at least 1", found=limit, todo="give a larger one")
    return named


def _store_images(name: str, split: IdxSplit, take: Limits, seed: int) -> Int64Array:
    return _shuffled(len(split.images), f"images of {name!r}", seed)[: take.store]


def _shuffled(count: int, purpose: str, seed: int) -> Int64Array:
    return permutation(seed, purpose, 0, count)


def _files_of(named: dict[str, Path], own: str) -> list[Path]:
    """All that is read of the sets."""
    read_of = [(folder, "train") for folder in named.values()] + [(named[own], "t10k")]
    return [_file_of(folder, split, part) for folder, split in read_of for part in ("images", "labels")]


def _write_store(
    folder: Path,
    training: dict[str, IdxSplit],
    chosen: dict[str, Int64Array],
    seed: int,
    shard_size: int,
    journal: Journal,
    workers: int,
) -> None:
    sources = tuple(training)
    codes = np.repeat(np.arange(len(sources), dtype=np.int32), [len(chosen[name]) for name in sources])
    places = np.concatenate([chosen[name] for name in sources])
    turn = permutation(seed, "order of the store", 0, len(codes))
    codes, places = codes[turn], places[turn]

    def load(numbers: range) -> Pictures:
        held = [(sources[codes[number]], int(places[number])) for number in numbers]
        return Pictures(
            [_key(name, "train", at) for name, at in held], [training[name].images[at] for name, at in held]
        )

    write_made(folder, "store/", Maker(len(codes), load, as_png), shard_size, journal, workers)
    made, _ = index.build(shard_set.resolve(folder / "store"))
    index_file.save(made, index_file.beside(folder / "store"))
    domains.save(made, domains.Domains(sources, codes), folder / "store" / domains.FILE_NAME)


def _labelled(name: str, origin: str, source: IdxSplit, places: Int64Array) -> Maker[Pictures]:
    def load(numbers: range) -> Pictures:
        chosen = places[numbers.start : numbers.stop]
        keys = [_key(name, origin, place) for place in chosen.tolist()]
        return Pictures(keys, source.images[chosen], source.labels[chosen].astype(np.int64))

    return Maker(len(places), load, as_png)


def _key(name: str, split: str, place: int) -> str:
    return f"{_stem(name)}-{split}-{place:05d}"


def _stem(name: str) -> str:
    # A dot would end the key.
    return name.replace(".", "_")


#: Type of an IDX element: unsigned byte.
_UBYTE = 0x08
_GZIP = b"\x1f\x8b"
#: Bytes that are read into memory at most.
MAX_BYTES = 1 << 32


@dataclass(frozen=True)
class IdxSplit:
    """One split of a set.

    Args:
        images: shape (n, height, width), uint8.
        labels: shape (n,), uint8.
    """

    images: UInt8Array
    labels: UInt8Array


def read_split(folder: Path, split: str) -> IdxSplit:
    """Images and labels of ``train`` or ``t10k``, from files with MNIST's names.

    Raises:
        ShardError: a file is missing or invalid, or images and labels differ in number.
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


def read(path: Path, sides: int) -> UInt8Array:
    """The array of an IDX file of unsigned bytes with ``sides`` dimensions, none of size 0.

    Raises:
        ShardError: wrong magic or size, or a truncated or damaged gzip; the message says which.
    """
    try:
        with open_regular(path) as plain:
            packed = plain.read(2) == _GZIP
            plain.seek(0)
            if not packed:
                return _read(plain, path, sides)
            with gzip.open(plain) as unpacked:
                return _read(unpacked, path, sides)  # type: ignore[arg-type]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _wrong(path, f"cut or damaged gzip ({error})") from error


def _read(file: BinaryIO, path: Path, sides: int) -> UInt8Array:
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
    if not 0 < n_bytes <= MAX_BYTES:
        raise _wrong(
            path, "its header states an impossible size", f"1 to {MAX_BYTES} bytes", " x ".join(map(str, shape))
        )
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
