"""The Arrow schema of index rows (without the shard), and their construction sample by sample."""

from __future__ import annotations

import pyarrow as pa

from shards.indexing.sample import Sample, chosen_image

#: A row without its shard.
ROW = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("image", pa.string()),
        pa.field("image_offset", pa.int64()),
        pa.field("image_size", pa.int64()),
        pa.field("members", pa.int32(), nullable=False),
        pa.field("extents", pa.list_(pa.struct([("offset", pa.int64()), ("size", pa.int64())]))),
    ]
)


def rows_from_samples(samples: list[Sample], image: str | None) -> pa.RecordBatch:
    """One row of `ROW` for each sample.

    Args:
        image: extension of the image; None for the first in tar order.
    """
    extents = [sample.extents() for sample in samples]
    images = [chosen_image(sample.images(image)) for sample in samples]
    columns = [
        [sample.key for sample in samples],
        [runs[0][0] for runs in extents],
        [sum(size for _, size in runs) for runs in extents],
        [None if part is None else part.extension for part in images],
        [None if part is None else part.body for part in images],
        [None if part is None else part.size for part in images],
        [len(sample.parts) for sample in samples],
        [None if len(runs) == 1 else [{"offset": o, "size": s} for o, s in runs] for runs in extents],
    ]
    return pa.record_batch([pa.array(values, column.type) for values, column in zip(columns, ROW)], schema=ROW)
