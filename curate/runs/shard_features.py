"""The features of one shard: its images decoded, encoded and written, as a task of the parallel map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from curate.data.decode import Decoder, Pixels
from curate.data.image_store import ImageStore, ShardView
from curate.runs.prepare import fresh_examples, trainable
from curate.runs.threads import computing
from curate.selection import feature_files
from curate.selection.base import Encoder, Vectors
from curate.types import Codes, Floats, Ints
from shards.indexing.index import Index

#: Images a pass; a batch never spans two shards, so that a shard's features do not depend on what was done before.
BATCH = 256


def cuts_of(rows: Ints) -> list[Ints]:
    """The rows of a shard in batches."""
    return [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)]


def decoder_of(encoder: Encoder) -> Decoder:
    """The decoder that gives an encoder's image size and channels."""
    return Decoder(encoder.size, encoder.colour)


def encoded(encoder: Encoder, pixels: Tensor) -> Floats:
    """Features of uint8 images (k, C, size, size): shape (k, d); of none of them (0, d)."""
    if not len(pixels):
        return encoded(encoder, torch.zeros((1, *decoder_of(encoder).shape), dtype=torch.uint8))[:0]
    return np.concatenate([encoder(batch) for batch in torch.split(pixels, BATCH)])


def write_shard(encoder: Encoder, threads: int, folder: Path, item: tuple[int, Index]) -> int:
    """Make the features of a shard, by itself; returns of how many images, those that do not decode included.

    Args:
        encoder: calibrated.
        threads: that compute, as many as where the other shards are made, so that sums are taken in the same order.
        item: the shard's number in the store, and its index (`shards.indexing.index.one_shard`).
    """
    number, index = item
    examples = fresh_examples(index)
    rows = trainable(examples)
    images = ImageStore(ShardView.whole(index), decoder_of(encoder), 0, 0, torch.device("cpu"))
    with computing(threads):
        write(encoder, images.read(cuts_of(rows)), index.table, examples.error, feature_files.part_of(folder, number))
    return len(rows)


def write(
    encoder: Encoder,
    batches: Iterable[Pixels],
    names: pa.Table,
    error: Codes,
    path: Path,
    first: int = 0,
    tell: Callable[[int], None] = lambda more: None,
) -> None:
    """Encode the batches of a shard, and publish its features.

    Args:
        names: of its n samples, columns ``shard`` and ``key`` among others.
        error: shape (n,): what is known of them before any is decoded.
        first: the row of its first sample where the batches come from.
        tell: of every batch, how many images it was of.
    """
    error, values = error.copy(), list[Vectors]()
    for batch in batches:
        for row, code in batch.bad:
            error[row - first] = code
        values += [encoded(encoder, batch.pixels)] if len(batch.pixels) else []
        tell(len(batch.pixels) + len(batch.bad))
    part = np.concatenate(values) if values else encoded(encoder, torch.zeros((0,)))
    feature_files.write_part(path, names, part, error)
