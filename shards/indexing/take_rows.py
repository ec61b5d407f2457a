"""Takes rows of a table that may be large and lie in many pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from shards.arrays import Int64Array

#: Rows taken at a time.
BLOCK = 1 << 18


def take_rows(table: pa.Table, rows: Int64Array) -> pa.Table:
    """These rows, which must not decrease, as a copy. Arrow's own ``take`` would first put every column into one piece."""
    return pa.concat_tables(_blocks(table, rows)) if len(rows) else table.schema.empty_table()


def _blocks(table: pa.Table, rows: Int64Array) -> Iterator[pa.Table]:
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        first, last = int(block[0]), int(block[-1])
        yield table.slice(first, last - first + 1).take(pa.array(block - first))
