"""Packs folders of image files into shards: a store, or a labelled target with its splits.

Owns which files count, their keys, labels and splits. Whether a picture decodes is `check`'s judgement, the form of
a shard `write`'s. Image bytes are stored as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shards.errors import Misuse, ShardError
from shards.faults import Fault
from shards.indexing.content import image_fault
from shards.indexing.sample import IMAGE_SUFFIXES
from shards.io.atomic import atomic_folder
from shards.io.folders import PassedOver, walk_folder
from shards.io.paths import overlap
from shards.io.regular_files import read_regular
from shards.member_names import split_name, storable
from shards.packing.target import SPLITS, check_class_names, write_classes
from shards.shuffle import permutation
from shards.tar.writer import SHARD_SIZE, Sample, check_shard_size, write_shards


@dataclass(frozen=True)
class PackReport:
    """What became of a folder.

    Args:
        samples: packed, by split; a store has the one split ``""``.
        classes: names by label; none for a store.
        ignored: files whose name is not an image's, or that stand in no class folder.
        faults: images left out and why; their `shard` is the file, relative to the folder.
        passed_over: all that is no image's file, ``ignored`` files by suffix among it.
        renamed: the keys of files whose own name no reader would give back, by file.
    """

    samples: dict[str, int]
    classes: tuple[str, ...]
    ignored: int
    faults: tuple[Fault, ...]
    passed_over: PassedOver
    renamed: dict[str, str]


def pack_folder(source: Path, out: Path, *, shard_size: int = SHARD_SIZE) -> PackReport:
    """Pack every readable image below ``source``, sorted by path, into ``out``, which appears whole or not at all.

    A key is the file's path without its extension, other dots of the file name made ``_``; where two files
    would have one key, the later gets ``_2``, ``_3`` ... at its end. A key that no reader would give back is changed
    (`readable_key`), and reported.

    Raises:
        Misuse: ``out`` holds something, or lies in ``source`` or the other way round.
        ShardError: no image is readable.
    """
    check_paths(source, out, shard_size)
    paths, passed_over = image_files(source)
    faults: list[Fault] = []
    keys = dict(zip(paths, keys_of(paths), strict=True))
    samples = ([(keys[path] + Path(path).suffix, data)] for path, data in _readable_images(source, paths, faults))
    with atomic_folder(out) as folder:
        n_samples = _write(folder, samples, shard_size, source)
    ignored = _ignored(passed_over)
    return PackReport({"": n_samples}, (), ignored, tuple(faults), passed_over, _renamed(keys))


def pack_target(
    source: Path,
    out: Path,
    *,
    split: tuple[float, float, float] = (0.4, 0.2, 0.4),
    seed: int = 0,
    shard_size: int = SHARD_SIZE,
) -> PackReport:
    """Pack folders, one a class, as a target: ``train/``, ``val/``, ``test/`` and ``classes.txt`` in ``out``.

    Classes are numbered by their sorted names. Each is divided by itself, at random by ``seed``, and has at least
    one image in every split that is to have any. A sample is the image and its label in a ``.cls`` member;
    the order inside a split is random too, so that neighbours are not of one class.

    Args:
        split: shares of train, val and test; they sum to 1.

    Raises:
        Misuse: as `pack_folder`, or ``split`` is no division.
        ShardError: no class folder, or a class with fewer readable images than splits.
    """
    check_paths(source, out, shard_size)
    _check_split(split)
    paths, passed_over = image_files(source)
    classes = _class_folders(source)
    check_class_names(classes, str(source))
    in_class = [path for path in paths if "/" in path]
    faults: list[Fault] = []
    readable_key = [path for path, _ in _readable_images(source, in_class, faults)]
    parts = split_by_class(readable_key, classes, split, seed)
    keys = dict(zip(paths, keys_of(paths), strict=True))
    with atomic_folder(out) as folder:
        for number, (name, part) in enumerate(zip(SPLITS, parts, strict=True)):
            turn = permutation(seed, "order of split", number, len(part))
            samples = _labelled(source, [part[place] for place in turn], keys, classes)
            if part:
                _write(folder / name, samples, shard_size, source)
        write_classes(folder, classes)
    counts = {name: len(part) for name, part in zip(SPLITS, parts, strict=True)}
    ignored = _ignored(passed_over) + len(paths) - len(in_class)
    return PackReport(counts, classes, ignored, tuple(faults), passed_over, _renamed(keys))


def image_files(source: Path) -> tuple[list[str], PassedOver]:
    """Images below ``source`` by their names, as sorted relative paths with ``/``, and what else there is."""
    return walk_folder(source, lambda name: Path(name).suffix[1:].lower() in IMAGE_SUFFIXES)


def _ignored(passed_over: PassedOver) -> int:
    return passed_over.hidden_files + sum(passed_over.others.values()) + len(passed_over.special_files)


def _class_folders(source: Path) -> tuple[str, ...]:
    """The names of the class folders, sorted; a link is none, and a class less is another task."""
    folders = [entry for entry in source.iterdir() if entry.is_dir() and entry.name[0] != "."]
    linked = sorted(storable(folder.name) for folder in folders if folder.is_symlink())
    if linked:
        problem, todo = "a class folder is a link, and links are not followed", "put the folder itself there"
        raise ShardError(problem, shard=str(source), found=", ".join(linked[:5]), todo=todo)
    for folder in folders:
        next(folder.iterdir(), None)  # one that cannot be listed is an error, not an empty class
    return tuple(sorted(folder.name for folder in folders))


def keys_of(paths: Iterable[str]) -> list[str]:
    """One key a path, all different, each one that a reader gives back.

    >>> keys_of(["a/x.1.jpg", "a/x_1.jpg", "b/x.png", "__b__/x.png"])
    ['a/x_1', 'a/x_1_2', 'b/x', '_b__/x']
    """
    keys: list[str] = []
    taken: set[str] = set()
    for path in paths:
        wanted = readable_key(plain_key(path))
        key, number = wanted, 1
        while storable(key) in taken:  # as a reader tells them apart
            number += 1
            key = f"{wanted}_{number}"
        taken.add(storable(key))
        keys.append(key)
    return keys


def plain_key(path: str) -> str:
    """A file's path without its extension, other dots of the file's name made ``_``."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + Path(name).stem.replace(".", "_")


def readable_key(key: str) -> str:
    r"""``key``, or the nearest that readers give back: no ``__x__`` at the beginning, no folder of a dot and a newline.

    >>> readable("__m__/y"), readable("v1.0\nx/y"), readable("a/__m__/y")
    ('_m__/y', 'v1.0_x/y', 'a/__m__/y')
    """
    if split_name(f"{key}.x") == (key, "x"):
        return key
    return re.sub("^__+", "_", key).replace("\n", "_")


def _renamed(keys: dict[str, str]) -> dict[str, str]:
    """The files that have another key than their names say, for a reader's sake, and those keys."""
    wanted = {path: plain_key(path) for path in keys}
    return {storable(path): storable(keys[path]) for path, key in wanted.items() if readable_key(key) != key}


def split_by_class(paths: list[str], classes: tuple[str, ...], split: tuple[float, ...], seed: int) -> list[list[str]]:
    """Divide each class by itself and at random over the splits; paths of a split come out sorted."""
    members: dict[str, list[str]] = {name: [] for name in classes}
    for path in paths:
        members[path.partition("/")[0]].append(path)
    parts: list[list[str]] = [[] for _ in split]
    for name, held in members.items():
        turn = [held[place] for place in permutation(seed, f"split of {name!r}", 0, len(held))]
        for part, count in zip(parts, split_counts(len(held), split, name), strict=True):
            part += turn[:count]
            turn = turn[count:]
    return [sorted(part) for part in parts]


def split_counts(count: int, split: tuple[float, ...], name: str) -> list[int]:
    """Whole numbers that sum to ``count``, by largest remainder, none of them 0 where its share is not.

    >>> shares(10, (0.4, 0.2, 0.4), "cat"), shares(3, (0.8, 0.1, 0.1), "dog")
    ([4, 2, 4], [1, 1, 1])
    """
    wanted = sum(share > 0 for share in split)
    if count < wanted:
        raise ShardError(
            "too few readable images for the splits",
            shard=name,
            expected=f"at least {wanted}",
            found=count,
            todo="add images or remove the class folder",
        )
    exact = [round(share * count, 9) for share in split]
    counts = [int(part) for part in exact]
    by_remainder = sorted(range(len(split)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: count - sum(counts)]:
        counts[place] += 1
    for place, share in enumerate(split):
        if share > 0 and counts[place] == 0:
            counts[counts.index(max(counts))] -= 1
            counts[place] = 1
    return counts


def check_paths(source: Path, out: Path, shard_size: int) -> None:
    """Raise `Misuse` unless ``source`` is a folder, ``out`` is missing or empty, and neither lies in the other."""
    check_shard_size(shard_size)
    if not source.is_dir():
        raise Misuse("no such folder", shard=str(source), todo="name a folder of images")
    if overlap(out, source):
        raise Misuse("output and input lie in one another", shard=str(out), todo="choose an --out outside the input")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Misuse("there is something already", shard=str(out), todo="choose another --out or remove it")


def _check_split(split: tuple[float, ...]) -> None:
    # Written so that a share that is no number fails, too.
    fits = len(split) == len(SPLITS) and all(0 <= share <= 1 for share in split) and split[0] > 0
    if not fits or not abs(sum(split) - 1) <= 1e-9:
        raise Misuse(
            "this is no split",
            expected="three shares that sum to 1, the first above 0",
            found=",".join(map(str, split)),
            todo="for example 0.4,0.2,0.4",
        )


def _readable_images(source: Path, paths: list[str], faults: list[Fault]) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of each image that decodes; the others are added to ``faults``."""
    for path in paths:
        try:
            data = read_regular(source / path)
        except OSError as error:
            faults.append(Fault("not-an-image", path, None, None, f"{path}: cannot be read ({error.strerror})"))
            continue
        fault = image_fault(data)
        if fault is None:
            yield path, data
        else:
            faults.append(Fault(fault[0], path, None, None, f"{path}: {fault[1]}"))


def _labelled(source: Path, paths: list[str], keys: dict[str, str], classes: tuple[str, ...]) -> Iterator[Sample]:
    label = {name: number for number, name in enumerate(classes)}
    for path in paths:
        number = label[path.partition("/")[0]]
        image = read_regular(source / path)
        yield [(keys[path] + Path(path).suffix, image), (keys[path] + ".cls", f"{number}".encode("ascii"))]


def _write(folder: Path, samples: Iterator[Sample], shard_size: int, source: Path) -> int:
    """Write the samples and count them; `ShardError` where there is none."""
    n_samples = 0

    def counted() -> Iterator[Sample]:
        nonlocal n_samples
        for sample in samples:
            n_samples += 1
            yield sample

    write_shards(folder, counted(), shard_size=shard_size)
    if not n_samples:
        raise ShardError("no readable image in the folder", shard=str(source), todo="name a folder that holds images")
    return n_samples
