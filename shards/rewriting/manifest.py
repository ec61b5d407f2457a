"""Reads a manifest, the list of samples to keep, and resolves it to row numbers of an index.

A manifest is a table with columns ``shard`` and ``key``, optionally ``row``, in any order, made by a run or any tool.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array
from shards.errors import ShardError
from shards.indexing.index import Index
from shards.indexing.key_join import join_keys
from shards.indexing.take_rows import SPAN, take_rows
from shards.io import parquet

#: The forms that strings have in Arrow: its own, that of long columns, and that of Polars.
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def read_manifest(path: Path) -> pa.Table:
    """The table in a Parquet file with its footer's metadata, or in all files of a folder, as Spark writes them.

    Raises:
        ShardError: there is no such file, or it is not Parquet (truncated, empty, another format).
    """
    todo = "write it again, e.g. DuckDB: copy (select shard, key ...) to 'kept.parquet'"
    parts = _parts(path) if path.is_dir() else [path]
    try:
        held = [parquet.read_table(part, todo, dictionary_columns=["shard"]) for part in parts]
        return pa.concat_tables(held) if len(held) > 1 else held[0]
    except FileNotFoundError as error:
        raise ShardError("no such manifest", shard=str(path), todo="check the path") from error
    except pa.ArrowException as error:
        todo = f"name one file, not a folder (a run's lie in its manifests/); or {todo}"
        raise ShardError("files of different columns", shard=str(path), found=str(error)[:80], todo=todo) from error


def _parts(folder: Path) -> list[Path]:
    """The Parquet files of a folder; names that begin with ``_`` or ``.`` are the writing tool's own."""
    found = sorted(path for path in folder.rglob("*.parquet") if path.name[0] not in "_.")
    if not found:
        raise ShardError("no Parquet file in this folder", shard=str(folder), todo="name the manifest")
    return found


def manifest_rows(index: Index, manifest: pa.Table) -> Int64Array:
    """The rows of ``index`` that ``manifest`` names.

    Args:
        manifest: columns ``shard`` and ``key`` (strings), optionally ``row`` (whole numbers).

    Returns:
        Shape (n,), int64, strictly increasing; every line of the manifest is one of them.

    Raises:
        ShardError: a column is missing or of another kind, a value is null or NaN, a line is there twice,
            or names no sample of the index; the message names the first such line.
    """
    return np.sort(rows_of_lines(index, manifest))


def rows_of_lines(index: Index, manifest: pa.Table) -> Int64Array:
    """As `manifest_rows`, in the order of the manifest's lines: shape (lines,), int64."""
    _check_columns(manifest)
    names = _Names(_text(manifest, "shard"), _text(manifest, "key"))
    if "row" in manifest.column_names:
        rows = _whole_numbers(manifest["row"])
        _check_against(index, rows, names)
    else:
        rows = _look_up(index, names)
    _check_once(rows, names)
    return rows


class _Names(NamedTuple):
    """The columns of names of a manifest; a `_plain` column is made of a part of one where it is needed."""

    shard: pa.ChunkedArray
    key: pa.ChunkedArray


def _check_columns(manifest: pa.Table) -> None:
    missing = [name for name in ("shard", "key") if name not in manifest.column_names]
    if missing:
        raise ShardError(
            f"manifest without column {' and '.join(missing)}",
            expected="shard, key and optionally row",
            found=", ".join(manifest.column_names) or "no column",
            todo="name the columns so",
        )
    if "kept" in manifest.column_names:
        raise ShardError(
            "this is a ledger and no manifest: its column kept says which lines count",
            todo="select the lines with kept = true, without that column",
        )


def _text(manifest: pa.Table, name: str) -> pa.ChunkedArray:
    column = manifest[name]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_text(kind) for is_text in _TEXT):
        raise ShardError(f"manifest column {name}", expected="strings", found=kind, todo="cast it to text")
    if column.null_count:
        raise _bad_line(name, "null", int(np.argmax(column.is_null().to_numpy())))
    return column


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of strings of any encoding as large strings."""
    text = pa.large_string()
    if not pa.types.is_dictionary(column.type):
        return column.cast(text)
    # No cast: Arrow has none for the views that Polars hands over.
    return pa.chunked_array([x.dictionary.cast(text).take(x.indices) for x in column.chunks], text)


def _whole_numbers(column: pa.ChunkedArray) -> Int64Array:
    """A column of whole numbers as int64, floats without a fraction included."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise ShardError("manifest column row", expected="whole numbers", found=column.type, todo="cast it to bigint")
    if column.null_count:
        raise _bad_line("row", "null", int(np.argmax(column.is_null().to_numpy())))
    values = column.to_numpy()
    broken = ~np.isfinite(values) | (values != np.floor(values))
    if broken.any():
        place = int(np.argmax(broken))
        raise _bad_line("row", values[place], place)
    return np.asarray(values, dtype=np.int64)


def _bad_line(column: str, value: Any, place: int) -> ShardError:
    return ShardError(f"manifest line {place}: {column} is {value}", todo="remove the line or fill it in")


def _check_against(index: Index, rows: Int64Array, names: _Names) -> None:
    """Check that every row exists and has the shard and key beside it."""
    outside = (rows < 0) | (rows >= len(index.table))
    if outside.any():
        place = int(np.argmax(outside))
        raise ShardError(
            f"manifest line {place}: no such row",
            expected=f"0 to {len(index.table) - 1}",
            found=int(rows[place]),
            todo="use the manifest with the store it was made for, or leave out the column row",
        )
    for start in range(0, len(rows), SPAN):
        block = rows[start : start + SPAN]
        order = np.argsort(block, kind="stable")
        held = take_rows(index.table.select(["shard", "key"]), block[order])
        for name, column in zip(names._fields, names):
            stored, named = _plain(held[name]), _plain(column.slice(start, SPAN)).take(pa.array(order))
            other = np.flatnonzero(pc.not_equal(stored, named).to_numpy())
            if other.size:
                first = int(other[np.argmin(order[other])])
                place = start + int(order[first])
                raise ShardError(
                    f"manifest line {place}: row {rows[place]} has another {name}",
                    expected=stored[first],
                    found=named[first],
                    todo="use the manifest with the store it was made for, or leave out the column row",
                )


def _look_up(index: Index, names: _Names) -> Int64Array:
    """The row number of each (shard, key)."""
    _, rows = join_keys(pa.table({name: _plain(column) for name, column in zip(names._fields, names)}), index.table)
    unknown = np.flatnonzero(rows < 0)
    if unknown.size:
        line = int(unknown[0])
        raise ShardError(
            f"manifest names {len(unknown)} samples that the store has not, the first in line {line}",
            shard=names.shard[line].as_py(),
            key=names.key[line].as_py(),
            todo="shards are named relative to the root of the store, as in its index.parquet",
        )
    return rows


def _check_once(rows: Int64Array, names: _Names) -> None:
    if (np.diff(rows) > 0).all():
        return
    order = np.argsort(rows, kind="stable")
    again = np.flatnonzero(np.diff(rows[order]) == 0)
    if again.size:
        place = int(order[again[0] + 1])
        raise ShardError(
            f"manifest line {place}: named before",
            shard=names.shard[place].as_py(),
            key=names.key[place].as_py(),
            todo="name every sample once",
        )
