"""The mixed store of the study, and its targets.

Of each target some images stand in the store, unlabelled, among photographs and drawings of other kinds; the target is
of the others, and no group of images (a track of a sign, a writer) stands on two sides. Which image is of which target
is on record beside the store, for scoring alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curate.experiments.pays.sources import IMAGENETTE, Picture, apart, pictures, some
from shards.indexing import domains
from shards.io.atomic import atomic_folder
from shards.shuffle import permutation
from shards.store import open_index
from shards.tar.writer import write_shards

#: What can be a target, in this order.
TARGETS = ("gtsrb", "omniglot", "vgg-flowers", "notmnist", "ahcd", "dtd", "cifar100")
#: Of these sets the target is some classes; the others stand in the store, close to them and yet no help.
CLASSES = {"cifar100": 20}
#: Bytes of a shard of the store.
SHARD_SIZE = 4_000_000


@dataclass(frozen=True)
class Mixture:
    """How many of what.

    Args:
        inside: images of each target in the store.
        others: images of each other set, None for all.
        train, val, test: images of a target's splits at most.
    """

    inside: int
    others: Mapping[str, int | None]
    train: int
    val: int
    test: int


@dataclass(frozen=True)
class Divided:
    """A target's images: in the store of its classes and of others; and its splits."""

    inside: list[Picture]
    near: list[Picture]
    splits: dict[str, list[Picture]]


def pack(data: Path, out: Path, mixture: Mixture) -> None:
    """Write ``out``/store with its domains, and ``out``/targets; what is there is left.

    Raises:
        Misuse: ``data`` lacks a set.
    """
    if (out / "store").exists():
        return
    held: dict[str, list[Picture]] = {}
    for name, count in mixture.others.items():
        parts = [*pictures(data, name, "train"), *(pictures(data, name, "test") if name == IMAGENETTE else [])]
        held[name] = some(parts, count, f"others {name}")
    for name in TARGETS:
        divided = divide(data, name, mixture)
        held[name] = divided.inside
        if divided.near:
            held[f"{name}-others"] = some(divided.near, mixture.others.get(IMAGENETTE), f"near {name}")
        if not (out / "targets" / name).exists():
            with atomic_folder(out / "targets" / name) as folder:
                for split, images in divided.splits.items():
                    write_shards(folder / split, labelled(images, f"{name} {split}"))
    with atomic_folder(out / "store") as folder:
        write_shards(folder, mixed(held), shard_size=SHARD_SIZE)
        index = open_index(str(folder))
        names = tuple(sorted(held))
        codes = np.array([names.index(key.split("/")[0]) for key in index.table["key"].to_pylist()], np.int32)
        domains.save(index, domains.Domains(names, codes), folder / domains.FILE_NAME)


def divide(data: Path, name: str, mixture: Mixture) -> Divided:
    """Whole groups of a set's train images go to the store, to the target's val and to its train; its test is apart."""
    train, test, near = pictures(data, name, "train"), pictures(data, name, "test"), list[Picture]()
    if name in CLASSES:
        known = sorted({picture.label for picture in train})
        own = {known[place] for place in permutation(0, f"classes {name}", 0, len(known))[: CLASSES[name]]}
        near = [picture for picture in train if picture.label not in own]
        train, test = ([picture for picture in side if picture.label in own] for side in (train, test))
    inside, rest = apart(train, min(mixture.inside, len(train) // 2), f"inside {name}")
    val, rest = apart(rest, mixture.val, f"val {name}")
    splits = {"train": _every_class(rest, mixture.train, name), "val": val, "test": some(test, mixture.test, name)}
    return Divided(inside, near, splits)


def _every_class(found: list[Picture], count: int, name: str) -> list[Picture]:
    """At most ``count`` images, none of the classes left out: the first of each, then any."""
    first = {picture.label: place for place, picture in reversed(list(enumerate(found)))}
    turn = [int(place) for place in permutation(0, f"train {name}", 0, len(found)) if place not in first.values()]
    return [found[place] for place in sorted([*first.values(), *turn][:count])]


def labelled(images: Sequence[Picture], purpose: str) -> Iterator[list[tuple[str, bytes]]]:
    """A target's samples, in a random order."""
    for place in permutation(0, purpose, 0, len(images)).tolist():
        image = images[place]
        yield [(f"{place:05d}.{image.extension}", image.body), (f"{place:05d}.cls", b"%d" % image.label)]


def mixed(held: Mapping[str, Iterable[Picture]]) -> Iterator[list[tuple[str, bytes]]]:
    """The store's samples, sets mixed; a key begins with the set's name."""
    images = [(name, place, image) for name, some_of in held.items() for place, image in enumerate(some_of)]
    for turn in permutation(0, "mixed store", 0, len(images)).tolist():
        name, place, image = images[turn]
        yield [(f"{name}/{place:05d}.{image.extension}", image.body)]
