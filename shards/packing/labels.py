"""The class of each file of a target, and its split where there are splits already: by the folders, or by a table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shards.errors import Misuse, ShardError
from shards.member_names import storable
from shards.packing import tables
from shards.packing.listing import FOREIGN_FOLDERS
from shards.packing.target import SPLITS

#: What folders of splits, and splits in a table, are called, in lower case.
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_TODO = "write columns file, label and, where splits are there, split"


@dataclass(frozen=True)
class Labelled:
    """What is known of a target's files.

    Args:
        classes: names, in the order of their numbers.
        label: the class of each file that has one.
        split: the split of each of them; None where splits are still to be drawn.
        notes: what a person should know.
    """

    classes: tuple[str, ...]
    label: Mapping[str, str]
    split: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()


def by_folders(root: Path, files: Sequence[str]) -> Labelled:
    """Labels by the folders that images lie in.

    ``cat/1.jpg`` is of class cat. Splits are kept as they are where every image lies in a folder of one:
    ``train/cat/1.jpg`` and ``test/cat/2.jpg``, or ``cat/train/1.jpg`` and ``cat/test/2.jpg``.

    Args:
        files: of all images, relative to the root; those in no class folder get no label.

    Raises:
        ShardError: no class folder holds an image, a class folder is a link, or there are splits but no train.
        OSError: a class folder cannot be listed.
    """
    top = _folders(root, root)
    inside = [file.split("/") for file in files if "/" in file]
    if not files:
        raise ShardError("no image in the folder", shard=str(root), todo="name a folder that holds images")
    if not inside:
        raise _unlabelled(root, f"its {len(files):,} images stand side by side")
    if all(_is_split(parts[0]) for parts in inside):
        return _splits_above(root, inside)
    if all(len(parts) > 2 and _is_split(parts[1]) for parts in inside):
        split = {"/".join(parts): SPLIT_NAMES[parts[1].lower()] for parts in inside}
        return _refuse_no_train(root, Labelled(top, {file: file.split("/")[0] for file in split}, split))
    some = [parts for parts in inside if len(parts) > 2 and _is_split(parts[1])]
    notes = ()
    if some:
        notes = (
            f"{len(some):,} of {len(inside):,} images lie in folders such as {'/'.join(some[0][:2])}, the others in no "
            "split's: splits are drawn of all; put every image into train/, val/ or test/ to keep them",
        )
    return Labelled(top, {"/".join(parts): parts[0] for parts in inside}, None, notes)


def by_table(root: Path, files: Sequence[str], path: Path) -> Labelled:
    """Labels by a table with the columns ``file``, ``label`` and perhaps ``split``.

    A file is told by its path from the root, or from the folder of the table, or as it stands in ``files``.

    Classes are in the order of their names, or of their numbers where all are whole numbers. Without a column
    ``split``, splits are kept where every labelled image lies in a folder of one.

    Raises:
        Misuse: there is no such file.
        ShardError: it cannot be read, lacks a column or a label, says two things of a file, or names none of them.
    """
    rows = tables.read_rows(path, "file of labels", _TODO)
    column = tables.column_in(rows, tables.FILE_COLUMNS)
    if column is None or "label" not in rows[0]:
        found = ", ".join(rows[0]) if rows else "no row"
        raise ShardError("no file of labels", shard=str(path), expected="file, label", found=found, todo=_TODO)
    there = {storable(file): file for file in files}
    told = {_as_listed(root, path, name, there): row for name, row in _told(path, rows, column).items()}
    label = {there[name]: row[0] for name, row in told.items() if name in there}
    if not label:
        expected, found = f"paths such as {storable(files[0])}" if files else None, next(iter(told))
        raise ShardError("names no image that is there", shard=str(path), expected=expected, found=found, todo=_TODO)
    split = {there[name]: row[1] for name, row in told.items() if name in there and row[1] is not None}
    if 0 < len(split) < len(label):
        found = f"{len(split):,} of {len(label):,} files with one"
        raise ShardError(
            "a split for some files only",
            shard=str(path),
            found=found,
            todo="write it for all, or leave the column out",
        )
    if not split and all(_is_split(file.split("/")[0]) for file in label):
        split = {file: SPLIT_NAMES[file.split("/")[0].lower()] for file in label}
    notes = _gaps(path, sorted(set(told) - set(there)), sorted(set(there) - set(told)), len(told))
    if len(rows) > len(told):
        notes += (f"{len(rows) - len(told):,} rows of {path.name} name a file again, which is packed once",)
    found_labels = Labelled(_ordered(set(label.values())), label, split or None, notes)
    return _refuse_no_train(root, found_labels) if split else found_labels


def _told(path: Path, rows: Sequence[Mapping[str, object]], column: str) -> dict[str, tuple[str, str | None]]:
    """Label and split of each file that a table names."""
    told: dict[str, tuple[str, str | None]] = {}
    for row in rows:
        file, label, split = (row.get(name) for name in (column, "label", "split"))
        if file is None or label is None:
            raise ShardError(
                "a row without a file or a label", shard=str(path), found=str(dict(row))[:80], todo="fill it in"
            )
        known = None if split is None else SPLIT_NAMES.get(str(split).lower())
        if split is not None and known is None:
            expected = ", ".join(SPLITS)
            raise ShardError(
                "no such split", shard=str(path), key=str(file), expected=expected, found=split, todo=_TODO
            )
        if told.setdefault(str(file), (str(label), known)) != (str(label), known):
            raise ShardError("a file stands there twice", shard=str(path), key=str(file), todo="write it once")
    return told


def _as_listed(root: Path, table: Path, name: str, there: Container[str]) -> str:
    """A file as it is listed: by its path from the root, else from the folder of the table; else as it stands."""
    found = name if name in there else os.path.relpath(os.path.join(table.parent, name), root)
    return found if found in there else name


def _gaps(path: Path, gone: list[str], unlabelled: list[str], n_rows: int) -> tuple[str, ...]:
    """Notes on rows without an image, and on images without a row."""
    notes = []
    if gone:
        notes.append(f"{len(gone):,} of {n_rows:,} files of {path.name} are not there, such as {gone[0]}")
    if unlabelled:
        notes.append(
            f"{path.name} has no label of {len(unlabelled):,} images, which are left out: {unlabelled[0]}, ..."
        )
    return tuple(notes)


def _ordered(names: set[str]) -> tuple[str, ...]:
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name), name) if numbers else (0, name)))


def _splits_above(root: Path, inside: Sequence[list[str]]) -> Labelled:
    """Labels where the folders of splits stand above those of classes."""
    held = [parts for parts in inside if len(parts) > 2]
    if not held:
        where = ", ".join(sorted({f"{parts[0]}/" for parts in inside}))
        raise _unlabelled(root, f"images stand side by side in {where}")
    for top in {parts[0] for parts in inside}:
        _folders(root / top, root)
    split = {"/".join(parts): SPLIT_NAMES[parts[0].lower()] for parts in held}
    label = {"/".join(parts): parts[1] for parts in held}
    return _refuse_no_train(root, Labelled(tuple(sorted(set(label.values()))), label, split))


def _is_split(name: str) -> bool:
    return name.lower() in SPLIT_NAMES


def _refuse_no_train(root: Path, found: Labelled) -> Labelled:
    """Labels with splits, where these have what a target needs."""
    counts = Counter((found.split or {}).values())
    if not counts["train"]:
        there = ", ".join(sorted(counts))
        raise ShardError("splits without a train", shard=str(root), found=there, todo="add images to train, too")
    lacking = [name for name in SPLITS if not counts[name]]
    if not lacking:
        return found
    note = (
        f"the splits that are there are kept, and no {' and no '.join(lacking)} is among them: a score needs a test; "
        "to have all three drawn, name the folder of train's classes alone"
    )
    return Labelled(found.classes, found.label, found.split, (*found.notes, note))


def _unlabelled(root: Path, found: str) -> ShardError:
    todo = (
        "put the images of each class into a folder of its own, or give --labels FILE with columns file, label; "
        f"a target without labels needs no packing: curate run --target {storable(str(root))}"
    )
    return ShardError("no class folder", shard=str(root), found=found, todo=todo)


def _folders(folder: Path, root: Path) -> tuple[str, ...]:
    """Sorted names of the class folders. A link is refused, as one class fewer would be another task."""
    folders = [entry for entry in folder.iterdir() if _may_be_class(entry)]
    linked = sorted(storable(found.name) for found in folders if found.is_symlink())
    if linked:
        problem, todo = "a class folder is a link, and links are not followed", "put the folder itself there"
        raise ShardError(problem, shard=str(root), found=", ".join(linked[:5]), todo=todo)
    for found in folders:
        next(found.iterdir(), None)  # one that cannot be listed is an error, not an empty class
    return tuple(sorted(found.name for found in folders))


def _may_be_class(entry: Path) -> bool:
    return entry.is_dir() and entry.name[0] != "." and entry.name not in FOREIGN_FOLDERS


def refuse_split(split: object) -> None:
    """Raise `Misuse` where shares are asked for beside splits that are there."""
    if split is not None:
        raise Misuse(
            "--split: there are splits already, and these are kept; leave it out, or name train's folder alone"
        )
