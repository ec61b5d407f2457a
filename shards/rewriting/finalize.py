"""The last stage of a rewrite: checks the sums, writes index, manifest and counts beside the shards, and the marker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shards.arrays import Int64Array, UInt8Array
from shards.indexing.index import SCHEMA, SHARD, Index, shard_column
from shards.indexing.index_file import FILE_NAME as INDEX
from shards.indexing.index_file import write
from shards.indexing.key_hashes import previous_with_key
from shards.indexing.schema import ROW
from shards.indexing.take_rows import take_rows
from shards.io.atomic import atomic_write_unsynced, sync_folder
from shards.io.spilled import spilled
from shards.rewriting import card, exports, marker, plan
from shards.rewriting.copy import WrittenShard
from shards.rewriting.plan import OUTCOMES, NewShard

#: What became of each new shard, and where its samples lie in it (`shards.rewriting.copy.PLACES`).
Copied = Iterable[tuple[WrittenShard, pa.RecordBatch]]
#: Columns of a curated index that are no names of shards, and of a manifest.
_MADE = ROW.append(SCHEMA.field("key").with_name("source_key"))
_MANIFEST = pa.schema([("shard", pa.string()), ("key", pa.string()), ("row", pa.int64())])
#: Rows of a manifest that are written at a time.
_GROUP_ROWS = 1 << 20


@dataclass(frozen=True)
class RewritePlan:
    """What a rewrite will write.

    Args:
        plan_hash: of everything that decides the bytes.
        outcome: shape (rows of the store,), uint8: codes of `plan.OUTCOMES`.
        kept: shape (n,), int64, increasing: the rows to write.
        prefixes: what stands before the keys of each of the store's shards, with a ``/``; None for nothing.
        shard_size: bytes.
    """

    plan_hash: str
    outcome: UInt8Array
    kept: Int64Array
    prefixes: tuple[str, ...] | None
    shard_size: int

    def keys_of(self, index: Index, rows: Int64Array) -> pa.ChunkedArray:
        """The keys of these rows of the store in the new shards."""
        keys = take_rows(index.table.select(["key"]), rows)["key"]
        if self.prefixes is None:
            return keys
        before = pa.array(self.prefixes, pa.string()).take(pa.array(index.shard_numbers[rows]))
        return pc.binary_join_element_wise(pa.chunked_array([before]), keys, "/")


@dataclass(frozen=True)
class RewriteSummary:
    """What was written.

    Args:
        shards, bytes: number of tars, and their size.
        counts: ``in`` and every outcome; ``in`` is the sum of the others.
        shared_keys: kept samples whose key an earlier kept sample of another shard has.
        new_headers: members whose header was written anew.
    """

    shards: int
    bytes: int
    counts: dict[str, int]
    shared_keys: int
    new_headers: int


def finalize(
    index: Index, manifest: pa.Table, out: Path, work: RewritePlan, shards: Sequence[NewShard], copied: Copied
) -> RewriteSummary:
    """Wait for the new shards, check the sums, then write everything that lies beside them, the marker last.

    Args:
        index: of the store.
        manifest: as given; its footer is copied.
        shards: as planned.
        copied: what became of each, in their order.

    Raises:
        ShardError: the numbers of samples do not add up.
    """
    made, written = curated_index(index, out, work, shards, copied)
    counts = plan.counts_by_shard(index, work.outcome)
    plan.check_conservation(index, counts, _samples_by_source(index, made))
    summary = _summary(counts, made, written)
    with ThreadPoolExecutor() as threads:  # the disk has them all at once
        begun = [
            threads.submit(_write_index, made, out),
            threads.submit(_write_manifest, index, manifest, work, out / marker.MANIFEST),
            threads.submit(exports.write_counts, made, out),
            threads.submit(card.write_card, made, out),
        ]
    for one in begun:
        one.result()
    sync_folder(out)  # shards and all: the marker must not outlast what it stands for
    marker.write_marker(out, _marker(index, out, work, summary, counts, written))
    return summary


def curated_index(
    index: Index, out: Path, work: RewritePlan, shards: Sequence[NewShard], copied: Copied
) -> tuple[Index, list[WrittenShard]]:
    """The index of the new shards, with the further columns ``source_shard`` and ``source_key``; and the shards."""
    written: list[WrittenShard] = []
    rows = spilled(_MADE, _curated_rows(index, work, shards, copied, written))
    made = tuple(one.shard for one in written)
    numbers = np.repeat(np.arange(len(written), dtype=np.int32), [one.samples for one in written])
    sources = shard_column(index.shards, index.shard_numbers[work.kept])
    table = rows.add_column(0, SHARD, shard_column(made, numbers))
    return Index(str(out), made, table.add_column(len(SCHEMA), SHARD.with_name("source_shard"), sources)), written


def _curated_rows(
    index: Index, work: RewritePlan, shards: Sequence[NewShard], copied: Copied, written: list[WrittenShard]
) -> Iterator[pa.RecordBatch]:
    """The rows of each new shard without its name and its sources', as they come; the shard goes to ``written``."""
    for shard, (one, places) in zip(shards, copied, strict=True):
        written.append(one)
        rows = work.kept[shard.rows]
        held = take_rows(index.table.select(["key", "image", "image_size"]), rows)
        columns = {
            "key": work.keys_of(index, rows),
            **dict(zip(places.schema.names, places.columns)),
            "image": held["image"],
            "image_size": held["image_size"],
            "extents": pa.nulls(len(rows), ROW.field("extents").type),
            "source_key": held["key"],
        }
        table = pa.table([columns[name] for name in _MADE.names], schema=_MADE)
        yield from table.combine_chunks().to_batches()


def _samples_by_source(index: Index, made: Index) -> Int64Array:
    """How many samples of each source shard the curated index has."""
    number = {shard.path: place for place, shard in enumerate(index.shards)}
    found = np.zeros(len(index.shards), dtype=np.int64)
    for count in made.table["source_shard"].value_counts().to_pylist():
        found[number[count["values"]]] += count["counts"]
    return found


def _summary(counts: Int64Array, made: Index, written: Sequence[WrittenShard]) -> RewriteSummary:
    return RewriteSummary(
        len(written),
        sum(shard.shard.size for shard in written),
        {"in": int(counts.sum()), **dict(zip(OUTCOMES, counts.sum(axis=0).tolist(), strict=True))},
        int((previous_with_key(made.table["key"]) >= 0).sum()),
        sum(shard.new_headers for shard in written),
    )


def _write_index(made: Index, out: Path) -> None:
    with atomic_write_unsynced(out / INDEX) as file:
        write(made, file, str(out))


def _write_manifest(index: Index, manifest: pa.Table, work: RewritePlan, path: Path) -> None:
    """Write the rows that were written as ``shard``, ``key``, ``row``, with the footer of the given manifest."""
    footer = {key: value for key, value in (manifest.schema.metadata or {}).items() if key.startswith(b"curate")}
    schema = _MANIFEST.with_metadata(footer)
    with (
        atomic_write_unsynced(path) as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for start in range(0, len(work.kept), _GROUP_ROWS):
            rows = work.kept[start : start + _GROUP_ROWS]
            held = take_rows(index.table.select(["shard", "key"]), rows)
            table = pa.table([held["shard"].cast(pa.string()), held["key"], rows], schema=_MANIFEST)
            writer.write_table(table.combine_chunks(), row_group_size=_GROUP_ROWS)


def _marker(
    index: Index,
    out: Path,
    work: RewritePlan,
    summary: RewriteSummary,
    counts: Int64Array,
    written: Sequence[WrittenShard],
) -> dict[str, Any]:
    """The content of ``curated.json``, as docs/formats/shards.md describes it."""
    return {
        "plan": work.plan_hash,
        "shard_size": work.shard_size,
        "summary": asdict(summary),
        "shards": [_shard_line(shard) for shard in written],
        "files": {name: asdict(marker.hash_file(out / name)) for name in (INDEX, marker.MANIFEST)},
        "source": {"fingerprint": index.fingerprint, "counts": _by_shard(index, counts)},
    }


def _shard_line(shard: WrittenShard) -> dict[str, Any]:
    """What the marker says of a shard; where there are no hashes, why, and by what a change shows."""
    line = {"name": shard.shard.path, "samples": shard.samples, "bytes": shard.shard.size}
    line |= {"sha256": shard.sha256, "xxh3": shard.xxh3}
    return line if shard.sha256 else line | {"etag": shard.etag, "copied": "parts of it by the server, unseen"}


def _by_shard(index: Index, counts: Int64Array) -> dict[str, dict[str, int]]:
    """Per source shard: ``in`` and every outcome."""
    lines = zip(index.shards, counts.tolist(), strict=True)
    return {shard.path: {"in": sum(line), **dict(zip(OUTCOMES, line, strict=True))} for shard, line in lines}
