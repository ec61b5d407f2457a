"""Recomputes the numbers in ``curated.json`` from the set's own index and, where asked, from its store.

Part of `verify`. Which images did not decode is recorded nowhere; they are searched among the samples left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array, UInt8Array
from shards.indexing.content import image_fault
from shards.indexing.extents import padded_sizes
from shards.indexing.index import Index
from shards.indexing.key_hashes import previous_with_key
from shards.indexing.members import members_of_key, shard_members_by_key
from shards.indexing.scan import Shard
from shards.indexing.take_rows import take_rows
from shards.io.mapped import open_mapped
from shards.io.parallel import map_shards
from shards.io.shard_set import locate
from shards.rewriting import plan
from shards.rewriting.plan import OUTCOMES, PRUNED, UNDECODABLE
from shards.rewriting.rewrite import plan_hash
from shards.tar.walk import FILE

#: Name, recorded value, value found.
Recorded = tuple[str, Any, Any]


def set_faults(marker: dict[str, Any], index: Index, sources: pa.Table) -> Iterator[str]:
    """Differences between the marker and its own set, a line each.

    Args:
        index: of the curated set.
        sources: ``shard`` and ``key`` of its samples in the store.
    """
    summary, counts, source = marker["summary"], marker["summary"]["counts"], marker["source"]["counts"]
    samples = [len(index.rows(number)) for number in range(len(index.shards))]
    kept = {line["values"]: line["counts"] for line in sources["shard"].value_counts().to_pylist()}
    yield from _differences(
        [
            ("summary.shards", summary["shards"], len(index.shards)),
            ("summary.bytes", summary["bytes"], sum(shard.size for shard in index.shards)),
            ("summary.counts.kept", counts["kept"], len(index)),
            ("summary.shared_keys", summary["shared_keys"], _shared_keys(index)),
            ("shards", [shard["name"] for shard in marker["shards"]], [shard.path for shard in index.shards]),
            *((f"shards, {s['name']}, samples", s["samples"], n) for s, n in zip(marker["shards"], samples)),
            *(("source.counts", shard, "no such shard") for shard in kept if shard not in source),
            *((f"source.counts, {name}, kept", line["kept"], kept.get(name, 0)) for name, line in source.items()),
            *(
                (f"source.counts, {name}, in", line["in"], sum(line[each] for each in OUTCOMES))
                for name, line in source.items()
            ),
            *(
                (f"summary.counts.{each}", counts[each], sum(line[each] for line in source.values()))
                for each in ("in", *OUTCOMES)
            ),
        ]
    )


def store_faults(
    marker: dict[str, Any], made: Index, keys: pa.ChunkedArray, store: Index, rows: Int64Array, workers: int
) -> Iterator[str]:
    """Differences between the marker and the store, a line each.

    Args:
        made: index of the curated set.
        keys: of its samples in the store.
        store: index of the store.
        rows: shape (n,), int64, increasing: the store's rows that were kept.
        workers: processes that read.
    """
    source, renamed = marker["source"]["counts"], made.table["key"] != keys
    imageless = store.table["image"].is_null().to_numpy()
    none = np.zeros(0, np.int64)
    outcome = plan.outcomes(store, rows, none, keep_all_broken=bool(imageless[rows].any()))
    recorded = np.array([source.get(s.path, {}).get("undecodable", 0) for s in store.shards], np.int64)
    broken = _undecodable(store, outcome, recorded, workers)
    certain = all(len(found) == recorded[number] for number, found in broken.items())
    for found in broken.values():
        outcome[found] = UNDECODABLE
    counts = _expected_counts(store, outcome, broken, recorded)
    size = marker["shard_size"]
    yield from _differences(
        [
            ("source.fingerprint", marker["source"]["fingerprint"], store.fingerprint),
            *(("source.counts", name, "no such shard") for name in source.keys() - {s.path for s in store.shards}),
            *(
                (f"source.counts, {shard.path}", source.get(shard.path), line)
                for shard, line in zip(store.shards, counts)
            ),
            ("shard_size", size, size if _same_shards(made, store, rows, size) else "shards of another size"),
            (
                "summary.new_headers",
                marker["summary"]["new_headers"],
                _new_headers(made, store, rows, renamed, workers),
            ),
        ]
    )
    if certain:
        yield from _differences([("plan", marker["plan"], plan_hash(store, outcome, size, renamed))])


def _expected_counts(
    store: Index, outcome: UInt8Array, broken: dict[int, Int64Array], recorded: Int64Array
) -> list[dict[str, int]]:
    """``in`` and every outcome, for each shard of the store.

    Args:
        outcome: shape (rows,): codes of `plan.OUTCOMES`.
        broken: rows left out that do not decode, by shard number.
        recorded: shape (shards,): how many of these the marker counts as undecodable.
    """
    lines = [dict(zip(OUTCOMES, line)) | {"in": sum(line)} for line in plan.counts_by_shard(store, outcome).tolist()]
    for number, found in broken.items():
        # Not all of them need have been known to be undecodable; the others were counted as pruned.
        known, unknown = int(recorded[number]), len(found) - int(recorded[number])
        if unknown >= 0:
            lines[number] |= {"undecodable": known, "pruned": lines[number]["pruned"] + unknown}
    return lines


def _differences(lines: list[Recorded]) -> Iterator[str]:
    for name, recorded, found in lines:
        if recorded != found:
            yield f"curated.json: {name} is not what it should be (expected {found}, found {recorded})"


def _shared_keys(index: Index) -> int:
    return int((previous_with_key(index.table["key"]) >= 0).sum())


def _same_shards(made: Index, store: Index, rows: Int64Array, size: Any) -> bool:
    """Whether `plan.assign_to_shards` with this size gives the shards that there are."""
    sizes = padded_sizes(take_rows(store.table.select(["size"]), rows)["size"].to_numpy())
    cut = plan.assign_to_shards(np.arange(len(rows)), sizes, made.table["key"], size)
    return [len(shard.rows) for shard in cut] == [len(made.rows(number)) for number in range(len(made.shards))]


def _undecodable(store: Index, outcome: UInt8Array, recorded: Int64Array, workers: int) -> dict[int, Int64Array]:
    """Rows left out whose image does not decode, for each shard that is recorded to have some."""
    items = []
    for number in np.flatnonzero(recorded > 0).tolist():
        own = store.rows(number)
        rows = own.start + np.flatnonzero(outcome[own.start : own.stop] == PRUNED)
        table = take_rows(store.table.select(["image_offset", "image_size"]), rows)
        items.append((store.shards[number], number, rows, table))
    return dict(map_shards(partial(_undecodable_of, store.root), items, workers))


def _undecodable_of(root: str, item: tuple[Shard, int, Int64Array, pa.Table]) -> tuple[int, Int64Array]:
    shard, number, rows, table = item
    with open_mapped(locate(root, shard.path), shard.etag) as source:
        bodies = ((line["image_offset"], line["image_size"]) for line in table.to_pylist())
        broken = [image_fault(bytes(source.buffer[at : at + size])) is not None for at, size in bodies]
    return number, rows[np.array(broken, bool)]


def _new_headers(made: Index, store: Index, rows: Int64Array, renamed: bool, workers: int) -> int:
    """Number of members with a new header: all that were renamed, else hard links and members of global headers."""
    if renamed:
        return int(pc.sum(made.table["members"]).as_py() or 0)
    items = []
    for number, shard in enumerate(store.shards):
        first, end = (
            np.searchsorted(rows, [store.rows(number).start, store.rows(number).stop]) if shard.borrows else (0, 0)
        )
        if first < end:
            keys = take_rows(store.table.select(["key"]), rows[first:end])["key"].to_pylist()
            items.append((shard, keys))
    return sum(map_shards(partial(_new_headers_of, store.root), items, workers))


def _new_headers_of(root: str, item: tuple[Shard, list[str]]) -> int:
    shard, keys = item
    walked = shard_members_by_key(locate(root, shard.path), shard.path, shard.etag)
    parts = [pair for key in keys for pair in members_of_key(walked, key, shard.path)]
    return sum(part.kind == FILE and (member.borrowed or member.kind != FILE) for part, member in parts)
