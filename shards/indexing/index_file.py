"""The file of an index: Parquet, with the shard set described in its footer (docs/formats/shards.md).

What is read is not believed: a file that is damaged, of another format, or that names bytes outside its shards is
refused with one line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shards.arrays import Int64Array
from shards.errors import Misuse, RootDiffers, ShardError
from shards.indexing.index import FORMAT_VERSION, SCHEMA, SHARD, Index, shard_column
from shards.indexing.scan import Shard
from shards.indexing.schema import ROW
from shards.io import parquet, remote
from shards.io.atomic import atomic_write
from shards.io.folders import OWN_FOLDER
from shards.io.spilled import spilled
from shards.member_names import is_safe

FILE_NAME = "index.parquet"
_FOOTER = b"curate.index"
#: Rows that are written, and held to be what they should, at a time.
_GROUP_ROWS = 1 << 20
_TODO = "index the shards again"


def beside(root: Path) -> Path:
    """Where the index of the shards in ``root`` lies, or goes: ``.curate/index.parquet``.

    There ``root/*.parquet`` does not meet it, which in img2dataset's folders is the metadata of the samples. An index
    in ``root`` itself, where earlier releases put it and a curated set has its own, comes first.
    """
    plain = root / FILE_NAME
    return plain if plain.is_file() else root / OWN_FOLDER / FILE_NAME


def _root_of(path: Path) -> Path:
    """The folder of the shards that an index belongs to by its own place."""
    return path.parent.parent if path.parent.name == OWN_FOLDER else path.parent


def save(index: Index, path: Path) -> None:
    """Write an index atomically. `beside` its shards it names their folder as ``.``, and so moves with them.

    Raises:
        Misuse: `check_place`.
    """
    check_place(path)
    with atomic_write(path) as file:
        write(index, file, str(_root_of(path)))


def check_place(path: Path) -> None:
    """Raise `Misuse` where writing an index to ``path`` would replace another file, or ``path`` cannot be a file."""
    if path.is_dir() or any(above.exists() and not above.is_dir() for above in path.parents):
        todo = "say with --index which file the index becomes"
        raise Misuse("is a folder, or lies in what is none", shard=str(path), todo=todo)
    if not path.exists() or (path.suffix == ".parquet" and _is_index_or_damaged(path)):
        return
    raise Misuse("holds something else", shard=str(path), todo="say with --index where the index goes")


def _is_index_or_damaged(path: Path) -> bool:
    try:
        return _FOOTER in parquet.read_metadata(path, _TODO)
    except parquet.Damaged:
        return True


def write(index: Index, file: BinaryIO, folder: str) -> None:
    """Write an index to an open file that will lie in ``folder`` or in its `OWN_FOLDER`; a URL of it ends in ``/``."""
    local = not remote.is_url(index.root)
    inside = Path(folder).resolve() == Path(index.root).resolve() if local else folder == index.root
    footer = {
        "version": FORMAT_VERSION,
        "tool": f"curate-bdw {version('curate-bdw')}",
        "root": "." if inside else index.root,
        "shards": [shard.record() for shard in index.shards],
    }
    schema = index.table.schema.with_metadata({_FOOTER: json.dumps(footer).encode()})
    with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
        for start in range(0, max(1, len(index)), _GROUP_ROWS):
            writer.write_table(index.table.slice(start, _GROUP_ROWS).combine_chunks(), row_group_size=_GROUP_ROWS)


def load(path: Path, root: str | None = None) -> Index:
    """Read an index. The caller, or the folder it lies in, says where its shards are; the file does not.

    Args:
        root: of its shards; None for the folder of ``path``, or the one above where that is `OWN_FOLDER`.

    Raises:
        RootDiffers: it was made for shards elsewhere.
        ShardError: it is missing, damaged, no index, or of an unknown version.
    """
    place = str(_root_of(path.resolve())) if root is None else root
    index, recorded_root = _read(path, place)
    _refuse_other_root(recorded_root, place, path)
    return index


def load_moved(path: Path, root: str) -> Index:
    """As `load`, for an index that a run keeps of its own store, which may have moved to ``root``; check its drift."""
    return _read(path, root)[0]


def _read(path: Path, place: str) -> tuple[Index, str]:
    """An index with ``place`` as its root, and the root that its file records."""
    try:
        metadata = parquet.read_metadata(path, _TODO)
    except FileNotFoundError as error:
        raise ShardError("no such index", shard=str(path), todo="make it with 'curate index'") from error
    footer = parquet.json_metadata(metadata, _FOOTER, path, _TODO)
    if footer is None:
        raise ShardError("not an index of shards", shard=str(path), expected="a footer 'curate.index'", found="none")
    if footer.get("version") != FORMAT_VERSION:
        found = footer.get("version")
        raise ShardError("unknown index format", shard=str(path), expected=FORMAT_VERSION, found=found, todo=_TODO)
    shards = _shards_in(footer, path)
    numbers: list[npt.NDArray[np.int32]] = []
    rows = spilled(ROW, _rows_in(path, shards, numbers))
    codes = np.concatenate(numbers) if numbers else np.zeros(0, np.int32)
    return Index(place, shards, rows.add_column(0, SHARD, shard_column(shards, codes))), str(footer["root"])


def _rows_in(path: Path, shards: tuple[Shard, ...], numbers: list[npt.NDArray[np.int32]]) -> Iterator[pa.RecordBatch]:
    """The rows of an index's file without their shard, whose number goes to ``numbers``; refused where impossible."""
    paths = pa.array([shard.path for shard in shards], pa.string())
    # Of a gzip the stored size says nothing about offsets in what it holds.
    sizes = np.array([np.iinfo(np.int64).max if shard.gzip else shard.size for shard in shards], np.int64)
    n_rows, last = 0, 0
    for group in parquet.read_groups(path, _TODO):
        table = parquet.cast_to_schema(group, SCHEMA, path, "index", _TODO)
        found = pc.index_in(table["shard"].cast(pa.string()), value_set=paths)
        if found.null_count:
            raise _no_index(path, "a row of a shard that it does not list")
        number = found.to_numpy()
        if (np.diff(number, prepend=last) < 0).any():
            raise _no_index(path, "rows not in the order of its shards")
        wrong = _impossible(table, sizes[number], n_rows)
        if wrong:
            raise _no_index(path, wrong)
        if len(number):
            n_rows, last = n_rows + len(number), int(number[-1])
            numbers.append(number)
        yield from table.drop_columns(["shard"]).combine_chunks().to_batches()


def _shards_in(footer: dict[str, Any], path: Path) -> tuple[Shard, ...]:
    """The shards of a footer, each below the root by its name alone."""
    try:
        shards = tuple(Shard(**shard) for shard in footer["shards"])
        wrong = next((f"of shard {shard.path!r:.80}" for shard in shards if not _is_shard(shard)), "")
    except (KeyError, TypeError) as error:
        raise _no_index(path, f"{type(error).__name__}: {str(error)[:80]}") from error
    if not wrong and len({shard.path for shard in shards}) < len(shards):
        wrong = "a shard is listed twice"
    if wrong or not isinstance(footer.get("root"), str):
        raise _no_index(path, wrong or "it names no root")
    return shards


def _is_shard(shard: Shard) -> bool:
    texts = _is_text(shard.path) and _is_text(shard.checksum)
    flags = isinstance(shard.gzip, bool) and isinstance(shard.borrows, bool)
    if not (
        texts
        and flags
        and (shard.etag is None or _is_text(shard.etag))
        and type(shard.size) is int
        and 0 <= shard.size < 2**63
    ):
        return False
    return is_safe(shard.path) and shard.path.rpartition("/")[2] not in ("", ".")


def _is_text(value: Any) -> bool:
    """A string that can be written: JSON's escapes can spell half a character."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _refuse_other_root(footer: str, place: str, path: Path) -> None:
    """``.`` goes with its folder, and with whatever root a copy of it is used for; any other root must be the one."""
    same = footer in (".", place)
    if not same and not remote.is_url(footer) and not remote.is_url(place):
        same = os.path.realpath(footer) == os.path.realpath(place)
    if not same:
        todo = "index these shards, or name the store of this index"
        raise RootDiffers("an index of other shards", shard=str(path), expected=place, found=footer, todo=todo)


def _no_index(path: Path, wrong: str) -> ShardError:
    return parquet.Damaged(f"its content is no index ({wrong})", shard=str(path), todo=_TODO)


def _impossible(table: pa.Table, limits: Int64Array, first: int) -> str:
    """The first value that no shard could hold, in words, else empty: an index must not point outside its shards.

    Args:
        limits: shape (rows,), int64: bytes of the shard of each row.
        first: number of the first row.
    """
    for name in ("offset", "size", "image_offset", "image_size"):
        values = pc.fill_null(table[name], 0).to_numpy()
        outside = (values < 0) | (values > limits)
        if outside.any():
            place = int(np.argmax(outside))
            return f"{name} {values[place]} outside the shard, in row {first + place}"
    return _impossible_extents(table["extents"], limits)


def _impossible_extents(column: pa.ChunkedArray, limits: Int64Array) -> str:
    """As `_impossible`, for samples of several extents."""
    apart = np.flatnonzero(column.is_valid().to_numpy())
    held = column.take(pa.array(apart)).combine_chunks()
    counts = pc.list_value_length(held).to_numpy(zero_copy_only=False)
    pieces = pc.list_flatten(held)
    ends = np.repeat(limits[apart], counts)
    for name in ("offset", "size"):
        values = pc.fill_null(pc.struct_field(pieces, name), -1).to_numpy(zero_copy_only=False)
        if ((values < 0) | (values > ends)).any():
            return f"an extent's {name} outside the shard"
    return "a sample in no pieces at all" if (counts == 0).any() else ""
