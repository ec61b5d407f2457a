"""The last stage of a rewrite: checks the sums, writes index, manifest and counts beside the shards, and the marker."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shards.arrays import Int64Array, UInt8Array
from shards.indexing.index import SCHEMA, SHARD, Index
from shards.indexing.index_file import FILE_NAME as INDEX
from shards.indexing.index_file import write
from shards.io.atomic import atomic_write_unsynced, sync_folder
from shards.rewriting import card, exports, marker, plan
from shards.rewriting.copy import WrittenShard
from shards.rewriting.plan import OUTCOMES


@dataclass(frozen=True)
class RewritePlan:
    """What a rewrite will write.

    Args:
        plan_hash: of everything that decides the bytes.
        outcome: shape (rows of the store,), uint8: codes of `plan.OUTCOMES`.
        kept: shape (n,), int64, increasing: the rows to write.
        held: their rows of the store's index.
        keys: their keys in the new shards.
        shard_size: bytes.
    """

    plan_hash: str
    outcome: UInt8Array
    kept: Int64Array
    held: pa.Table
    keys: pa.ChunkedArray
    shard_size: int


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
    index: Index, manifest: pa.Table, out: Path, work: RewritePlan, written: Sequence[WrittenShard]
) -> RewriteSummary:
    """Check the sums, then write everything that lies beside the shards, the marker last.

    Args:
        index: of the store.
        manifest: as given; its footer is copied.
        written: the new shards, in order.

    Raises:
        ShardError: the numbers of samples do not add up.
    """
    made = curated_index(out, work, written)
    counts = plan.counts_by_shard(index, work.outcome)
    plan.check_conservation(index, counts, _samples_by_source(index, made))
    summary = _summary(counts, made, written)
    with ThreadPoolExecutor() as threads:  # the disk has them all at once
        begun = [
            threads.submit(_write_index, made, out),
            threads.submit(_write_manifest, manifest, work, out / marker.MANIFEST),
            threads.submit(exports.write_counts, made, out),
            threads.submit(card.write_card, made, out),
        ]
    for one in begun:
        one.result()
    sync_folder(out)  # shards and all: the marker must not outlast what it stands for
    marker.write_marker(out, _marker(index, out, work, summary, counts, written))
    return summary


def curated_index(out: Path, work: RewritePlan, written: Sequence[WrittenShard]) -> Index:
    """The index of the new shards, with the further columns ``source_shard`` and ``source_key``."""
    numbers = np.repeat(np.arange(len(written), dtype=np.int32), [len(shard.offsets) for shard in written])
    names = pa.array([shard.shard.path for shard in written], pa.string())
    images = np.concatenate([shard.image_offsets for shard in written])
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(numbers), names),
        work.keys,
        np.concatenate([shard.offsets for shard in written]),
        np.concatenate([shard.sizes for shard in written]),
        work.held["image"],
        pa.array(images, mask=images < 0),
        work.held["image_size"],
        np.concatenate([shard.members for shard in written]),
        pa.nulls(len(work.kept), SCHEMA.field("extents").type),
        work.held["shard"],
        work.held["key"],
    ]
    sources = [SHARD.with_name("source_shard"), SCHEMA.field("key").with_name("source_key")]
    return Index(
        str(out),
        tuple(shard.shard for shard in written),
        pa.Table.from_arrays([_array(column) for column in columns], schema=pa.schema([*SCHEMA, *sources])),
    )


def _array(column: pa.Array | pa.ChunkedArray | npt.NDArray[Any]) -> pa.Array | pa.ChunkedArray:
    return pa.array(column) if isinstance(column, np.ndarray) else column


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
        int((plan.previous_with_key(made.table["key"]) >= 0).sum()),
        sum(shard.new_headers for shard in written),
    )


def _write_index(made: Index, out: Path) -> None:
    with atomic_write_unsynced(out / INDEX) as file:
        write(made, file, out)


def _write_manifest(manifest: pa.Table, work: RewritePlan, path: Path) -> None:
    """Write the rows that were written as ``shard``, ``key``, ``row``, with the footer of the given manifest."""
    shard = work.held["shard"].cast(pa.string())
    table = pa.table({"shard": shard, "key": work.held["key"], "row": work.kept}).combine_chunks()
    footer = {key: value for key, value in (manifest.schema.metadata or {}).items() if key.startswith(b"curate")}
    with atomic_write_unsynced(path) as file:
        pq.write_table(table.replace_schema_metadata(footer), file, compression="zstd", write_page_checksum=True)


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
        "shards": [
            {
                "name": shard.shard.path,
                "samples": len(shard.offsets),
                "bytes": shard.shard.size,
                "sha256": shard.sha256,
                "xxh3": shard.xxh3,
            }
            for shard in written
        ],
        "files": {name: asdict(marker.hash_file(out / name)) for name in (INDEX, marker.MANIFEST)},
        "source": {"fingerprint": index.fingerprint, "counts": _by_shard(index, counts)},
    }


def _by_shard(index: Index, counts: Int64Array) -> dict[str, dict[str, int]]:
    """Per source shard: ``in`` and every outcome."""
    lines = zip(index.shards, counts.tolist(), strict=True)
    return {shard.path: {"in": sum(line), **dict(zip(OUTCOMES, line, strict=True))} for shard, line in lines}
