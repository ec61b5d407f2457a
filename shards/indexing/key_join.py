"""Joins two tables by sample identity, (shard, key): the one way in which tables of this package find their rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array


def join_keys(left: pa.Table, right: pa.Table) -> tuple[Int64Array, Int64Array]:
    """Left outer join on the columns ``shard`` and ``key``, strings of any encoding.

    Returns:
        Positions in ``left``, non-decreasing, and in ``right``, -1 where nothing matches: two arrays (n,), int64. A row
        of ``left`` that matches several rows occurs as often.

    >>> one = pa.table({"shard": ["0.tar", "0.tar"], "key": ["a", "b"]})
    >>> join_keys(one, one.slice(1))
    (array([0, 1]), array([-1,  0]))
    """
    first = pa.table({**_identity(left), "left": np.arange(len(left))})
    second = pa.table({**_identity(right), "right": np.arange(len(right))})
    joined = first.join(second, ["shard", "key"], join_type="left outer").sort_by("left")
    return joined["left"].to_numpy(), pc.fill_null(joined["right"], -1).to_numpy()


def _identity(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {name: pc.cast(table[name], pa.large_string()) for name in ("shard", "key")}
