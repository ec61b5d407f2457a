"""Where the bytes of samples lie: runs of a shard, and sizes in whole blocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array
from shards.tar.header import BLOCK


def padded_sizes(sizes: Int64Array) -> Int64Array:
    """Sizes rounded up to whole blocks: a sample at the end of a cut tar may lack its padding."""
    return sizes + -sizes % BLOCK


def byte_extents(samples: pa.Table) -> tuple[Int64Array, Int64Array]:
    """Start and size of every run of bytes, in the order of the samples; most samples are one run."""
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
