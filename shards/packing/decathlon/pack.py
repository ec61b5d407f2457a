"""Packs the Visual Decathlon: a source domain's train images as a store, other domains as targets; image bytes stay.

A key is the image's path below ``data/`` without its extension. A sample of a target also has its label (``.cls``) and
original ids (``.json``), so that results can be handed in. Everything is read and checked before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array
from shards.errors import Misuse, ShardError
from shards.faults import Fault
from shards.indexing import domains, index
from shards.indexing.domains import Domains
from shards.io import shard_set
from shards.io.atomic import atomic_folder
from shards.io.images import ImageError, decode
from shards.io.json_files import write_json
from shards.io.parallel import watched
from shards.member_names import split_name
from shards.packing.decathlon import annotations as decathlon
from shards.packing.decathlon import grouped
from shards.packing.decathlon.annotations import AnnotatedSplit
from shards.packing.decathlon.images import images_path, open_images, unannotated
from shards.packing.groups import save_groups
from shards.packing.imagefolder import check_paths
from shards.packing.splits import split_train_val
from shards.packing.target import shuffled, write_counted, write_target
from shards.tar.writer import SHARD_SIZE, Sample

SOURCE = "imagenet12"


@dataclass(frozen=True)
class DecathlonReport:
    """What became of the domains.

    Args:
        store: images of the store by domain.
        targets: samples of each target by split.
        faults: images left out, and why; their `shard` is the file.
        notes: what a person should know besides.
    """

    store: dict[str, int]
    targets: dict[str, dict[str, int]]
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        """The counts for people: a line of the store, one a target."""
        store = ", ".join(f"{n:,} {domain}" for domain, n in self.store.items())
        targets = (
            f"targets/{domain}: " + ", ".join(f"{n:,} {split}" for split, n in counts.items())
            for domain, counts in self.targets.items()
        )
        return "\n".join([f"store: {store}", *targets])

    def remarks(self) -> list[str]:
        """A line an image that was left out, and the notes."""
        return [*(f"left out: {fault}" for fault in self.faults), *(f"note: {note}" for note in self.notes)]


class Target(NamedTuple):
    """A domain as a target: its annotations, and the rows of each split; ``unused`` are train's that a store may hold.

    Where groups were kept whole, ``train`` and ``val`` are both all of the domain, and ``groups`` has them by file.
    """

    train: AnnotatedSplit
    val: AnnotatedSplit
    rows: dict[str, Int64Array]
    unused: Int64Array
    groups: Mapping[str, str | None] | None = None


@dataclass
class Findings:
    """Collected on the way: images left out, images of another size than annotated, remarks."""

    faults: list[Fault] = field(default_factory=list)
    other_sizes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def pack_decathlon(
    root: Path,
    out: Path,
    *,
    targets: Sequence[str] | None = None,
    source: str = SOURCE,
    mix: Sequence[str] = (),
    labelled: Callable[[str], int | None] = lambda domain: None,
    seed: int = 0,
    shard_size: int = SHARD_SIZE,
    groups: Path | None = None,
) -> DecathlonReport:
    """Pack ``out``/store and ``out``/targets/<domain>, atomically.

    Train and val of a target are halves of the domain's train split; its test is the whole val split.

    Args:
        root: the folder with ``annotations/`` and ``data/``.
        targets: domains that become targets; None for all with annotations and images.
        source: the domain whose train images are the store.
        mix: domains whose train images go into the store as well, except those in their targets.
        labelled: number of images of a domain in train and val together; None for all there are.
        seed: of the halves, and of the order inside a split.
        groups: a file that tells what belongs together (`grouped.read`): a target of which it joins images is split
            anew, train and val together, into parts of the same sizes in which no group stands on two sides, nor in a
            target and in the store. None for the prescribed splits.

    Raises:
        Misuse: ``out`` holds files or overlaps ``root``; an unknown domain, or one that is source and target.
        ShardError: inconsistent annotations, missing files, a train or val without a decodable image.
    """
    check_paths(root, out, shard_size)
    findings = Findings()
    chosen = _chosen(root, targets, source, mix, findings)
    planned = {name: _target(root, name, labelled(name), seed, findings) for name in chosen}
    if groups is not None:
        told = grouped.read(groups)
        planned = {name: _regrouped(target, told, seed, findings) for name, target in planned.items()}
    stored = _stored(root, source, mix, planned)
    with atomic_folder(out) as folder:
        counts = _write_store(root, folder / "store", stored, findings, shard_size)
        splits = {
            name: _write_target(root, folder / "targets" / name, target, findings, seed, shard_size)
            for name, target in planned.items()
        }
    splits_read = [split for split, _ in stored] + [one for each in planned.values() for one in (each.train, each.val)]
    notes = (*findings.notes, *_size_notes(findings), *_unnamed_notes(root, splits_read))
    return DecathlonReport(counts, splits, tuple(findings.faults), notes)


def _chosen(
    root: Path, targets: Sequence[str] | None, source: str, mix: Sequence[str], findings: Findings
) -> tuple[str, ...]:
    """The domains that become targets; raises `Misuse` for an unknown one."""
    found = decathlon.domains(root)
    for name in (source, *(targets or ()), *mix):
        if name not in found:
            known = "one of " + ", ".join(found)
            raise Misuse("no such domain", shard=str(root / "annotations"), expected=known, found=repr(name))
    if source in (*(targets or ()), *mix):
        raise Misuse(f"{source} is the source", todo="name others as targets and to mix in, or another --source")
    if targets is not None:
        return tuple(dict.fromkeys(targets))
    others = [name for name in found if name != source]
    findings.notes += [f"{name}: annotations but no images, left out" for name in others if not images_path(root, name)]
    findings.notes += [
        f"{name}: annotations of one of train and val, left out" for name in decathlon.with_one_split(root)
    ]
    return tuple(name for name in others if images_path(root, name))


def _target(root: Path, domain: str, size: int | None, seed: int, findings: Findings) -> Target:
    train, val = decathlon.read_domain(root, domain)
    for split in (train, val):
        _check(root, split)
        findings.faults += [
            Fault("bad-label", split.files[row].as_py(), None, None, f"no annotation in {Path(split.source).name}")
            for row in np.flatnonzero(split.labels < 0).tolist()
        ]
    rows = dict(zip(("train", "val"), split_train_val(train.labels, size, seed)))
    if not len(rows["val"]):
        raise ShardError("too few annotated images for train and val", shard=train.source)
    unused = np.setdiff1d(np.arange(len(train.ids)), np.concatenate(list(rows.values())))
    return Target(train, val, rows | {"test": np.flatnonzero(val.labels >= 0)}, unused)


def _regrouped(target: Target, told: Mapping[str, str], seed: int, findings: Findings) -> Target:
    """A target with splits of the same sizes in which groups are whole; as it was where no group has two images."""
    whole = grouped.joined(target.train, target.val)
    groups = {file: told.get(file) for file in whole.files.to_pylist()}
    if len(set(groups.values()) - {None}) >= sum(group is not None for group in groups.values()):
        findings.notes.append(f"{target.train.domain}: no two images of one group are known, the splits stay")
        return target
    sizes = {name: len(rows) for name, rows in (target.rows | {"unused": target.unused}).items()}
    sides, notes = grouped.split(whole, groups, sizes, seed)
    findings.notes += [f"{target.train.domain}: {note}" for note in notes]
    rows = {name: sides[name] for name in target.rows}
    return Target(whole, whole, rows, sides["unused"], groups)


def _stored(
    root: Path, source: str, mix: Sequence[str], targets: dict[str, Target]
) -> list[tuple[AnnotatedSplit, Int64Array]]:
    """The images of the store: all of the source's, and of mixed domains those that no target uses."""
    stored = []
    for name in dict.fromkeys((source, *mix)):
        if name in targets:
            _refuse_used_up(targets[name])
            stored.append((targets[name].train, targets[name].unused))
            continue
        split = decathlon.read_split(root, name, "train")
        _check(root, split)
        stored.append((split, np.arange(len(split.ids))))
    return stored


def _refuse_used_up(target: Target) -> None:
    if not len(target.unused):
        todo = "leave it out of --mix, or name with --domains targets without it"
        used = len(target.rows["train"]) + len(target.rows["val"])
        found = f"none: its target takes all {used:,}"
        expected = "images of its train split"
        domain = target.train.domain
        raise Misuse("--mix has nothing of it for the store", shard=domain, expected=expected, found=found, todo=todo)


def _unnamed_notes(root: Path, splits: Sequence[AnnotatedSplit]) -> Iterator[str]:
    """Remarks on files in the domains' folders that no annotation lists."""
    named: dict[str, set[str]] = {}
    for split in splits:
        named.setdefault(split.domain, set()).update(split.files.to_pylist())
    for domain in {split.domain for split in splits} - {split.domain for split in splits if split.split == "val"}:
        with suppress(ShardError):  # no image of this val is used; it only explains what lies there
            named[domain].update(decathlon.read_split(root, domain, "val").files.to_pylist())
    for domain, files in named.items():
        if passed_over := unannotated(root, domain, files).text():
            yield f"data/{domain}: no annotation of train or val names {passed_over}"


def _check(root: Path, split: AnnotatedSplit) -> None:
    """Refuse in advance what would stop the packing half way or lose images: missing files, repeated or hidden keys."""
    with open_images(root, split):
        pass
    if split_name(f"{split.domain}/x.jpg") is None:
        expected, todo = "no __name__, whose files readers pass over", "rename it in data/ and annotations/"
        raise ShardError("the name of a domain", shard=split.source, expected=expected, found=split.domain, todo=todo)
    counts = pc.value_counts(keys_of(split.files))
    place = pc.index(pc.greater(counts.field("counts"), 1), True).as_py()
    if place >= 0:
        raise ShardError("two images have one key", shard=split.source, key=counts.field("values")[place].as_py())


def keys_of(files: pa.StringArray) -> pa.StringArray:
    """Paths from the root -> keys: no ``data/``, no extension, no other dot in the file's name.

    >>> keys_of(pa.array(["data/dtd/train/0001/a.1.jpg"])).to_pylist()
    ['dtd/train/0001/a_1']
    """
    parts = pc.extract_regex(files, r"^data/(?P<folder>.*/)(?P<stem>[^/]*)\.[^/.]*$")
    stem = pc.replace_substring(pc.struct_field(parts, "stem"), ".", "_")
    return pc.binary_join_element_wise(pc.struct_field(parts, "folder"), stem, "")


def _write_store(
    root: Path, folder: Path, stored: list[tuple[AnnotatedSplit, Int64Array]], findings: Findings, shard_size: int
) -> dict[str, int]:
    counts = {split.domain: 0 for split, _ in stored}

    def samples() -> Iterator[Sample]:
        for split, rows in stored:
            for _, image in _images(root, split, rows, findings):
                counts[split.domain] += 1
                yield [image]

    if not write_counted(folder, samples(), shard_size):
        raise ShardError("no readable image for the store", shard=stored[0][0].source)
    for split, _ in stored:
        if not counts[split.domain]:
            todo = "get its images again, or leave it out of --mix"
            raise ShardError(f"no readable image of {split.domain} for the store", shard=split.source, todo=todo)
    codes = np.repeat(np.arange(len(counts), dtype=np.int32), list(counts.values()))
    written = index.build(shard_set.resolve(folder))[0]
    domains.save(written, Domains(tuple(counts), codes), folder / domains.FILE_NAME)
    return counts


def _write_target(
    root: Path, folder: Path, target: Target, findings: Findings, seed: int, shard_size: int
) -> dict[str, int]:
    sources = {"train": target.train, "val": target.train, "test": target.val}
    splits = {
        name: _labelled(root, sources[name], shuffled(rows, name, seed), findings) for name, rows in target.rows.items()
    }
    categories = target.train.categories
    counts = write_target(folder, splits, [category.name for category in categories], shard_size=shard_size)
    for name in ("train", "val"):
        if not counts[name]:
            found = f"none of {len(target.rows[name])}"
            expected = "an image that decodes"
            todo = "get its images again, or leave it out with --domains"
            raise ShardError(f"{name} is empty", shard=sources[name].source, expected=expected, found=found, todo=todo)
    write_json(folder / "categories.json", [category._asdict() for category in categories])
    if target.groups is not None:
        named = list(zip(keys_of(target.train.files).to_pylist(), target.groups.values(), strict=True))
        save_groups(folder, {name: [named[row] for row in rows] for name, rows in target.rows.items()})
    return counts


def _labelled(root: Path, split: AnnotatedSplit, rows: Int64Array, findings: Findings) -> Iterator[Sample]:
    for row, (name, data) in _images(root, split, rows, findings):
        key, label = name.rpartition(".")[0], int(split.labels[row])
        ids = {"image_id": int(split.ids[row]), "category_id": split.categories[label].id}
        yield [(name, data), (f"{key}.cls", b"%d" % label), (f"{key}.json", json.dumps(ids).encode())]


def _images(
    root: Path, split: AnnotatedSplit, rows: Int64Array, findings: Findings
) -> Iterator[tuple[int, tuple[str, bytes]]]:
    """Row, member name and bytes of every image that decodes; the others are reported in ``findings``."""
    keys = keys_of(split.files)
    with open_images(root, split) as body:
        for row in watched(rows.tolist()):
            file = split.files[row].as_py()
            data = body(row)
            if _is_readable(data, file, split.sizes[row].tolist(), findings):
                yield row, (f"{keys[row].as_py()}.{file.rpartition('.')[2]}", data)


def _is_readable(data: bytes, file: str, size: list[int], findings: Findings) -> bool:
    try:
        picture = decode(data)
    except ImageError as error:
        findings.faults.append(Fault(error.kind, file, None, None, error.detail))
        return False
    if sorted(picture.size) != sorted(size):  # which is which depends on how the annotator's reader turned it
        findings.other_sizes.append(f"{file}: {picture.size[0]} x {picture.size[1]}, annotated {size[0]} x {size[1]}")
    return True


def _size_notes(findings: Findings) -> list[str]:
    """One line for all images of another size than annotated; they are packed all the same."""
    others = findings.other_sizes
    return [f"{len(others)} images are not of the size annotated, the first {others[0]}"] if others else []
