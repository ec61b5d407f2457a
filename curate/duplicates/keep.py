"""Which of several copies stays: a rank of all images that depends on the images alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.duplicates.hash_table import Hashed
from curate.errors import CurateError
from curate.ledger import table_file
from curate.types import Ints, Reals
from shards.indexing.index import Index
from shards.indexing.key_join import join_keys

RULES = ("largest", "first", "highest-weight")


def order_by(rule: str, held: Hashed, index: Index, weights: Path | None = None) -> Ints:
    """The rank of each image, 0 the one that stays before all others: shape (n,), int64, a permutation.

    Args:
        rule: ``largest``: the most pixels, then the most bytes; ``highest-weight``: of a run; ``first``: in the order
            of the store. Ties by key, then by shard.
        held: hashes of the store.
        weights: a run's weights.parquet, for ``highest-weight``.

    Raises:
        CurateError: it is damaged, or knows no image of the store.
    """
    if rule == "first":
        return np.arange(len(held))
    best: dict[str, Reals | Ints] = {}
    if rule == "highest-weight":
        assert weights is not None
        best["weight"] = _weights(weights, index)
    else:
        best["area"] = held.width.astype(np.int64) * held.height
        best["bytes"] = pc.fill_null(index.table["image_size"], 0).to_numpy()
    names = {name: held.names[name].cast(pa.large_string()) for name in ("key", "shard")}
    by = [*((name, "descending") for name in best), *((name, "ascending") for name in names)]
    turn = pc.sort_indices(pa.table({**best, **names}), sort_keys=by).to_numpy()
    order = np.empty(len(turn), np.int64)
    order[turn] = np.arange(len(turn))
    return order


def _weights(path: Path, index: Index) -> Reals:
    """What a run believed of each image; -1 of those that it does not know or could not decode."""
    table = table_file.read(path, ["shard", "key", "mean", "error"])
    known = table.filter(pc.is_null(table["error"]))
    left, right = join_keys(index.table.select(["shard", "key"]), known.select(["shard", "key"]))
    if not (right >= 0).any():
        raise CurateError(f"{path}: knows no image of {index.root}; give a run on this store")
    means = np.append(known["mean"].to_numpy(), -1.0)
    weights = np.full(len(index), -1.0)
    weights[left] = means[right]
    return weights
