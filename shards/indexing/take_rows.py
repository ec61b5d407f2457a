"""Takes rows of a table that may be large and lie in many pieces."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from shards.arrays import Int64Array

#: Rows of the table that are looked at together.
SPAN = 1 << 20


def take_rows(table: pa.Table, rows: Int64Array) -> pa.Table:
    """These rows, which must not decrease, as a copy.

    Arrow's own ``take`` first puts every column into one piece, as large as the table.
    """
    if not len(rows):
        return table.schema.empty_table()
    cuts = [0, *(np.flatnonzero(np.diff(rows // SPAN)) + 1).tolist(), len(rows)]
    return pa.concat_tables(_taken(table, rows[start:stop]) for start, stop in pairwise(cuts))


def _taken(table: pa.Table, rows: Int64Array) -> pa.Table:
    first, last = int(rows[0]), int(rows[-1])
    return table.slice(first, last - first + 1).take(pa.array(rows - first))
