"""Features on disk: one Parquet file a shard, published whole, in a folder that is called after what made them.

A folder's name ends in a key of encoder, preprocessing and store, so what is there under it is what is wanted, and a
part that is there is done. Columns: ``shard``, ``key``, ``embedding`` (float16, null where there is none), ``error``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.errors import CurateError
from curate.ledger import table_file
from curate.selection.base import Features, Vectors
from curate.types import ERRORS, Codes, Mask
from shards.indexing.index import Index
from shards.io.json_files import sha256_of

FOLDER, VERSION = "features", 1
_LARGEST = float(np.finfo(np.float16).max)


def key_of(identity: dict[str, Any]) -> str:
    """Twelve hex digits of everything that features depend on."""
    return sha256_of({"version": VERSION, **identity})[:12]


def part_of(folder: Path, shard: int) -> Path:
    """Where the features of a shard are, by its place in the index."""
    return folder / f"{shard:06d}.parquet"


def missing(folder: Path, index: Index) -> list[int]:
    """The shards whose features are not there yet."""
    return [number for number in range(len(index.shards)) if not part_of(folder, number).is_file()]


def write_part(path: Path, names: pa.Table, values: Vectors, error: Codes) -> None:
    """Publish the features of a shard.

    Args:
        names: of its n samples, columns ``shard`` and ``key``.
        values: shape (m, d): of those without an error, in order.
        error: shape (n,).
    """
    n, width = len(names), values.shape[1]
    spread = np.zeros((n, width), np.float16)
    spread[error == 0] = np.clip(values, -_LARGEST, _LARGEST)
    columns = {name: names[name].cast(pa.string()) for name in ("shard", "key")}
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(spread.ravel()), width, mask=pa.array(error != 0))
    table = pa.table(
        {**columns, "embedding": embedding, "error": pc.take(pa.array(ERRORS, pa.string()), pa.array(error))}
    )
    table_file.write(path, table, {"format": "features", "version": VERSION}, dense=("embedding",))


def load(folder: Path, index: Index, into: Path | None = None) -> Features:
    """All features of a store.

    Args:
        into: an .npy file that they are written to and mapped from, so that a part at a time is in memory.

    Raises:
        CurateError: a part is of other samples, or has lost some.
        Unfinished: a part is damaged.
    """
    images, width = count(folder, index) if into else (len(index), 0)
    values: Vectors = np.empty((0, width), np.float16)
    error, at = np.zeros(len(index), np.uint8), 0
    for number, (part, codes) in enumerate(_parts(folder, index)):
        if not number:
            shape = images, part.shape[1]
            made = np.lib.format.open_memmap(into, "w+", np.float16, shape) if into else np.empty(shape, np.float16)
            values = made
        values[at : at + len(part)] = part
        error[index.rows(number).start : index.rows(number).stop] = codes
        at += len(part)
    return Features(np.flatnonzero(error == 0).astype(np.int64), values[:at], error)


def count(folder: Path, index: Index, numbers: range | None = None) -> tuple[int, int]:
    """How many images of a store have features, and of how many numbers; a part at a time is in memory.

    Args:
        numbers: of the shards that are looked at; None for all.

    Raises:
        As `load`.
    """
    images, width = 0, 0
    for part, _ in _parts(folder, index, numbers):
        images, width = images + len(part), part.shape[1]
    return images, width


def _parts(folder: Path, index: Index, numbers: range | None = None) -> Iterator[tuple[Vectors, Codes]]:
    """The features of each shard, and the error of each of its samples."""
    width = None
    for number in range(len(index.shards)) if numbers is None else numbers:
        path = part_of(folder, number)
        part, codes = _read(path, len(index.rows(number)))
        width = part.shape[1] if width is None else width
        if part.shape[1] != width:
            raise CurateError(f"{path}: {part.shape[1]} numbers an image, others have {width}; remove {folder}")
        yield part, codes


def _read(path: Path, n: int) -> tuple[Vectors, Codes]:
    table_file.footer_of(path, "features", VERSION)
    table = table_file.read(path, ["embedding", "error"])
    column = table["embedding"].combine_chunks()
    kind = column.type
    if not (pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type)):
        raise CurateError(f"{path}: embedding is of type {kind}, no features; remove it, run again")
    valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    codes = pc.fill_null(pc.index_in(table["error"], pa.array(ERRORS[1:], pa.string())), -1).to_numpy() + 1
    if len(table) != n or not np.array_equal(codes == 0, valid):
        raise CurateError(f"{path}: holds {len(table)} rows, the shard {n}, or reasons are lost; remove it, run again")
    values = column.flatten().to_numpy()
    if not np.isfinite(values).all():
        raise CurateError(f"{path}: a feature is not finite; this encoder's network has diverged, take another")
    return values.reshape(-1, column.type.list_size), codes.astype(np.uint8)
