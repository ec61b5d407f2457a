"""Which file each packed sample comes from: ``.curate/names.parquet`` beside the shards (docs/formats/shards.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from shards.io.atomic import atomic_write
from shards.io.folders import OWN_FOLDER
from shards.member_names import storable

FORMAT_VERSION = 1
FILE_NAME = "names.parquet"
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("shard", "key", "file")),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
_FOOTER = b"curate.names"


class Name(NamedTuple):
    """A sample's shard and key, the file of its image as it was named, and the bytes of that."""

    shard: str
    key: str
    file: str
    bytes: int


def save_names(folder: Path, names: Iterable[Name]) -> None:
    """Write the names of all samples of a packed folder."""
    rows = [(storable(shard), storable(key), storable(file), size) for shard, key, file, size in names]
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(SCHEMA)]
    footer = {_FOOTER: json.dumps({"version": FORMAT_VERSION}).encode()}
    table = pa.table(columns, schema=SCHEMA).replace_schema_metadata(footer)
    with atomic_write(folder / OWN_FOLDER / FILE_NAME) as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)
