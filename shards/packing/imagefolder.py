"""Packs image files as shards: a store of all, or a target with labels and splits.

Image bytes are stored as they are, with the files beside them that say something of them; what does not decode is left
out. What there is to pack say `listing` and `paths_table`, the labels `labels` and `label_table`; `class_splits` draws.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from shards.errors import Misuse, ShardError
from shards.faults import Fault
from shards.io.folders import PassedOver, walk_folder
from shards.io.paths import overlap
from shards.member_names import storable
from shards.packing import names, tables
from shards.packing.checks import FETCHED, Places, readable
from shards.packing.class_splits import Split, check_split, split_by_class, split_by_group
from shards.packing.entry import Entry
from shards.packing.groups import Groups, groups_of, save_groups, spread_notes
from shards.packing.journal import resumed_folder, stamp
from shards.packing.label_table import by_table
from shards.packing.labels import Labelled, by_folders, refuse_split
from shards.packing.listing import Listing, identity, is_image, list_folder, with_others
from shards.packing.paths_table import list_table
from shards.packing.report import PackReport
from shards.packing.target import SPLITS, check_class_names, write_classes
from shards.packing.writing import forgetting, sampler, write_entries
from shards.shuffle import permutation
from shards.tar.writer import SHARD_SIZE, check_shard_size


def pack_folder(
    source: Path, out: Path, *, shard_size: int = SHARD_SIZE, workers: int = 1, allow_missing: bool = False
) -> PackReport:
    """Pack every decodable image of ``source`` into the new folder ``out``, which appears whole; a kill loses little.

    A key is the file's path without its extension, other dots of the file name replaced by ``_``; where two files have
    the same key, the later one gets ``_2``, ``_3`` ... appended. Keys that readers would not return are changed
    (`keys.readable_key`) and reported. ``.curate/names.parquet`` has the file of each sample.

    Args:
        source: a folder, whose images are packed sorted by path; or a table of paths and URLs, in its order.
        workers: processes that decode; the shards are the same whatever their number.
        allow_missing: leave out what a table names and cannot be had, as what cannot be read of a folder is.

    Raises:
        Misuse: ``out`` holds files, or overlaps ``source``.
        ShardError: no image decodes, or a table or an image that it names cannot be read.
    """
    listing = listed(source, out, shard_size)
    faults: list[Fault] = []
    with resumed_folder(out, identity(listing, shard_size)) as (folder, journal):
        places = Places(str(listing.root), str(folder / FETCHED))
        strict = source.is_file() and not allow_missing
        entries = readable(listing.entries, places, journal, workers, faults, strict=strict)
        packed = write_entries(folder, "", entries, sampler(places), shard_size, journal, forgetting(places))
        if not packed:
            problem = "no readable image in the folder" if source.is_dir() else "no readable image in the table"
            packed_before = "it holds shards, which need no packing"
            todo = packed_before if ".tar" in listing.passed_over.others else "name a folder that holds images"
            raise ShardError(problem, shard=str(source), todo=todo)
        names.save_names(folder, packed)
        shutil.rmtree(folder / FETCHED, ignore_errors=True)
    return _report(listing, {"": len(packed)}, (), faults, listing.notes, ())


def pack_target(
    source: Path,
    out: Path,
    *,
    split: Split | None = None,
    seed: int = 0,
    shard_size: int = SHARD_SIZE,
    group_by: str | None = None,
    labels: Path | None = None,
    workers: int = 1,
    allow_missing: bool = False,
) -> PackReport:
    """Pack labelled images as ``train/``, ``val/``, ``test/`` and ``classes.txt`` in the new folder ``out``.

    ``out`` appears whole or not at all; a kill loses little. Labels are told by folders (`labels.by_folders`) or a
    table (`label_table.by_table`), which may also tell splits. Where they do not, each class is split by itself, at
    random by ``seed``, with at least one image in every split whose share is not 0. A sample is the image, a ``.cls``
    member and what goes along with the image; its order inside the split is random.

    Args:
        source: as in `pack_folder`; a table that has the column ``label`` tells labels, too.
        split: shares of train, val and test; their sum is 1. None for 0.4, 0.2, 0.4, and for more in train of a class
            of fewer than 100 (`class_splits.default_split`).
        group_by: what tells groups of images that stand in one split together (`groups.groups_of`); the classes are
            then spread as far as groups allow, and ``groups.parquet`` keeps them. None where every image is for itself.
        labels: a table with columns ``file``, ``label`` and perhaps ``split``; None for labels by folders.
        workers, allow_missing: as in `pack_folder`.

    Raises:
        Misuse: as `pack_folder`, ``split`` is invalid or not wanted, or ``group_by`` finds nothing.
        ShardError: no labels, a class or split that would be empty, or a class with fewer images than splits.
    """
    if split is not None:
        check_split(split)
    listing = listed(source, out, shard_size)
    told = _labelled(source, listing, labels)
    if labels is not None:
        own = labels.resolve()
        listing = with_others(listing, [file for file in listing.others if (listing.root / file).resolve() != own])
    check_class_names(told.classes, str(source))
    if told.split is not None:
        refuse_split(split)
    wanted = [entry for entry in listing.entries if entry.file in told.label]
    faults: list[Fault] = []
    by = None if group_by is None else [group_by, stamp(group_by)]
    asked = identity(listing, shard_size, split, seed, by, told.classes, told.label, told.split)
    with resumed_folder(out, asked) as (folder, journal):
        places = Places(str(listing.root), str(folder / FETCHED))
        strict = source.is_file() and not allow_missing
        held = {entry.file: entry for entry in readable(wanted, places, journal, workers, faults, strict=strict)}
        groups, notes = ({}, ()) if group_by is None else groups_of(list(held), group_by)
        parts, more = _parts(source, told, held, groups if group_by is not None else None, split, seed)
        number = {name: place for place, name in enumerate(told.classes)}
        packed = []
        for place, (name, part) in enumerate(zip(SPLITS, parts, strict=True)):
            turn = permutation(seed, "order of split", place, len(part))
            entries = iter([held[part[row]] for row in turn])
            sample_of = sampler(places, lambda entry: number[told.label[entry.file]])
            packed += write_entries(folder, f"{name}/", entries, sample_of, shard_size, journal) if part else []
        write_classes(folder, told.classes)
        if group_by is not None:
            save_groups(folder, {name: [(held[f].key, groups[f]) for f in part] for name, part in zip(SPLITS, parts)})
        names.save_names(folder, packed)
        shutil.rmtree(folder / FETCHED, ignore_errors=True)
    counts = {name: len(part) for name, part in zip(SPLITS, parts, strict=True)}
    loose = tuple(entry.file for entry in listing.entries if entry.file not in told.label)
    notes = (*listing.notes, *told.notes, *_loose_notes(loose, labels is None and source.is_dir()), *notes, *more)
    return _report(listing, counts, told.classes, faults, notes, loose)


def _loose_notes(loose: Sequence[str], by_folders: bool) -> tuple[str, ...]:
    """That images lie beside the class folders; a table tells by itself what it has no label of."""
    if not loose or not by_folders:
        return ()
    many = f"{len(loose):,} image{'s' * (len(loose) > 1)}"
    return (f"{many} in no class folder, such as {storable(loose[0])}: of no class, and left out",)


def check_paths(source: Path, out: Path, shard_size: int) -> None:
    """Raise `Misuse` unless ``source`` is a folder, ``out`` is missing or empty, and the two do not overlap."""
    check_shard_size(shard_size)
    if not source.is_dir():
        raise Misuse("no such folder", shard=str(source), todo="name a folder of images")
    if overlap(out, source):
        raise Misuse("output and input lie in one another", shard=str(out), todo="choose an --out outside the input")
    _refuse_held(out)


def _refuse_held(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Misuse("there is something already", shard=str(out), todo="choose another --out or remove it")


def listed(source: Path, out: Path, shard_size: int) -> Listing:
    """What a folder or a table holds that is to be packed into ``out``; raises as `check_paths`."""
    if not source.is_file():
        check_paths(source, out, shard_size)
        return list_folder(source)
    check_shard_size(shard_size)
    _refuse_held(out)
    if not tables.is_table(source):
        expected = f"a folder, or a table of paths: {', '.join(tables.SUFFIXES)}"
        raise Misuse("not to be packed", shard=str(source), expected=expected, todo="name one of these")
    return list_table(source)


def image_files(source: Path) -> tuple[list[str], PassedOver]:
    """Sorted relative paths of the image files below ``source``, by their names, and a report of what was skipped."""
    return walk_folder(source, is_image)


def _labelled(source: Path, listing: Listing, labels: Path | None) -> Labelled:
    files = [entry.file for entry in listing.entries]
    if labels is None and source.is_dir():
        return by_folders(source, files)
    return by_table(source, files, labels or source)


def _parts(
    source: Path, told: Labelled, held: dict[str, Entry], groups: Groups | None, split: Split | None, seed: int
) -> tuple[list[list[str]], tuple[str, ...]]:
    """Files of train, val and test: as they were told, else drawn; and notes."""
    of = {file: told.label[file] for file in held}
    if told.split is not None:
        parts = [[file for file in held if told.split[file] == name] for name in SPLITS]
        _refuse_lost(source, told, of, parts)
        return parts, spread_notes(groups or {}, told.split)
    if groups is None:
        return split_by_class(of, told.classes, split, seed)
    return split_by_group(groups, of, told.classes, split, seed)


def _refuse_lost(source: Path, told: Labelled, of: dict[str, str], parts: Sequence[Sequence[str]]) -> None:
    """Raise `ShardError` where a split that is there would be empty, or train would lack a class."""
    for name, part in zip(SPLITS, parts):
        if name in (told.split or {}).values() and not part:
            raise ShardError(f"no readable image in {name}", shard=str(source), todo="add images, or remove the split")
    if lost := sorted(set(told.classes) - {of[file] for file in parts[0]}):
        found, todo = ", ".join(lost[:5]), "add images of it to train, or remove it from the other splits"
        raise ShardError("train has no readable image of a class", shard=str(source), found=found, todo=todo)


def _report(
    listing: Listing,
    samples: dict[str, int],
    classes: tuple[str, ...],
    faults: Sequence[Fault],
    notes: tuple[str, ...],
    loose: tuple[str, ...],
) -> PackReport:
    """The report; ``loose`` are images of no class."""
    over = listing.passed_over
    ignored = over.hidden_files + len(listing.others) + len(over.special_files) + len(loose)
    others = tuple(sorted((*listing.others, *loose)))
    return PackReport(samples, classes, ignored, tuple(faults), over, listing.renamed, notes, others)
