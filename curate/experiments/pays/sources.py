"""The real images that the study mixes: the decathlon's domains, a stand-in for STL-10, and MNIST-like sets.

Each comes with its label and with the group that it must not be parted from: shots of one sign, or one hand's letters.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curate.errors import Misuse
from shards.io.images import encode_png
from shards.packing import idx
from shards.packing.decathlon import grouped
from shards.packing.groups import read_groups
from shards.shuffle import permutation

#: MNIST-like sets; every other name is a domain of the decathlon.
DRAWN = ("mnist", "fashion-mnist", "ahcd", "notmnist")
IMAGENETTE = "imagenette"


class Picture(NamedTuple):
    """An encoded image, its extension, its class and its group."""

    body: bytes
    extension: str
    label: int
    group: str


def pictures(data: Path, name: str, part: str) -> list[Picture]:
    """All images of a set, in the order of its files.

    Args:
        data: a folder with ``decathlon-1.0``, ``imagenette96`` and ``idx``.
        part: "train" or "test", which is the decathlon's val and t10k of MNIST-like sets.

    Raises:
        Misuse: the folder lacks the set's files. ShardError: they are damaged.
    """
    try:
        if name == IMAGENETTE:
            return list(_imagenette(data, ("train", "unlabeled") if part == "train" else ("test",)))
        if name in DRAWN:
            return list(_drawn(data, name, "train" if part == "train" else "t10k"))
        return list(_decathlon(data, name, "train" if part == "train" else "val"))
    except FileNotFoundError as error:
        raise Misuse(
            f"--data {data}: {error.filename} is missing; name the folder that holds the study's sets"
        ) from error


def some(found: list[Picture], count: int | None, purpose: str) -> list[Picture]:
    """``count`` of them at random, in their order; all where there are no more, or for None."""
    if count is None or count >= len(found):
        return found
    return [found[place] for place in np.sort(permutation(0, purpose, 0, len(found))[:count])]


def apart(found: list[Picture], count: int, purpose: str) -> tuple[list[Picture], list[Picture]]:
    """About ``count`` images in whole groups, and the rest, in which every class keeps a group.

    Returns:
        The first ``count`` of the groups taken, fewer where classes have no group to spare; and all images of the other
        groups, so that no group stands on both sides.
    """
    members: dict[str, list[int]] = {}
    left: dict[int, set[str]] = {}
    for place, picture in enumerate(found):
        members.setdefault(picture.group, []).append(place)
        left.setdefault(picture.label, set()).add(picture.group)
    names, taken = sorted(members), list[int]()
    for place in permutation(0, purpose, 0, len(names)):
        group = names[place]
        labels = {found[member].label for member in members[group]}
        if len(taken) >= count:
            break
        if all(len(left[label]) > 1 for label in labels):
            taken += members[group]
            for label in labels:
                left[label].discard(group)
    held = {found[place].group for place in taken}
    return [found[place] for place in sorted(taken[:count])], [one for one in found if one.group not in held]


def _decathlon(data: Path, domain: str, split: str) -> Iterator[Picture]:
    with tarfile.open(data / "decathlon-1.0" / "data" / f"{domain}.tar") as tar:
        origins = data / "decathlon-1.0" / "origin.csv.gz"
        alone, together = read_groups(origins, "source_path"), grouped.read(origins)
        for member in tar:
            body = tar.extractfile(member) if member.isreg() else None
            parts, file = member.name.split("/"), f"data/{member.name}"
            if body is not None and parts[1] == split:
                yield Picture(body.read(), "jpg", int(parts[2]), together.get(file, alone[file]))


def _imagenette(data: Path, parts: Collection[str]) -> Iterator[Picture]:
    for part in parts:
        with zipfile.ZipFile(data / "imagenette96" / f"{part}.zip") as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".jpg"):
                    yield Picture(archive.read(name), "jpg", 0, f"{part}/{name}")


def _drawn(data: Path, name: str, part: str) -> Iterator[Picture]:
    held = idx.read_split(data / "idx" / name, part)
    turn = np.sort(permutation(0, f"{name} {part}", 0, len(held.labels))[:10_000])
    for place in turn.tolist():
        yield Picture(encode_png(held.images[place]), "png", int(held.labels[place]), f"{part}/{place}")
