"""Byte extents of samples in their shard, as arrays: offsets and sizes, padded to tar blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array
from shards.tar.header import BLOCK


def padded_sizes(sizes: Int64Array) -> Int64Array:
    """Sizes rounded up to whole blocks: the last sample of a truncated tar may lack its padding."""
    return sizes + -sizes % BLOCK


def byte_extents(samples: pa.Table) -> tuple[Int64Array, Int64Array]:
    """Start and size of every byte extent of the samples, in their order: two arrays, int64, bytes.

    Most samples are one extent; those whose members are not adjacent are several.

    Args:
        samples: rows of an index.
    """
    offsets, sizes = samples["offset"].to_numpy(), samples["size"].to_numpy()
    apart = np.flatnonzero(samples["extents"].is_valid().to_numpy())
    if not apart.size:
        return offsets, sizes
    counts = pc.fill_null(pc.list_value_length(samples["extents"]), 1).to_numpy()
    starts, lengths = np.repeat(offsets, counts), np.repeat(sizes, counts)
    first = np.cumsum(counts) - counts
    for place in apart.tolist():
        extents = samples["extents"][place].as_py()
        here = slice(first[place], first[place] + len(extents))
        starts[here] = [extent["offset"] for extent in extents]
        lengths[here] = [extent["size"] for extent in extents]
    return starts, lengths
