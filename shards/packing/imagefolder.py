"""Packs folders of image files as shards: a store, or a target with a folder for each class and random splits.

Owns which files count, their keys, labels and splits. Image bytes are stored as they are; those that do not decode are
left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shards.errors import Misuse, ShardError
from shards.faults import Fault
from shards.indexing.content import image_fault
from shards.io.atomic import atomic_folder
from shards.io.folders import PassedOver, walk_folder
from shards.io.paths import overlap
from shards.io.regular_files import read_regular
from shards.member_names import IMAGE_SUFFIXES, split_name, storable
from shards.packing.group_splits import missing_classes, split_groups
from shards.packing.groups import Groups, gap_notes, groups_of, save_groups
from shards.packing.target import SPLITS, check_class_names, write_classes
from shards.shuffle import permutation
from shards.tar.writer import SHARD_SIZE, Sample, check_shard_size, write_shards


@dataclass(frozen=True)
class PackReport:
    """What became of a folder.

    Args:
        samples: number packed by split; a store has the one split ``""``.
        classes: names by label; empty for a store.
        ignored: number of files that are no image by their name, or lie in no class folder.
        faults: images left out, and why; their `shard` is the file's path in the folder.
        passed_over: everything that is no image file, ``ignored`` files by suffix included.
        renamed: new keys by file, of files whose own name readers would not return as key.
        notes: what a person should know of the groups that splits kept whole.
    """

    samples: dict[str, int]
    classes: tuple[str, ...]
    ignored: int
    faults: tuple[Fault, ...]
    passed_over: PassedOver
    renamed: dict[str, str]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Counts for people: a line, and a second where something was passed over."""
        counts = ", ".join(f"{n:,} {name or 'images'}" for name, n in self.samples.items())
        classes = f" in {len(self.classes)} classes" if self.classes else ""
        line = f"packed {counts}{classes}; left out {len(self.faults)}, ignored {self.ignored} other files"
        passed_over = self.passed_over.text()
        return f"{line}\npassed over: {passed_over}" if passed_over else line

    def remarks(self) -> list[str]:
        """A line an image that was left out, one that got another key than its name's, and a line a note."""
        renamed = (
            f"renamed: {name} has the key {key}; readers pass over its own" for name, key in self.renamed.items()
        )
        notes = (f"note: {note}" for note in self.notes)
        return [*(f"left out: {fault}" for fault in self.faults), *renamed, *notes]


def pack_folder(source: Path, out: Path, *, shard_size: int = SHARD_SIZE) -> PackReport:
    """Pack every decodable image below ``source``, sorted by path, into the new folder ``out``, atomically.

    A key is the file's path without its extension, other dots of the file name replaced by ``_``; where two files have
    the same key, the later one gets ``_2``, ``_3`` ... appended. Keys that readers would not return are changed
    (`readable_key`) and reported.

    Raises:
        Misuse: ``out`` holds files, or overlaps ``source``.
        ShardError: no image decodes.
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
    group_by: str | None = None,
) -> PackReport:
    """Pack folders, one a class, as ``train/``, ``val/``, ``test/`` and ``classes.txt`` in the new folder ``out``.

    ``out`` appears whole or not at all. Labels number the sorted class names. Each class is split by itself, at random
    by ``seed``, with at least one image in every split whose share is not 0. A sample is the image and a ``.cls``
    member; its order inside the split is random.

    Args:
        split: shares of train, val and test; their sum is 1.
        group_by: what tells groups of images that stand in one split together (`groups.groups_of`); the classes are
            then spread as far as groups allow, and ``groups.parquet`` keeps them. None where every image is for itself.

    Raises:
        Misuse: as `pack_folder`, ``split`` is invalid, or ``group_by`` finds nothing.
        ShardError: no class folder, or a class with fewer decodable images than splits.
    """
    check_paths(source, out, shard_size)
    _check_split(split)
    paths, passed_over = image_files(source)
    classes = _class_folders(source)
    check_class_names(classes, str(source))
    in_class = [path for path in paths if "/" in path]
    faults: list[Fault] = []
    readable_key = [path for path, _ in _readable_images(source, in_class, faults)]
    groups, notes = ({}, ()) if group_by is None else groups_of(readable_key, group_by)
    if group_by is None:
        parts = split_by_class(readable_key, classes, split, seed)
    else:
        parts, gaps = split_by_group(groups, classes, split, seed)
        notes += gaps
    keys = dict(zip(paths, keys_of(paths), strict=True))
    with atomic_folder(out) as folder:
        for number, (name, part) in enumerate(zip(SPLITS, parts, strict=True)):
            turn = permutation(seed, "order of split", number, len(part))
            samples = _labelled(source, [part[place] for place in turn], keys, classes)
            if part:
                _write(folder / name, samples, shard_size, source)
        write_classes(folder, classes)
        if group_by is not None:
            held = {name: [(keys[path], groups[path]) for path in part] for name, part in zip(SPLITS, parts)}
            save_groups(folder, held)
    counts = {name: len(part) for name, part in zip(SPLITS, parts, strict=True)}
    ignored = _ignored(passed_over) + len(paths) - len(in_class)
    return PackReport(counts, classes, ignored, tuple(faults), passed_over, _renamed(keys), notes)


def image_files(source: Path) -> tuple[list[str], PassedOver]:
    """Sorted relative paths of the image files below ``source``, by their names, and a report of what was skipped."""
    return walk_folder(source, lambda name: Path(name).suffix[1:].lower() in IMAGE_SUFFIXES)


def _ignored(passed_over: PassedOver) -> int:
    return passed_over.hidden_files + sum(passed_over.others.values()) + len(passed_over.special_files)


def _class_folders(source: Path) -> tuple[str, ...]:
    """Sorted names of the class folders. A link is refused, as one class fewer would be another task."""
    folders = [entry for entry in source.iterdir() if entry.is_dir() and entry.name[0] != "."]
    linked = sorted(storable(folder.name) for folder in folders if folder.is_symlink())
    if linked:
        problem, todo = "a class folder is a link, and links are not followed", "put the folder itself there"
        raise ShardError(problem, shard=str(source), found=", ".join(linked[:5]), todo=todo)
    for folder in folders:
        next(folder.iterdir(), None)  # one that cannot be listed is an error, not an empty class
    return tuple(sorted(folder.name for folder in folders))


def keys_of(paths: Iterable[str]) -> list[str]:
    """A unique key for each path, in a form that readers return unchanged.

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
    """A file's path without its extension, other dots of the file name replaced by ``_``."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + Path(name).stem.replace(".", "_")


def readable_key(key: str) -> str:
    r"""``key``, or the nearest that readers give back: no ``__x__`` at the beginning, no folder of a dot and a newline.

    >>> readable_key("__m__/y"), readable_key("v1.0\nx/y"), readable_key("a/__m__/y")
    ('_m__/y', 'v1.0_x/y', 'a/__m__/y')
    """
    if split_name(f"{key}.x") == (key, "x"):
        return key
    return re.sub("^__+", "_", key).replace("\n", "_")


def _renamed(keys: dict[str, str]) -> dict[str, str]:
    """New keys by file, for the files that `readable_key` changed."""
    wanted = {path: plain_key(path) for path in keys}
    return {storable(path): storable(keys[path]) for path, key in wanted.items() if readable_key(key) != key}


def split_by_class(paths: list[str], classes: tuple[str, ...], split: tuple[float, ...], seed: int) -> list[list[str]]:
    """Split each class by itself, at random by ``seed``; the paths of each split come out sorted."""
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


def split_by_group(
    groups: Groups, classes: tuple[str, ...], split: tuple[float, float, float], seed: int
) -> tuple[list[list[str]], tuple[str, ...]]:
    """Split so that every group stands in one split; sorted paths of train, val and test, and notes on what they lack.

    Raises:
        ShardError: a class has no readable image, or a split would be empty.
    """
    paths = sorted(groups)
    of = [path.partition("/")[0] for path in paths]
    if empty := sorted(set(classes) - set(of)):
        raise ShardError("no readable image", shard=empty[0], todo="add images or remove the class folder")
    train, val, test = split
    labels = np.searchsorted(np.array(classes, object), np.array(of, object))
    sides = split_groups(labels, [groups[path] for path in paths], (train, test, val), seed)
    side_of = dict(zip(SPLITS, (0, 2, 1), strict=True))
    missing = {}
    for name, share in zip(SPLITS, split, strict=True):
        if share > 0:
            missing[name] = [classes[label] for label in missing_classes(labels, sides, side_of[name])]
            if len(missing[name]) == len(classes):
                todo = "tell smaller groups, or give it no share with --split"
                raise ShardError(f"too few groups: {name} would be empty", todo=todo)
    told = {(name, groups[path] or path) for name, path in zip(of, paths)}
    parts = [[path for path, side in zip(paths, sides) if side == side_of[name]] for name in SPLITS]
    return parts, gap_notes(Counter(name for name, _ in told), missing)


def split_counts(count: int, split: tuple[float, ...], name: str) -> list[int]:
    """``count`` divided by the shares ``split`` by largest remainder; at least 1 wherever the share is not 0.

    >>> split_counts(10, (0.4, 0.2, 0.4), "cat"), split_counts(3, (0.8, 0.1, 0.1), "dog")
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
    """Raise `Misuse` unless ``source`` is a folder, ``out`` is missing or empty, and the two do not overlap."""
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
    """Path and bytes of each image that decodes; the others go to ``faults``."""
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
