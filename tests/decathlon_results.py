"""Writes predictions in the decathlon's results format: a JSON list of ``{"image_id": ..., "category_id": ...}``.

A packed target keeps the original ids: image ids in the ``.json`` member of every sample, category ids by label in
``categories.json``. Results of several domains are one list: concatenate those of `results`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from shards import stream
from shards.arrays import Int64Array
from shards.errors import Misuse, ShardError
from shards.indexing import index
from shards.io import shard_set
from shards.io.json_files import parse_json, write_json
from shards.io.regular_files import read_regular

Result = dict[str, int]


def results(target: Path, split: str, predicted: Int64Array) -> list[Result]:
    """The results of one domain.

    Args:
        target: a target made by `pack_decathlon`.
        split: the one predicted, usually "test".
        predicted: shape (n,), integers: the predicted label of each sample, in stored order.

    Raises:
        Misuse: another number of predictions than samples, or a label out of range.
        ShardError: the target has no original ids.
    """
    images, categories = image_ids(target / split), category_ids(target)
    if len(predicted) != len(images):
        raise Misuse("one prediction a sample", shard=str(target / split), expected=len(images), found=len(predicted))
    wrong = np.flatnonzero((predicted < 0) | (predicted >= len(categories)))
    if len(wrong):
        expected, found = f"0 to {len(categories) - 1}", int(predicted[wrong[0]])
        raise Misuse("no class of this number", shard=str(target), expected=expected, found=found)
    chosen = categories[predicted]
    return [{"image_id": image, "category_id": category} for image, category in zip(images.tolist(), chosen.tolist())]


def write_results(path: Path, found: Iterable[Result]) -> None:
    """Write the results of one or several domains as one JSON list."""
    write_json(path, list(found))


def image_ids(split: Path) -> Int64Array:
    """Shape (n,), int64: the original image id of each sample of a packed split, in stored order.

    Raises:
        ShardError: a sample has none.
    """
    opened = index.build(shard_set.resolve(split))[0]
    return np.array([_image_id(sample, split) for sample in stream.samples(opened, np.arange(len(opened)))], np.int64)


def category_ids(target: Path) -> Int64Array:
    """Shape (classes,), int64: the original category id of each class.

    Raises:
        ShardError: the target has no categories.json, or another's.
    """
    path = target / "categories.json"
    try:
        return np.array([category["id"] for category in parse_json(read_regular(path))], np.int64)
    except (OSError, ValueError, TypeError, LookupError, OverflowError) as error:
        raise ShardError("no category ids", shard=str(path), todo="pack the target with `pack decathlon`") from error


def _image_id(sample: stream.Sample, split: Path) -> int:
    try:
        return int(parse_json(sample["json"])["image_id"])
    except (ValueError, TypeError, LookupError) as error:
        key = sample["__key__"]
        raise ShardError("no image id", shard=str(split), key=key, todo="pack with `pack decathlon`") from error
