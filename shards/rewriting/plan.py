"""Decides from index and manifest what becomes of each sample, and which new shard it goes to.

Pure: no file is read, so every process that plans gets the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards import member_names
from shards.arrays import Int64Array, UInt8Array
from shards.errors import ShardError
from shards.indexing.index import Index
from shards.indexing.key_hashes import previous_with_key
from shards.tar.writer import END

#: What can become of a sample; the code of an outcome is its position here.
OUTCOMES = ("kept", "pruned", "undecodable", "imageless", "unsafe")
KEPT, PRUNED, UNDECODABLE, IMAGELESS, UNSAFE = range(len(OUTCOMES))


def outcomes(index: Index, manifest: Int64Array, undecodable: Int64Array, *, keep_all_broken: bool) -> UInt8Array:
    """What becomes of every row: shape (n,), uint8, codes of `OUTCOMES`.

    A sample with an unsafe key is never copied. One without an image, or whose image does not decode, is kept or
    dropped by ``keep_all_broken``, whatever the manifest says.

    Args:
        manifest: shape (k,), int64: rows to keep.
        undecodable: shape (m,), int64: rows whose image is known not to decode.
    """
    outcome = np.full(len(index.table), PRUNED, dtype=np.uint8)
    outcome[manifest] = KEPT
    outcome[undecodable] = KEPT if keep_all_broken else UNDECODABLE
    outcome[index.table["image"].is_null().to_numpy()] = KEPT if keep_all_broken else IMAGELESS
    outcome[unsafe_rows(index.table["key"])] = UNSAFE
    return outcome


def unsafe_rows(keys: pa.ChunkedArray) -> Int64Array:
    """Rows whose key is absolute or has ``..``: unpacking them could write outside the folder."""
    doubtful = np.flatnonzero(pc.match_substring_regex(keys, r"^/|\.\.|\x00").to_numpy())
    unsafe = [row for row in doubtful if not member_names.is_safe(keys[int(row)].as_py())]
    return np.asarray(unsafe, dtype=np.int64)


def median_size(index: Index) -> int:
    """Bytes of the store's median shard: its samples and end blocks."""
    held = np.bincount(index.shard_numbers, weights=index.table["size"].to_numpy(), minlength=len(index.shards))
    held = held[held > 0]
    return int(np.median(held)) + len(END) if held.size else len(END)


@dataclass(frozen=True)
class NewShard:
    """One shard to write: ``rows`` (int64, increasing) in that order."""

    number: int
    rows: Int64Array


def assign_to_shards(rows: Int64Array, sizes: Int64Array, keys: pa.ChunkedArray, shard_size: int) -> list[NewShard]:
    """Fill new shards of at most ``shard_size`` bytes in order.

    A sample larger than that gets a shard of its own. A key never stands twice in one shard, where readers would merge
    the two samples: a new shard begins instead.

    Args:
        rows: shape (n,), int64, increasing: the kept rows.
        sizes, keys: shape (n,): bytes in the tar, and the key to be written.
    """
    ends, previous = np.cumsum(sizes), previous_with_key(keys)
    shards: list[NewShard] = []
    start = 0
    while start < len(rows):
        room = ends[start] - sizes[start] + shard_size - len(END)
        stop = max(start + 1, int(np.searchsorted(ends, room, side="right")))
        clash = np.flatnonzero(previous[start:stop] >= start)
        stop = start + int(clash[0]) if clash.size else stop
        shards.append(NewShard(len(shards), rows[start:stop]))
        start = stop
    return shards


def counts_by_shard(index: Index, outcome: UInt8Array) -> Int64Array:
    """Shape (shards, outcomes), int64: number of samples of each source shard by outcome."""
    cells = index.shard_numbers.astype(np.int64) * len(OUTCOMES) + outcome
    counts = np.bincount(cells, minlength=len(index.shards) * len(OUTCOMES))
    return np.asarray(counts.reshape(len(index.shards), len(OUTCOMES)), dtype=np.int64)


def check_conservation(index: Index, counts: Int64Array, written: Int64Array) -> None:
    """Check that in = kept + pruned + undecodable + imageless + unsafe holds for each source shard.

    Args:
        counts: shape (shards, outcomes), as planned.
        written: shape (shards,): samples of each source shard in the new index, which count as kept.

    Raises:
        ShardError: names the first shard that does not add up, with both numbers.
    """
    held = np.bincount(index.shard_numbers, minlength=len(index.shards))
    found = counts.sum(axis=1) - counts[:, KEPT] + written
    wrong = np.flatnonzero(found != held)
    if wrong.size:
        first = int(wrong[0])
        raise ShardError(
            "samples do not add up",
            shard=index.shards[first].path,
            expected=int(held[first]),
            found=f"{int(found[first])} = " + " + ".join(OUTCOMES),
            todo="rewrite again; if it stays so, report it with the shard",
        )
