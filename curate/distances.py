"""How far each image of the store is from the target: measured once, kept in the run as ``distances.parquet``.

Owns what an image is measured by (pixels or features), the one pass over the store, and the file. Which target image is
nearest is `curate.neighbours`' business, what weight follows `curate.methods.nn`'s.
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

from curate import backbones, neighbours, parquet
from curate.augment import Augment
from curate.config import RunConfig
from curate.downstream.features import extract
from curate.errors import RunMismatch
from curate.records import Floats, Ints
from curate.store import ImageStore
from shards import order
from shards.index import Index

FILE_NAME = "distances.parquet"
VERSION = 1
#: Images of the store whose neighbour is looked for by brute force, too.
CHECKED = 256

#: uint8 images (k, C, S, S) -> vectors (k, d), float32.
Vectors = Callable[[Tensor], Floats]


def identity(config: RunConfig, index: Index, target: str) -> dict[str, Any]:
    """Everything that a distance depends on.

    Args:
        config: resolved and measured; the weights of a network by their sha256.
        target: the target's fingerprint.
    """
    near, images = config.neighbours, {k: v for k, v in asdict(config.images).items() if k != "mirror"}
    said = {"store": index.fingerprint, "target": target, "space": near.nn_space, "tap": near.nn_tap}
    return said | {"weights": near.nn_weights} | {k: list(v) if isinstance(v, tuple) else v for k, v in images.items()}


def vectors_by(config: RunConfig, device: torch.device) -> Vectors:
    """What images are compared by: the normalised pixels of the centre crop, or features of it.

    Raises:
        CurateError: the file of weights cannot be used.
    """
    near = config.neighbours
    if near.nn_space == "features":
        found = backbones.load(Path(str(near.nn_features)), config.images, device)
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
    index = neighbours.build(vectors(target))
    sample = np.sort(rows[order.permutation(seed, "neighbours", 0, len(rows))[:CHECKED]])
    checked = [vectors(pixels) for pixels in images.sample(sample) if len(pixels)]
    share = neighbours.recall(index, np.concatenate(checked)) if checked else 1.0
    squared = np.full(len(rows), np.inf, np.float32)
    for batch in images.once(rows):
        if len(batch.rows):
            at = np.searchsorted(rows, batch.rows.numpy())
            squared[at] = neighbours.squared_distances(index, vectors(batch.pixels))
    return squared, share


def save(path: Path, index: Index, rows: Ints, squared: Floats, said: dict[str, Any], share: float) -> None:
    """Publish the distances: ``shard``, ``key``, ``row`` and ``squared``, null where the image does not decode."""
    names = index.table.select(["shard", "key"]).take(pa.array(rows))
    columns = {name: names[name].cast(pa.string()) for name in ("shard", "key")}
    table = pa.table({**columns, "row": rows, "squared": pa.array(squared, mask=np.isinf(squared))})
    parquet.write(path, table, {"format": "distances", "version": VERSION, "of": said, "recall": share})


def load(path: Path, n: int, said: dict[str, Any]) -> tuple[Floats, float]:
    """The squared distances of all ``n`` rows of the store, infinite where there is none, and their recall.

    Raises:
        RunMismatch: they were measured on something else; the message says on what.
        CurateError: the file is damaged or of another format.
    """
    footer = parquet.footer_of(path, "distances", VERSION) or {"of": {}, "recall": 0.0}
    for name, value in said.items():
        if footer["of"].get(name) != value:
            found = footer["of"].get(name)
            raise RunMismatch(f"{path}: measured with {name} {found}, now it is {value}; start in a new --out")
    table = parquet.read(path)
    squared = np.full(n, np.inf, np.float32)
    squared[table["row"].to_numpy()] = table["squared"].fill_null(np.inf).to_numpy()
    return squared, float(footer["recall"])
