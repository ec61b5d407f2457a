"""Hashes of a store on disk: one Parquet file a shard, published whole, beside the store's index.

The folder's name ends in a key of store and definition, so what is there under it is what is wanted, and a part that is
there is done. Columns: ``shard``, ``key``, ``image`` and ``pixels`` (digests), ``hash`` and ``mirror``, ``flat``,
``width``, ``height``, ``error``; docs/formats/duplicates.md says what they mean.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.data.photos import Photos
from curate.duplicates.hash_table import BATCH, DENSE, SCHEMA, Hashed, of_table, table_of
from curate.errors import CurateError
from curate.ledger import table_file
from curate.progress import Progress
from shards import stream
from shards.errors import ShardError
from shards.indexing.index import Index, one_shard
from shards.io import remote
from shards.io.folders import OWN_FOLDER
from shards.io.json_files import sha256_of
from shards.io.locks import locked
from shards.io.parallel import map_shards
from shards.member_names import storable

VERSION = 1


def of_store(index: Index, places: Sequence[Path], workers: int, progress: Progress) -> Hashed:
    """The hashes of a store: read from the first of ``places`` that has them all, else made in the last.

    A part that is damaged is made again, where it may be written.

    Raises:
        Busy: another process is making them.
        ShardError, CurateError: the store cannot be read, or its hashes can neither be read nor made again.
        OSError: disk full, no permission; parts that are there stay.
    """
    there = next((folder for folder in places if is_whole(folder, index)), None)
    folder = there or made(index, places[-1], workers, progress)
    try:
        return load(folder, index)
    except (CurateError, ShardError):
        if not may_be_made(folder):
            raise
    _remove_damaged(folder, index, progress)
    return load(made(index, folder, workers, progress), index)


def folder_in(place: Path, index: Index) -> Path:
    """Where a store's hashes lie in a folder of several."""
    return place / f"hashes-{sha256_of({'version': VERSION, 'of': index.fingerprint})[:12]}"


def places_of(index: Index, out: Path | None) -> list[Path]:
    """Where hashes are looked for, and in the last made: beside the store where it may be written to, else in ``out``.

    Of a store that may not be written to, without ``out``, the last cannot be made (`may_be_made`); of a remote one
    there is none.
    """
    if remote.is_url(index.root):
        return [] if out is None else [folder_in(out, index)]
    beside = folder_in(Path(index.root) / OWN_FOLDER, index)
    return [beside] if out is None or may_be_made(beside) else [beside, folder_in(out, index)]


def may_be_made(folder: Path) -> bool:
    """Whether this process may write a folder, there or not."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return os.access(there, os.W_OK)


def is_whole(folder: Path, index: Index) -> bool:
    """Whether the hashes of every shard are there."""
    return not _missing(folder, index)


def made(index: Index, folder: Path, workers: int, progress: Progress) -> Path:
    """Hash what is missing, a file a shard, shards in parallel; returns the folder. Raises as `of_store`."""
    with locked(folder):
        make(index, folder, range(len(index.shards)), workers, progress)
    return folder


def make(index: Index, folder: Path, numbers: range, workers: int, progress: Progress) -> None:
    """Hash those of some shards that are missing. Others may be at other shards meanwhile. Raises as `of_store`."""
    todo = [number for number in _missing(folder, index) if number in numbers]
    items = ((number, one_shard(index, number)) for number in todo)
    with progress.shards("hashes"):
        for _ in map_shards(partial(_hash_shard, folder), items, max(1, workers), len(todo)):
            pass


def of_photos(photos: Photos, workers: int = 1) -> Hashed:
    """The hashes of image files, of the shard ``""``; nothing is kept.

    Raises:
        CurateError: one is gone, or may not be read.
    """
    parts = [Photos(photos.root, photos.paths[at : at + BATCH]) for at in range(0, len(photos), BATCH)]
    return of_table(pa.concat_tables([SCHEMA.empty_table(), *map_shards(_hash_photos, parts, max(1, workers))]))


def in_memory(index: Index) -> Hashed:
    """The hashes of a small store; nothing is kept."""
    return of_table(_of_shard(index))


def load(folder: Path, index: Index) -> Hashed:
    """All hashes of a store.

    Raises:
        CurateError: a part is of other samples.
        ShardError: a part is damaged.
    """
    parts = [_read(folder, number, index) for number in range(len(index.shards))]
    return of_table(pa.concat_tables(parts) if parts else SCHEMA.empty_table())


def _read(folder: Path, number: int, index: Index) -> pa.Table:
    path, shard = _part(folder, number), index.shards[number]
    table_file.footer_of(path, "hashes", VERSION)
    part = table_file.read(path, SCHEMA.names, SCHEMA).select(SCHEMA.names).cast(SCHEMA)
    if len(part) != len(index.rows(number)):
        raise CurateError(f"{path}: {len(part)} rows, {shard.path} has {len(index.rows(number))}; remove {folder}")
    return part


def _remove_damaged(folder: Path, index: Index, progress: Progress) -> None:
    for number in range(len(index.shards)):
        try:
            _read(folder, number, index)
        except (CurateError, ShardError):
            path = _part(folder, number)
            progress.note(f"{path}: is damaged, and is made again")
            path.unlink(missing_ok=True)


def _part(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.parquet"


def _missing(folder: Path, index: Index) -> list[int]:
    return [number for number in range(len(index.shards)) if not _part(folder, number).is_file()]


def _hash_photos(photos: Photos) -> pa.Table:
    names = pa.table(
        {"shard": pa.array([""] * len(photos), pa.string()), "key": pa.array(map(storable, photos.paths), pa.string())}
    )
    return table_of(names, np.zeros(len(photos), np.bool_), photos.bodies())


def _hash_shard(folder: Path, item: tuple[int, Index]) -> None:
    number, index = item
    footer = {"format": "hashes", "version": VERSION}
    table_file.write(_part(folder, number), _of_shard(index), footer, dense=DENSE)


def _of_shard(index: Index) -> pa.Table:
    names = index.table.select(["shard", "key"])
    return table_of(names, index.table["image"].is_null().to_numpy(), stream.images(index, np.arange(len(index))))
