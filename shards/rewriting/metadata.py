"""A store's own metadata for its curated set: what was kept of the ``00000.parquet`` that img2dataset put beside a tar.

A file a curated shard, with all columns of the store's, and any that a caller joins to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shards.arrays import Int64Array
from shards.errors import NoSuchObject, ShardError
from shards.indexing.index import Index
from shards.indexing.key_join import join_keys
from shards.io import parquet, remote
from shards.io.atomic import atomic_write
from shards.io.storage.clients import is_object
from shards.io.storage.objects import read_all

FOLDER = "metadata"
#: Bytes of a file beside a shard, at most.
_MAX_BYTES = 1 << 30
_TODO = "fetch the store's metadata again"


def write_metadata(made: Index, sources: pa.Table, store: Index, further: pa.Table | None, folder: Path) -> list[Path]:
    """Write ``metadata/NAME.parquet`` below ``folder`` for every curated shard ``NAME.tar``, and return their paths.

    Args:
        made: index of the curated set.
        sources: ``shard`` and ``key`` of its samples in the store.
        store: index of the store; beside each of its shards that gave a sample lies a Parquet file with a column
            ``key``, and a row a sample.
        further: ``shard`` and ``key`` in the store, and columns to join to the store's; None for none.

    Raises:
        ShardError: the store is remote, a file of metadata is missing or damaged or lacks a sample or the column
            ``key``, columns of the store's have one name and several kinds, or the name of a further one.
    """
    if remote.is_url(store.root) and not is_object(store.root):
        todo = "copy the store, or name it in an object store"
        raise ShardError("metadata is read beside shards on disk or in an object store", shard=store.root, todo=todo)
    with TemporaryDirectory() as fetched:
        beside = {name: _beside(store, name, Path(fetched)) for name in sources["shard"].unique().to_pylist()}
        return _write(made, sources, beside, further, folder)


def _write(
    made: Index, sources: pa.Table, beside: dict[str, Path], further: pa.Table | None, folder: Path
) -> list[Path]:
    """As `write_metadata`, of the files of each source shard."""
    columns = [] if further is None else [name for name in further.column_names if name not in ("shard", "key")]
    schema = _schema(beside, columns)
    paths = []
    for number, shard in enumerate(made.shards):
        rows = made.rows(number)
        mine = sources.slice(rows.start, len(rows)).combine_chunks()
        table = pa.concat_tables([_rows(beside[name], part, schema) for name, part in _by_shard(mine)])
        table = table.set_column(schema.get_field_index("key"), "key", made.table["key"].slice(rows.start, len(rows)))
        if further is not None:
            table = _joined(table, mine, further.select(["shard", "key", *columns]), columns)
        path = folder / name_of(shard.path)
        with atomic_write(path) as file:
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)
        paths.append(path)
    return paths


def name_of(shard: str) -> str:
    """Where the metadata of a curated shard lies: ``000000.tar`` -> ``metadata/000000.parquet``."""
    return str(Path(FOLDER) / Path(shard).with_suffix(".parquet"))


def _beside(store: Index, shard: str, fetched: Path) -> Path:
    """``sub/00000.tar``, ``.tgz`` or ``.tar.gz`` -> ``sub/00000.parquet`` of the store; of an object, a copy."""
    stem = shard[: -len(".gz")] if shard.lower().endswith(".tar.gz") else shard
    path = Path(stem).with_suffix(".parquet")
    if not is_object(store.root):
        return Path(store.root) / path
    copy = fetched / path
    copy.parent.mkdir(parents=True, exist_ok=True)
    with suppress(NoSuchObject):
        copy.write_bytes(read_all(f"{store.root}{path}", _MAX_BYTES))
    return copy


def _schema(beside: dict[str, Path], further: list[str]) -> pa.Schema:
    """The columns of all files: one that is empty in one file (null throughout) has its kind from the others."""
    found = []
    for path in beside.values():
        if not path.is_file():
            expected = "a Parquet file beside each tar, as img2dataset writes it"
            raise ShardError(
                "no metadata of this shard", shard=str(path), expected=expected, todo="leave --metadata out"
            )
        parquet.read_table(path, _TODO, ["key"])  # is refused where it is damaged, or has no such column
        found.append(pq.read_schema(path).remove_metadata())
    try:
        schema = pa.unify_schemas(found, promote_options="permissive")
    except pa.ArrowException as error:
        raise ShardError(f"files of metadata do not fit together ({error})", shard=str(path), todo=_TODO) from error
    taken = [name for name in further if name in schema.names]
    if taken:
        raise ShardError(f"the store's metadata has a column {taken[0]} of its own", shard=str(path), todo="rename it")
    return schema


def _by_shard(sources: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Runs of samples of one source shard, in order."""
    names = sources["shard"].to_pylist()
    starts = [place for place in range(len(names)) if place == 0 or names[place] != names[place - 1]]
    for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
        yield names[start], sources.slice(start, end - start)


def _rows(path: Path, part: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows of some samples of one source shard, in their order."""
    held = parquet.read_table(path, _TODO).replace_schema_metadata(None)
    held = pa.concat_tables([schema.empty_table(), held], promote_options="permissive").select(schema.names)
    named = pa.table({"shard": pa.array([part["shard"][0].as_py()] * len(held)), "key": held["key"].cast(pa.string())})
    places, lines = join_keys(part, named)
    _refuse_unless_one_each(places, lines, part, path)
    return held.take(pa.array(lines)).cast(schema)


def _joined(table: pa.Table, sources: pa.Table, further: pa.Table, columns: list[str]) -> pa.Table:
    places, lines = join_keys(sources, further)
    _refuse_unless_one_each(places, lines, sources, "what is joined to the metadata")
    found = further.take(pa.array(lines))
    for name in columns:
        table = table.append_column(name, found[name])
    return table


def _refuse_unless_one_each(places: Int64Array, lines: Int64Array, samples: pa.Table, where: Path | str) -> None:
    """Every sample has exactly one line."""
    several = np.flatnonzero(np.diff(places) == 0)
    wrong = np.concatenate([places[lines < 0], places[several]])
    if len(wrong):
        shard, key = (samples[name][int(wrong[0])].as_py() for name in ("shard", "key"))
        found = "several" if not (lines < 0).any() else "none"
        raise ShardError(f"{where}: not one row of this sample", shard=shard, key=key, found=found, todo=_TODO)
