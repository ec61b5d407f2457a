"""Parts of an index, each the scan of some of a set's shards in a file of its own, and the index that they make.

For machines that share a file system and nothing else: each scans a part, in any order, and one joins them. A file is
Parquet: the rows of `shards.indexing.schema.ROW`, and in the footer what else was found of each shard.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shards.errors import ShardError, ShardsChanged
from shards.faults import Fault
from shards.indexing.drift import check_unchanged
from shards.indexing.index import Index, Report, Scans, joined, rows_of
from shards.indexing.scan import Scan, Shard, scan_shard
from shards.indexing.schema import ROW
from shards.io import parquet, remote
from shards.io.atomic import atomic_write
from shards.io.json_files import sha256_of
from shards.io.parallel import map_shards
from shards.io.part import Part
from shards.io.shard_set import ShardSet, locate
from shards.io.spilled import spilled
from shards.io.storage.clients import is_object

VERSION = 1
_FOOTER = b"curate.index.part"
#: Rows that are written and read at a time.
_GROUP_ROWS = 1 << 20
#: The file of a part; and what a kill has left of one.
_PART = re.compile(r"(\d{1,9})-of-(\d{1,9})\.parquet", re.ASCII)
_PARTIAL = re.compile(rf"\.{_PART.pattern}\.partial", re.ASCII)
#: Missing parts that are named.
_SHOWN = 10


@dataclass(frozen=True)
class IndexPart:
    """A part that was written.

    Args:
        part: such as ``3/16``.
        file: where it is.
        shards, samples, faults: counts; a shard that is no tar counts as a fault, and is named when parts are joined.
    """

    part: str
    file: str
    shards: int
    samples: int
    faults: int


def folder_of(index_path: Path) -> Path:
    """Where the parts of an index lie: beside it, hidden."""
    return index_path.with_name(f".{index_path.stem}.parts")


def write_part(
    shard_set: ShardSet, part: Part, folder: Path, *, workers: int = 1, check: bool = False, image: str | None = None
) -> IndexPart:
    """Scan the shards of a part, and write what was found; done again, it is replaced.

    Args:
        workers, check, image: as `shards.indexing.index.build` has them.

    Raises:
        OSError: disk full, no permission.
    """
    remove_joined(folder)
    scans: Scans = []
    paths = [shard_set.paths[place] for place in part.share(len(shard_set.paths))]
    task = partial(scan_shard, shard_set.root, check=check, image=image)
    rows = spilled(ROW, rows_of(map_shards(task, paths, workers), scans))
    footer = {
        "version": VERSION,
        "set": _set_of(shard_set),
        "part": str(part),
        "check": check,
        "image": image,
        "scans": [_recorded(scan, n_rows) for scan, n_rows in scans],
    }
    path = folder / _name(part)
    schema = ROW.with_metadata({_FOOTER: json.dumps(footer).encode()})
    with (
        atomic_write(path) as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as out,
    ):
        out.write_table(rows, row_group_size=_GROUP_ROWS)
    n_faults = sum(len(scan.faults) for scan, _ in scans)
    return IndexPart(str(part), str(path), len(paths), len(rows), n_faults)


def join_parts(shard_set: ShardSet, folder: Path, *, skip_bad: bool = False) -> tuple[Index, Report]:
    """The index of a shard set from all of its parts: the same as if it had been made at once.

    Raises:
        ShardError: a part is missing, damaged, of other shards or otherwise made.
        ShardsChanged: a shard is gone or has another size, or as an object another ETag, than when its part was made.
        NotShards: as `shards.indexing.index.build`.
    """
    remove_joined(folder)
    parts = _all_parts(folder)
    footers = [_footer(folder, part, shard_set) for part in parts]
    _refuse_unlike(folder, parts, footers)
    scans: Scans = []
    found = joined(shard_set, _rows(shard_set, folder, parts, footers, scans), scans, skip_bad=skip_bad)
    if is_object(shard_set.root):
        check_unchanged(found[0])
    return found


def remove_parts(folder: Path) -> None:
    """Remove all parts at once, so that whoever comes after a kill finds all of them or none."""
    os.replace(folder, _joined(folder))
    remove_joined(folder)


def remove_joined(folder: Path) -> None:
    """Remove parts that are joined, and what a kill has left of some; what is nobody's goes back to where it was."""
    joined_parts = _joined(folder)
    if not joined_parts.exists():
        return
    for path in joined_parts.iterdir():
        if _PART.fullmatch(path.name) or _PARTIAL.fullmatch(path.name):
            path.unlink()
        else:
            folder.mkdir(exist_ok=True)
            os.replace(path, folder / path.name)
    joined_parts.rmdir()


def _joined(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.joined")


def _name(part: Part) -> str:
    return f"{part.number}-of-{part.of}.parquet"


def _set_of(shard_set: ShardSet) -> str:
    """What tells shard sets apart: their shards below the root, which may have another name on another machine."""
    return sha256_of(list(shard_set.paths))


def _all_parts(folder: Path) -> list[Part]:
    """The parts that there must be, by those that are there.

    Raises:
        ShardError: some are missing, or there are some of two divisions.
    """
    names = (_PART.fullmatch(path.name) for path in folder.glob("*.parquet"))
    there = {Part(int(name[1]), int(name[2])) for name in names if name}
    divisions = sorted({part.of for part in there})
    if not divisions:
        raise ShardError(
            "holds no part of an index", shard=str(folder), todo="make them with `curate index --part I/N`"
        )
    if len(divisions) > 1:
        found = " and ".join(f"of {of}" for of in divisions)
        raise ShardError(f"holds parts {found}", shard=str(folder), todo="remove those that are not meant")
    parts = [Part(number, divisions[0]) for number in range(1, divisions[0] + 1)]
    missing = [str(part) for part in parts if part not in there]
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else "")
        named = f"part {shown} is" if len(missing) == 1 else f"parts {shown} are"
        raise ShardError(f"{named} missing", shard=str(folder), todo=f"run `curate index --part {missing[0]}`")
    return parts


def _footer(folder: Path, part: Part, shard_set: ShardSet) -> dict[str, Any]:
    """What a part's file says of itself.

    Raises:
        ShardError: it is no such part of this set.
    """
    path, todo = folder / _name(part), f"run `curate index --part {part}` again"
    footer = parquet.json_metadata(parquet.read_metadata(path, todo), _FOOTER, path, todo)
    if footer is None or footer.get("part") != str(part):
        raise ShardError(f"is not part {part} of an index", shard=str(path), todo=todo)
    if footer.get("version") != VERSION:
        found = footer.get("version")
        raise ShardError("unknown format", shard=str(path), expected=VERSION, found=found, todo=todo)
    if footer.get("set") != _set_of(shard_set):
        raise ShardError(f"is a part of other shards than those of {shard_set.root}", shard=str(path), todo=todo)
    return footer


def _refuse_unlike(folder: Path, parts: list[Part], footers: list[dict[str, Any]]) -> None:
    """Raise `ShardError` where a part was made with other options than the first."""
    for name in ("check", "image"):
        for part, footer in zip(parts, footers):
            if footer.get(name) != footers[0].get(name):
                raise ShardError(
                    f"was made with another --{name} than part {parts[0]}",
                    shard=str(folder / _name(part)),
                    expected=footers[0].get(name),
                    found=footer.get(name),
                    todo="make all parts with the same options",
                )


def _rows(
    shard_set: ShardSet, folder: Path, parts: list[Part], footers: list[dict[str, Any]], scans: Scans
) -> Iterator[pa.RecordBatch]:
    """The rows of all parts in order, a group at a time; what else was found goes to ``scans``."""
    for part, footer in zip(parts, footers):
        path, todo, n_rows = folder / _name(part), f"run `curate index --part {part}` again", 0
        for group in parquet.read_groups(path, todo):
            n_rows += len(group)
            yield from parquet.cast_to_schema(group, ROW, path, "part of an index", todo).to_batches()
        found = _scans_in(footer, path, todo)
        if sum(count for _, count in found) != n_rows or len(found) != len(part.share(len(shard_set.paths))):
            raise parquet.Damaged("its content is no part of an index", shard=str(path), todo=todo)
        for scan, _ in found:
            _refuse_changed(shard_set.root, scan.shard, todo)
        scans += found


def _refuse_changed(root: str, shard: Shard | None, todo: str) -> None:
    if shard is None or remote.is_url(root):
        return
    location = locate(root, shard.path)
    found = f"{os.path.getsize(location)} bytes" if os.path.exists(location) else "no file"
    if found != (expected := f"{shard.size} bytes"):
        raise ShardsChanged("changed since it was scanned", shard=shard.path, expected=expected, found=found, todo=todo)


def _recorded(scan: Scan, n_rows: int) -> dict[str, Any]:
    shard = None if scan.shard is None else asdict(scan.shard)
    return {"shard": shard, "rows": n_rows, "images": scan.images, "faults": [asdict(fault) for fault in scan.faults]}


def _scans_in(footer: dict[str, Any], path: Path, todo: str) -> Scans:
    """What `_recorded` wrote.

    Raises:
        Damaged: it is something else.
    """
    nothing = pa.RecordBatch.from_pylist([], ROW)
    try:
        return [
            (
                Scan(
                    None if one["shard"] is None else Shard(**one["shard"]),
                    nothing,
                    Counter(one["images"]),
                    tuple(Fault(**fault) for fault in one["faults"]),
                ),
                int(one["rows"]),
            )
            for one in footer["scans"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        found = f"{type(error).__name__}: {str(error)[:80]}"
        raise parquet.Damaged("its footer cannot be read", shard=str(path), found=found, todo=todo) from error
