"""Packs the Visual Decathlon: a source domain's train images as a store, other domains as targets; image bytes stay.

A key is the image's path below ``data/`` without its extension. A sample of a target also has its label (``.cls``) and
original ids (``.json``), so that results can be handed in. Everything is read and checked before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from shards.arrays import BoolArray, Int64Array
from shards.errors import Misuse, ShardError
from shards.faults import Fault
from shards.indexing import domains, index
from shards.indexing.domains import Domains
from shards.io import shard_set
from shards.io.json_files import write_json
from shards.member_names import split_name
from shards.packing.decathlon import annotations as decathlon
from shards.packing.decathlon import grouped
from shards.packing.decathlon.annotations import AnnotatedSplit
from shards.packing.decathlon.images import images_path, open_images, unannotated
from shards.packing.decathlon.samples import Rows, keys_of, maker_of
from shards.packing.groups import save_groups
from shards.packing.imagefolder import check_paths
from shards.packing.journal import Journal, identity_of, resumed_folder, stamp
from shards.packing.made import write_made
from shards.packing.splits import split_train_val
from shards.packing.target import check_class_names, shuffled, write_classes
from shards.tar.writer import SHARD_SIZE

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
    workers: int = 1,
) -> DecathlonReport:
    """Pack ``out``/store and ``out``/targets/<domain>; ``out`` appears whole, a kill loses little.

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
        workers: processes that decode; the shards are the same whatever their number.

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
    splits_read = [split for split, _ in stored] + [one for each in planned.values() for one in (each.train, each.val)]
    options = (
        chosen,
        source,
        mix,
        [labelled(name) for name in chosen],
        seed,
        shard_size,
        groups and stamp(str(groups)),
    )
    with resumed_folder(out, identity_of(_files_of(root, splits_read), *options)) as (folder, journal):
        writer = Writer(root, folder, findings, shard_size, journal, workers)
        counts = _write_store(writer, stored)
        splits = {name: _write_target(writer, f"targets/{name}/", target, seed) for name, target in planned.items()}
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


def _stored(root: Path, source: str, mix: Sequence[str], targets: dict[str, Target]) -> list[Rows]:
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
    """Refuse in advance what would stop the packing half way or lose images: missing files, repeated or hidden keys,
    names of categories that are not one line."""
    with open_images(root, split):
        pass
    check_class_names([category.name for category in split.categories], split.source)
    if split_name(f"{split.domain}/x.jpg") is None:
        expected, todo = "no __name__, whose files readers pass over", "rename it in data/ and annotations/"
        raise ShardError("the name of a domain", shard=split.source, expected=expected, found=split.domain, todo=todo)
    counts = pc.value_counts(keys_of(split.files))
    place = pc.index(pc.greater(counts.field("counts"), 1), True).as_py()
    if place >= 0:
        raise ShardError("two images have one key", shard=split.source, key=counts.field("values")[place].as_py())


def _files_of(root: Path, splits: Sequence[AnnotatedSplit]) -> Iterator[Path]:
    """All that is read: annotations, and images or tars of them."""
    yield from sorted((root / "annotations").glob("*.json"))
    for split in splits:
        place = images_path(root, split.domain)
        if place is not None and not place.is_dir():
            yield place
        else:
            yield from (root / file for file in split.files.to_pylist())


@dataclass(frozen=True)
class Writer:
    """Where images are packed to, and how.

    Args:
        root: of the annotations and images.
        folder: is being packed.
        findings: gets what is found of the images.
        shard_size: bytes.
        journal: of the folder.
        workers: processes that decode.
    """

    root: Path
    folder: Path
    findings: Findings
    shard_size: int
    journal: Journal
    workers: int

    def write(self, place: str, parts: Sequence[Rows], labelled: bool) -> list[BoolArray]:
        """Write a shard set of images that decode; shape (n,), bool, of each part: which of its rows these are."""
        with ExitStack() as opened:
            readers = [opened.enter_context(open_images(self.root, split)) for split, _ in parts]
            maker = maker_of(parts, readers, labelled)
            said = write_made(self.folder, place, maker, self.shard_size, self.journal, self.workers)
        there = np.ones(maker.count, np.bool_)
        for number, what in said:
            if "fault" in what:
                there[number] = False
                self.findings.faults.append(Fault(**what["fault"]))
            else:
                self.findings.other_sizes.append(what["size"])
        return np.split(there, np.cumsum([len(rows) for _, rows in parts])[:-1])


def _write_store(writer: Writer, stored: Sequence[Rows]) -> dict[str, int]:
    there = writer.write("store/", stored, labelled=False)
    counts = {split.domain: int(held.sum()) for (split, _), held in zip(stored, there, strict=True)}
    if not sum(counts.values()):
        writer.journal.void()
        raise ShardError("no readable image for the store", shard=stored[0][0].source)
    for split, _ in stored:
        if not counts[split.domain]:
            writer.journal.void()
            todo = "get its images again, or leave it out of --mix"
            raise ShardError(f"no readable image of {split.domain} for the store", shard=split.source, todo=todo)
    codes = np.repeat(np.arange(len(counts), dtype=np.int32), list(counts.values()))
    folder = writer.folder / "store"
    domains.save(index.build(shard_set.resolve(folder))[0], Domains(tuple(counts), codes), folder / domains.FILE_NAME)
    return counts


def _write_target(writer: Writer, place: str, target: Target, seed: int) -> dict[str, int]:
    sources = {"train": target.train, "val": target.train, "test": target.val}
    counts = {}
    for name, rows in target.rows.items():
        (there,) = writer.write(f"{place}{name}/", [(sources[name], shuffled(rows, name, seed))], labelled=True)
        counts[name] = int(there.sum())
        if name != "test" and not counts[name]:
            writer.journal.void()
            found = f"none of {len(rows)}"
            expected = "an image that decodes"
            todo = "get its images again, or leave it out with --domains"
            raise ShardError(f"{name} is empty", shard=sources[name].source, expected=expected, found=found, todo=todo)
    categories, folder = target.train.categories, writer.folder / place
    write_classes(folder, [category.name for category in categories])
    write_json(folder / "categories.json", [category._asdict() for category in categories])
    if target.groups is not None:
        named = list(zip(keys_of(target.train.files).to_pylist(), target.groups.values(), strict=True))
        save_groups(folder, {name: [named[row] for row in rows] for name, rows in target.rows.items()})
    return counts


def _size_notes(findings: Findings) -> list[str]:
    """One line for all images of another size than annotated; they are packed all the same."""
    others = findings.other_sizes
    return [f"{len(others)} images are not of the size annotated, the first {others[0]}"] if others else []
