"""The class of each file of a target by a table, and its split where the table or the folders have splits already."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from shards.errors import ShardError
from shards.member_names import storable
from shards.packing import tables
from shards.packing.labels import SPLIT_NAMES, Labelled, is_split, one_class_note, refuse_no_train
from shards.packing.target import SPLITS

_TODO = "write columns file, label and, where splits are there, split"
_WHOLE = re.compile(r"[0-9]+(\.0+)?")


def by_table(root: Path, files: Sequence[str], path: Path) -> Labelled:
    """Labels by a table with the columns ``file``, ``label`` and perhaps ``split``.

    A file is told by its path from the root, or from the folder of the table, or as it stands in ``files``.

    Classes are in the order of their names, or of their numbers where all are whole numbers; then ``1.0`` is ``1``.
    Without a column ``split``, splits are kept where every labelled image lies in a folder of one.

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
    whole = all(_WHOLE.fullmatch(str(row["label"])) for row in rows if row["label"] is not None)
    told = {_as_listed(root, path, name, there): row for name, row in _told(path, rows, column, whole).items()}
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
    if not split and all(is_split(file.split("/")[0]) for file in label):
        split = {file: SPLIT_NAMES[file.split("/")[0].lower()] for file in label}
    notes = _gaps(path, sorted(set(told) - set(there)), sorted(set(there) - set(told)), len(told))
    if len(rows) > len(told):
        notes += (f"{len(rows) - len(told):,} rows of {path.name} name a file again, which is packed once",)
    classes = _ordered(set(label.values()))
    if split:
        return refuse_no_train(root, Labelled(classes, label, split, notes))
    return Labelled(classes, label, None, (*notes, *one_class_note(classes)))


def _told(
    path: Path, rows: Sequence[Mapping[str, object]], column: str, whole: bool
) -> dict[str, tuple[str, str | None]]:
    """Label and split of each file that a table names.

    Args:
        whole: all labels are whole numbers, some perhaps written as ``1.0``, which is what a column of numbers with
            gaps becomes.
    """
    told: dict[str, tuple[str, str | None]] = {}
    for row in rows:
        file, label, split = (row.get(name) for name in (column, "label", "split"))
        if file is None or label is None or label != label:  # not a number
            raise ShardError(
                "a row without a file or a label", shard=str(path), found=str(dict(row))[:80], todo="fill it in"
            )
        known = None if split is None else SPLIT_NAMES.get(str(split).lower())
        if split is not None and known is None:
            expected = ", ".join(SPLITS)
            raise ShardError(
                "no such split", shard=str(path), key=str(file), expected=expected, found=split, todo=_TODO
            )
        said = (str(label).partition(".")[0] if whole else str(label), known)
        if told.setdefault(str(file), said) != said:
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
