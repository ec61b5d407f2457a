"""How far each image of the store is from the target: measured once, kept in the run as ``distances.parquet``.

Owns what an image is measured by (pixels or features), the one pass over the store, and the file. Which target image is
nearest is `curate.runs.nearest_neighbours`' business, what weight follows `curate.methods.nn`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from curate.config.resolved import ReadyConfig
from curate.data.augment import Augment
from curate.data.image_store import ImageStore
from curate.errors import CurateError, RunMismatch
from curate.ledger import table_file
from curate.models.features import extract
from curate.runs import nearest_neighbours, saved_network
from curate.types import Floats, Ints
from shards import shuffle
from shards.errors import Unfinished, UnknownFormat
from shards.indexing.index import Index

FILE_NAME = "distances.parquet"
VERSION = 1
#: Images of the store whose neighbour is looked for by brute force, too.
CHECKED = 256

_COLUMNS = pa.schema([("row", pa.int64()), ("squared", pa.float32())])

#: Of how images are read, what training alone does: distances are of the evaluation crop.
_OF_TRAINING = ("mirror", "augment_strength")

#: uint8 images (k, C, S, S) -> vectors (k, d), float32.
Vectors = Callable[[Tensor], Floats]


def identity(config: ReadyConfig, index: Index, target: str) -> dict[str, Any]:
    """Everything that a distance depends on.

    Args:
        config: resolved and measured; the weights of a network by their sha256.
        target: the target's fingerprint.
    """
    near, images = config.neighbours, {k: v for k, v in asdict(config.images).items() if k not in _OF_TRAINING}
    record = {"store": index.fingerprint, "target": target, "space": near.nn_space, "tap": near.nn_tap}
    return (
        record | {"weights": near.nn_weights} | {k: list(v) if isinstance(v, tuple) else v for k, v in images.items()}
    )


def vectors_by(config: ReadyConfig, device: torch.device) -> Vectors:
    """What images are compared by: the normalised pixels of the centre crop, or features of it.

    Raises:
        CurateError: the file of weights cannot be used.
    """
    near = config.neighbours
    if near.nn_space == "features":
        found = saved_network.load(Path(str(near.nn_features)), config.images, device)
        return lambda pixels: extract(found.network, pixels, found.augment, near.nn_tap, device)
    augment = Augment.of(config.images)
    return lambda pixels: np.asarray(augment.normalise(augment.centre(pixels)).flatten(1).numpy())


def measure(images: ImageStore, rows: Ints, target: Tensor, vectors: Vectors, seed: int) -> tuple[Floats, float]:
    """The squared distance of each image of ``rows`` to the nearest of ``target``, and the recall on a sample.

    Args:
        images: the store.
        rows: increasing.
        target: uint8 images (m, C, S, S).
        vectors: what both are compared by.
        seed: of the sample.

    Returns:
        Shape (len(rows),), float32, infinite where the image does not decode; and the share in [0, 1].

    Raises:
        CurateError: a vector is not finite, or the index measures something else.
    """
    index = nearest_neighbours.build(vectors(target))
    sample = np.sort(rows[shuffle.permutation(seed, "neighbours", 0, len(rows))[:CHECKED]])
    checked = [vectors(pixels) for pixels in images.sample(sample) if len(pixels)]
    share = nearest_neighbours.recall(index, np.concatenate(checked)) if checked else 1.0
    squared = np.full(len(rows), np.inf, np.float32)
    for batch in images.once(rows):
        if len(batch.rows):
            at = np.searchsorted(rows, batch.rows.numpy())
            squared[at] = nearest_neighbours.squared_distances(index, vectors(batch.pixels))
    return squared, share


def save(path: Path, index: Index, rows: Ints, squared: Floats, record: dict[str, Any], share: float) -> None:
    """Publish the distances: ``shard``, ``key``, ``row`` and ``squared``, null where the image does not decode."""
    names = index.table.select(["shard", "key"]).take(pa.array(rows))
    columns = {name: names[name].cast(pa.string()) for name in ("shard", "key")}
    table = pa.table({**columns, "row": rows, "squared": pa.array(squared, mask=np.isinf(squared))})
    table_file.write(path, table, {"format": "distances", "version": VERSION, "of": record, "recall": share})


def load(path: Path, rows: Ints, n: int, record: dict[str, Any]) -> tuple[Floats, float]:
    """The squared distances of all ``n`` rows of the store, infinite where there is none, and their recall.

    Args:
        rows: those that were to be measured, increasing.

    Raises:
        RunMismatch: they were measured on something else; the message says on what.
        CurateError: the file is damaged, of another format, of other rows, or a distance is none.
    """
    of, share, table = _read(path)
    for name, value in record.items():
        if of.get(name) != value:
            raise RunMismatch(f"{path}: measured with {name} {of.get(name)}, now it is {value}; start in a new --out")
    at = table["row"].to_numpy()
    if not np.array_equal(np.sort(at), rows):
        raise _unusable(path, f"holds {len(at)} rows that are not the {len(rows)} of this run")
    values = table["squared"].drop_null().to_numpy()
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    if len(wrong):
        raise _unusable(path, f"a squared distance is {wrong[0]}")
    squared = np.full(n, np.inf, np.float32)
    squared[at] = table["squared"].fill_null(np.inf).to_numpy()
    return squared, share


def _read(path: Path) -> tuple[dict[str, Any], float, pa.Table]:
    """What the distances depend on, their recall, and the columns ``row`` and ``squared``."""
    try:
        footer = table_file.footer_of(path, "distances", VERSION) or {}
        table = table_file.read(path, _COLUMNS.names, _COLUMNS).select(_COLUMNS.names).cast(_COLUMNS)
        of, share = {**footer["of"]}, float(footer["recall"])
    except UnknownFormat as error:
        raise _unusable(path, "is of another format, or of a later release") from error
    except (Unfinished, pa.ArrowException, LookupError, TypeError, ValueError, AttributeError) as error:
        cause = error.__cause__ or error
        detail = str(cause).removeprefix(f"{path}: ").partition("\n")[0][:120]
        raise _unusable(path, f"unfinished or damaged ({type(cause).__name__}: {detail})") from error
    return of, share, table


def _unusable(path: Path, what: str) -> CurateError:
    return CurateError(f"{path}: {what}; remove the file so that it is measured again")
