"""What an image must not be parted from when a target is split: a track, a writer, a patient.

A pattern of file names or a table tells it. A target keeps its groups in ``groups.parquet`` (docs/formats/shards.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from warnings import catch_warnings

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from shards.errors import Misuse, ShardError
from shards.io import parquet
from shards.io.atomic import atomic_write
from shards.member_names import storable
from shards.packing import tables

FORMAT_VERSION = 1
FILE_NAME = "groups.parquet"
SCHEMA = pa.schema(
    [*(pa.field(name, pa.string(), nullable=False) for name in ("split", "key")), pa.field("group", pa.string())]
)
_FOOTER = b"curate.groups"
_TABLES = (".csv", ".csv.gz", ".parquet")

#: The group of each file; None for one that is a group of its own.
Groups = dict[str, str | None]


def groups_of(paths: Sequence[str], by: str) -> tuple[Groups, tuple[str, ...]]:
    """The group of each path, and notes on what has none.

    Args:
        by: a CSV or Parquet file with the columns ``file`` and ``group``; else a regular expression, sought in the
            path: its first bracket, or all that it matches, is the group.

    Raises:
        Misuse: no such file, no regular expression, or no path has a group.
        ShardError: the file has other columns, or a file twice in different groups.
    """
    table = Path(by)
    if by.lower().endswith(_TABLES) or _is_file(table):
        named = {storable(path): path for path in paths}
        told = read_groups(table)
        found: Groups = {path: told.get(name) for name, path in named.items()}
    else:
        found = {path: _match(pattern, path) for pattern in [_compiled(by)] for path in paths}
    alone = [path for path, group in found.items() if group is None]
    if alone and len(alone) == len(found):
        first = storable(alone[0])
        raise Misuse(f"--group-by {by}: finds the group of no image", expected="one in " + first, todo="mend it")
    more = f", the first {storable(alone[0])}" if alone else ""
    return found, ((f"{len(alone):,} of {len(found):,} images are of no group and stand alone{more}",) if alone else ())


def _is_file(path: Path) -> bool:
    """Whether there is such a file; an expression may be longer than any name of one."""
    try:
        return path.is_file()
    except OSError:
        return False


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        with catch_warnings(action="ignore"):  # of what a later Python may read in another way
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        todo = "name a file that is there, or mend the expression"
        raise Misuse(
            f"--group-by {pattern}: neither a file nor a regular expression", found=error, todo=todo
        ) from error


def _match(pattern: re.Pattern[str], path: str) -> str | None:
    """What is sought in a path; None where that is nothing."""
    match = pattern.search(path)
    return (match[1 if pattern.groups else 0] or None) if match else None


def column_names(path: Path) -> list[str]:
    """The columns of a table of groups; raises as `read_groups`."""
    with _readable(path):
        schema = pq.read_schema(path) if tables.is_parquet(path) else pa.csv.open_csv(str(path)).schema
    return list(schema.names)


def read_groups(path: Path, column: str = "group") -> dict[str, str]:
    """The group of each file that a table names; a file without one is left out.

    Args:
        path: CSV, also gzipped, or Parquet; columns ``file`` and ``column``, others are passed over.

    Raises:
        Misuse: there is no such file.
        ShardError: it cannot be read, lacks a column, or a file stands there in two groups.
    """
    wanted = ["file", column]
    with _readable(path, column):
        if tables.is_parquet(path):
            table = parquet.read_table(path, f"write columns file and {column}", wanted, what="file of groups")
        else:  # numbers of groups may have leading zeros: everything is text
            text = pa.csv.ConvertOptions(column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted)
            table = pa.csv.read_csv(str(path), convert_options=text)
        lines = table.cast(pa.schema([(name, pa.string()) for name in wanted])).to_pydict()
    told: dict[str, str] = {}
    for file, group in zip(lines["file"], lines[column]):
        if file and group and told.setdefault(file, group) != group:
            raise ShardError("a file stands in two groups", shard=str(path), key=file, todo="write it once")
    return told


def _readable(path: Path, column: str = "group") -> AbstractContextManager[None]:
    return tables.readable(path, "file of groups", f"write columns file and {column}")


def save_groups(folder: Path, splits: Mapping[str, Iterable[tuple[str, str | None]]]) -> None:
    """Write ``groups.parquet`` of a target.

    Args:
        splits: key and group of each sample by split; None for a sample that stands alone.
    """
    rows = [(name, storable(key), group) for name, samples in splits.items() for key, group in samples]
    columns = [[row[place] for row in rows] for place in range(3)]
    columns[2] = [None if group is None else storable(group) for group in columns[2]]
    table = pa.table([pa.array(column, pa.string()) for column in columns], schema=SCHEMA)
    footer = {_FOOTER: json.dumps({"version": FORMAT_VERSION}).encode()}
    with atomic_write(folder / FILE_NAME) as file:
        pq.write_table(table.replace_schema_metadata(footer), file, compression="zstd", write_page_checksum=True)


def gap_notes(counts: Mapping[str, int], missing: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """What splits lack.

    Args:
        counts: groups of each class by its name.
        missing: names of the classes that a split has no image of, by split.

    >>> gap_notes({"cat": 2, "dog": 9}, {"train": [], "val": ["cat"]})
    ('val has no image of 1 class, whose groups are too few: cat (2 groups); tell smaller groups, or add images',)
    """
    return tuple(
        f"{split} has no image of {len(names)} class{'es' * (len(names) > 1)}, whose groups are too few: "
        + ", ".join(f"{name} ({counts[name]} group{'s' * (counts[name] > 1)})" for name in names[:5])
        + (", ..." if len(names) > 5 else "")
        + "; tell smaller groups, or add images"
        for split, names in missing.items()
        if names
    )


def spread_notes(groups: Mapping[str, str | None], split: Mapping[str, str]) -> tuple[str, ...]:
    """That groups stand in several splits, which were there and are kept.

    >>> spread_notes({"a": "x", "b": "x", "c": None}, {"a": "train", "b": "test", "c": "test"})
    ('1 group stands in several of the splits that are there, such as x: copies there flatter a score',)
    """
    where: dict[str, set[str]] = {}
    for file, group in groups.items():
        if group is not None:
            where.setdefault(group, set()).add(split[file])
    spread = sorted(group for group, found in where.items() if len(found) > 1)
    if not spread:
        return ()
    many = "groups stand" if len(spread) > 1 else "group stands"
    places = "in several of the splits that are there"
    return (f"{len(spread):,} {many} {places}, such as {storable(spread[0])}: copies there flatter a score",)
