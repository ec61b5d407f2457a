"""Verifies a curated folder against its checksums, its manifest and, where asked, its store byte by byte.

Everything is read, and only the marker is trusted. Nothing is repaired. Of a set in an object store the small files are
fetched, and the shards read where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array
from shards.errors import Error, NoSuchObject
from shards.indexing.index import Index, build
from shards.indexing.index_file import FILE_NAME as INDEX
from shards.indexing.index_file import load
from shards.indexing.key_hashes import any_sample_twice
from shards.indexing.members import SampleMembers, members_by_key, readable_bodies, without_duplicates
from shards.indexing.scan import Shard
from shards.indexing.take_rows import SPAN, take_rows
from shards.io import parquet
from shards.io.folders import OWN_FOLDER
from shards.io.json_files import parse_json
from shards.io.mapped import Buffer, open_mapped
from shards.io.parallel import map_shards
from shards.io.regular_files import read_regular
from shards.io.remote import open_url
from shards.io.shard_set import ShardSet, locate
from shards.io.storage.clients import is_object
from shards.rewriting import card, exports, far, metadata, recount
from shards.rewriting.manifest import manifest_rows, read_manifest
from shards.rewriting.marker import (
    IN_PROGRESS,
    MANIFEST,
    MARKER,
    FileHashes,
    hash_file,
    hash_stream,
    read_marker,
    sources_of,
)
from shards.rewriting.needed import open_samples

_COUNTS = (exports.SIZES, exports.LENGTH, exports.WIDS)


def verify(folder: Path | str, against: Index | None = None, *, workers: int = 1) -> list[str]:
    """Every fault of a curated folder, a line each; empty where it is what its marker says.

    Compares each file with its checksum, the index with the shards, the manifest with the index (every row once,
    nothing else), and the counts with both.

    Args:
        folder: local, or a URL of an object store.
        against: index of the store; then the bytes of every sample are compared, too.
        workers: processes that read.

    Raises:
        Unfinished: the folder has no marker.
        ShardError: the marker is damaged, or of an unknown version.
    """
    if isinstance(folder, str) and is_object(folder):
        url = folder.rstrip("/") + "/"
        with far.fetched(url) as small_files:
            return _faults(small_files, url, against, workers)
    return _faults(Path(folder), str(folder), against, workers)


def _faults(folder: Path, root: str, against: Index | None, workers: int) -> list[str]:
    """As `verify`.

    Args:
        folder: has every file of the set, of the shards perhaps only the names.
        root: where the shards are.
    """
    marker = read_marker(folder)
    faults = [*_foreign_file_faults(folder, marker), *_hash_faults(folder, root, marker, workers)]
    if faults:
        return faults  # what is read below would not be what was written
    index = replace(load(folder / INDEX), root=root)
    faults += _index_faults(root, index, workers)
    faults += _manifest_faults(folder)
    faults += recount.set_faults(marker, index, sources_of(folder))
    faults += _count_faults(folder, index)
    faults += _export_faults(folder, index)
    if against is not None and not faults:
        faults += _store_faults(folder, index, marker, against, workers)
    return faults


def _foreign_file_faults(folder: Path, marker: dict[str, Any]) -> Iterator[str]:
    tars = {shard["name"] for shard in marker["shards"]}
    named = {*marker["files"], *_COUNTS, MARKER, IN_PROGRESS, card.FILE_NAME, exports.UIDS, metadata.FOLDER, OWN_FOLDER}
    known = tars | named | {_dali_name(name) for name in tars}
    for path in sorted(folder.iterdir()):
        if path.name not in known:
            yield f"{path.name}: is no part of this curated set; move it elsewhere"
    tables = {metadata.name_of(name) for name in tars}
    for path in sorted((folder / metadata.FOLDER).glob("*")):
        if (name := str(path.relative_to(folder))) not in tables:
            yield f"{name}: is no part of this curated set; move it elsewhere"


def _dali_name(shard: str) -> str:
    return str(Path(shard).with_suffix(".idx"))


def _hash_faults(folder: Path, root: str, marker: dict[str, Any], workers: int) -> Iterator[str]:
    copied = [shard for shard in marker["shards"] if shard["sha256"] is None]
    yield from far.copied_faults(root, copied)
    tars = {shard["name"]: shard for shard in marker["shards"] if shard["sha256"] is not None}
    recorded = tars | marker["files"]
    places = [locate(root, name) if name in tars else str(folder / name) for name in recorded]
    found = map_shards(_hashes_of, places, workers)
    for (name, expected), has in zip(recorded.items(), found, strict=True):
        if has is None:
            yield f"{name}: is missing"
        elif has.bytes != expected["bytes"]:
            yield f"{name}: size differs (expected {expected['bytes']} bytes, found {has.bytes})"
        elif (has.sha256, has.xxh3) != (expected["sha256"], expected["xxh3"]):
            yield f"{name}: bytes differ (expected sha256 {expected['sha256']}, found {has.sha256})"


def _hashes_of(location: str) -> FileHashes | None:
    if is_object(location):
        with suppress(NoSuchObject), open_url(location) as stream:
            return hash_stream(stream)
        return None
    return hash_file(Path(location)) if os.path.isfile(location) else None


def _index_faults(root: str, index: Index, workers: int) -> Iterator[str]:
    """The index has exactly the samples that indexing the shards again finds."""
    try:
        found, _ = build(ShardSet(root, tuple(shard.path for shard in index.shards)), workers=workers)
    except Error as error:
        yield str(error)
        return
    if len(found) != len(index):
        yield f"{INDEX}: another number of samples than the shards (expected {len(found)}, found {len(index)})"
        return
    for name in ("shard", "key", "offset", "size", "members"):
        row = _first_difference(index.table[name], found.table[name])
        if row is not None:
            yield (
                f"{INDEX}: row {row} has another {name} than the shard "
                f"(expected {found.table[name][row]}, found {index.table[name][row]})"
            )


def _first_difference(one: pa.ChunkedArray, other: pa.ChunkedArray) -> int | None:
    """The first row in which two columns of one length differ, whatever their encoding."""
    for start in range(0, len(one), SPAN):
        differ = pc.not_equal(_decoded(one.slice(start, SPAN)), _decoded(other.slice(start, SPAN))).to_numpy()
        if differ.any():
            return start + int(np.argmax(differ))
    return None


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _manifest_faults(folder: Path) -> Iterator[str]:
    """Manifest and set have the same samples, each once."""
    lines = read_manifest(folder / MANIFEST).select(["shard", "key"])
    samples = sources_of(folder)
    names = ["shard", "key"]
    same = len(lines) == len(samples) and all(_first_difference(lines[name], samples[name]) is None for name in names)
    if same and not any_sample_twice(samples):
        return
    for place, table in (("manifest", lines), ("shards", samples)):
        counted = (
            table.append_column("n", pa.array(np.ones(len(table), np.int64))).group_by(names).aggregate([("n", "sum")])
        )
        for line in counted.filter(pc.greater(counted["n_sum"], 1)).to_pylist():
            yield f"{line['shard']}, {line['key']}: {line['n_sum']} times in the {place}"
    for line in lines.join(samples, names, join_type="left anti").to_pylist():
        yield f"{line['shard']}, {line['key']}: in the manifest and not in the shards"
    for line in samples.join(lines, names, join_type="left anti").to_pylist():
        yield f"{line['shard']}, {line['key']}: in the shards and not in the manifest"


def _count_faults(folder: Path, index: Index) -> Iterator[str]:
    """The files for other readers agree with the index."""
    expected = {
        exports.SIZES: exports.sizes(index),
        exports.LENGTH: len(index),
        exports.WIDS: exports.wids_index(index),
    }
    for name, value in expected.items():
        try:
            found = parse_json(read_regular(folder / name))
        except (OSError, ValueError):
            yield f"{name}: is missing or damaged"
            continue
        if found != value:
            yield f"{name}: counts differ from the index"


def _export_faults(folder: Path, index: Index) -> Iterator[str]:
    """What `curate export` wrote, where it did, belongs to these shards."""
    for number, shard in enumerate(index.shards):
        path = folder / _dali_name(shard.path)
        if path.is_file() and path.read_bytes() != exports.dali_index(index, number):
            yield f"{path.name}: is not the index of {shard.path}; export it again"
    path = folder / exports.UIDS
    if path.is_file() and not _holds_uids(path, index):
        yield f"{path.name}: does not hold the uids of these shards; export it again"
    yield from _metadata_faults(folder, index)


def _metadata_faults(folder: Path, index: Index) -> Iterator[str]:
    for number, shard in enumerate(index.shards):
        path, rows = folder / metadata.name_of(shard.path), index.rows(number)
        if not path.is_file():
            continue
        try:
            keys = parquet.read_table(path, "export it again", ["key"])["key"].to_pylist()
        except Error as error:
            yield str(error)
            continue
        if keys != index.table["key"].slice(rows.start, len(rows)).to_pylist():
            yield f"{metadata.name_of(shard.path)}: has other keys than {shard.path}; export it again"


def _holds_uids(path: Path, index: Index) -> bool:
    try:
        return np.array_equal(np.load(path, allow_pickle=False), exports.datacomp_uids(index))
    except (ValueError, EOFError, Error):
        return False


def _store_faults(folder: Path, made: Index, marker: dict[str, Any], store: Index, workers: int) -> list[str]:
    """Every sample has the bytes of its source, and the marker's numbers follow from the store."""
    sources = sources_of(folder)
    try:
        rows = _rows_in_store(folder, store, sources)
    except Error as error:
        return [str(error)]
    # Samples stand in store order, so the sorted rows belong to them one by one.
    for start in range(0, len(rows), SPAN):
        held, own = (
            take_rows(store.table.select(["shard", "key"]), rows[start : start + SPAN]),
            sources.slice(start, SPAN),
        )
        if any(_first_difference(held[name], own[name]) is not None for name in ("shard", "key")):
            return [f"{INDEX}: samples do not stand in the order of the store"]
    numbers = store.shard_numbers[rows]
    cuts = np.flatnonzero(np.diff(made.shard_numbers) | np.diff(numbers)) + 1
    spans = list(pairwise([0, *cuts.tolist(), len(rows)]))
    # A copy each: a slice would send the whole index to another process.
    pieces = (
        (take_rows(made.table, np.arange(a, b)), take_rows(store.table, rows[a:b]), store.shards[numbers[a]])
        for a, b in spans
    )
    faults = map_shards(partial(_piece_faults, made.root, store.root), pieces, workers, len(spans))
    found = [line for lines in faults for line in lines]
    return found + list(recount.store_faults(marker, made, sources["key"], store, rows, workers))


def _rows_in_store(folder: Path, store: Index, sources: pa.Table) -> Int64Array:
    """The rows of the samples in the store, as the manifest has them where it fits, else by their names."""
    with suppress(Error):
        return manifest_rows(store, read_manifest(folder / MANIFEST))
    return manifest_rows(store, sources)


def _piece_faults(folder: str, root: str, piece: tuple[pa.Table, pa.Table, Shard]) -> list[str]:
    """Compare samples of one new shard with those of one source shard."""
    mine, theirs, source = piece[0].to_pylist(), piece[1].to_pylist(), piece[2]
    shard, etag = source.path, source.etag
    wrong: list[tuple[dict[str, Any], dict[str, Any]]] = []
    rewritten: list[tuple[dict[str, Any], dict[str, Any]]] = []
    places = locate(folder, mine[0]["shard"]), locate(root, shard)
    with open_samples(places[0], piece[0]) as new, open_samples(places[1], piece[1], etag) as old:
        for has, had in zip(mine, theirs, strict=True):
            if not _same_bytes(new.buffer, has, old.buffer, had):
                may_differ = source.borrows or has["key"] != had["key"] or has["members"] < had["members"]
                (rewritten if may_differ else wrong).append((has, had))
    if rewritten:
        with open_mapped(places[0]) as new, open_mapped(places[1], etag) as old:
            made, came = members_by_key(new.buffer, mine[0]["shard"]), members_by_key(old.buffer, shard)
            for has, had in rewritten:
                copy, original = made[has["key"]], without_duplicates(came[had["key"]])
                anew = source.borrows or has["key"] != had["key"]
                read = readable_bodies if anew else _stored
                if read(new.buffer, copy) != read(old.buffer, original):
                    wrong.append((has, had))
    return [f"{shard}, {had['key']}: bytes differ from the store's" for _, had in wrong]


def _stored(buffer: Buffer, parts: SampleMembers) -> list[tuple[str, bytes]]:
    """Name and stored bytes of each part, header included and without padding."""
    return [(part.name, bytes(buffer[member.header : member.body + member.size])) for part, member in parts]


def _same_bytes(new: Buffer, has: dict[str, Any], old: Buffer, had: dict[str, Any]) -> bool:
    """Whether a sample's blocks are the same; one at the end of a cut tar may lack padding in the store."""
    extents = had["extents"] or [had]
    stored = b"".join(bytes(old[part["offset"] : part["offset"] + part["size"]]) for part in extents)
    return bytes(new[has["offset"] : has["offset"] + has["size"]]) == stored + bytes(-len(stored) % 512)
