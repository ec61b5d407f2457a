"""Features that people have already: Parquet files with the columns shard, key and embedding."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.errors import CurateError, Misuse
from curate.selection.base import EncoderInputs, Features
from curate.types import ERRORS
from shards.io import parquet
from shards.io.mirror.place import local

_COLUMNS = ["shard", "key", "embedding"]


class GivenFeatures:
    """``parquet:FILE[,FILE ...]``, a folder standing for the files in it; rows are found by shard and key."""

    def __init__(self, inputs: EncoderInputs) -> None:
        self.paths = _files(inputs.argument)
        digests = []
        for path in self.paths:
            with open(path, "rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        self.identity: dict[str, Any] = {"files": digests}

    def of(self, names: pa.Table, what: str) -> Features:
        """The features of samples by name.

        Args:
            names: n rows, columns ``shard`` and ``key``.
            what: whose they are, for messages.

        Raises:
            CurateError: a sample has none, or has two, or lengths differ. (Null is for an image that cannot be used.)
        """
        held = pa.concat_tables([_read(path) for path in self.paths])
        known = _joined(held)
        if pc.count_distinct(known).as_py() < len(known):
            raise CurateError(f"{self.paths[0]}: a shard and key stand there twice; give each image one embedding")
        places = pc.index_in(_joined(names), value_set=known)
        if places.null_count:
            first = names.slice(int(np.argmax(places.is_null().to_numpy(zero_copy_only=False))), 1).to_pylist()[0]
            raise CurateError(
                f"{self.paths[0]}: no embedding of {places.null_count} of {len(names)} images of the {what}, "
                f"such as {first['shard']} {first['key']}; give a file that has them, too"
            )
        column = held["embedding"].take(places).combine_chunks()
        usable = column.is_valid().to_numpy(zero_copy_only=False)
        error = np.where(usable, 0, ERRORS.index("not-an-image")).astype(np.uint8)
        return Features(
            np.flatnonzero(usable).astype(np.int64), _matrix(column, int(usable.sum()), self.paths[0]), error
        )


def _files(argument: str) -> list[Path]:
    found: list[Path] = []
    for name in argument.split(","):
        path = local(name)
        found += sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    missing = [path for path in found if not path.is_file()]
    if missing or not found:
        raise Misuse(f"--encoder parquet:{argument}: no such file {missing[0] if missing else ''}".rstrip())
    return found


def _read(path: Path) -> pa.Table:
    table = parquet.read_table(path, "give a whole file of features").replace_schema_metadata(None)
    lacking = [name for name in _COLUMNS if name not in table.column_names]
    if lacking:
        raise CurateError(f"{path}: has no column {', '.join(lacking)}; expected {', '.join(_COLUMNS)}")
    kind = table.schema.field("embedding").type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or not pa.types.is_floating(kind.value_type):
        raise CurateError(f"{path}: embedding is of type {kind}; expected lists of floats")
    text = pa.string()
    columns = [table["shard"].cast(text), table["key"].cast(text), table["embedding"].cast(pa.list_(pa.float32()))]
    return pa.table(columns, names=_COLUMNS)


def _joined(names: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(names["shard"].cast(pa.string()), names["key"].cast(pa.string()), "\0")


def _matrix(column: pa.Array, count: int, path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    values = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
    lengths = pc.unique(pc.list_value_length(column.drop_null())).to_pylist()
    if len(lengths) > 1:
        raise CurateError(f"{path}: embeddings have {min(lengths)} to {max(lengths)} numbers; all must have as many")
    if not np.isfinite(values).all():
        raise CurateError(f"{path}: an embedding holds a number that is not finite; give null for an image without one")
    return np.asarray(values.reshape(count, -1))
