"""What of a source shard a new shard needs, and a view of the shard that holds that much.

A local shard is mapped. Of an object only what is needed is fetched, by ranges, into a sparse temporary file; where the
server copies some of it, of that only what lies around the images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import BoolArray, Int64Array
from shards.indexing.extents import byte_extents, padded_sizes
from shards.indexing.scan import Shard
from shards.io.inflate import GZIP_MAGIC
from shards.io.mapped import MappedShard, open_copy, open_mapped
from shards.io.storage import ranges
from shards.io.storage.clients import is_object
from shards.io.storage.objects import ObjectInfo, read_range
from shards.rewriting.server_copies import Piece, Runs, pieces_of, runs_of, worth_copying


@dataclass(frozen=True)
class SourceSlice:
    """The samples that a new shard takes from one source shard, in order.

    Args:
        shard: the source shard.
        prefix: put before the names of its members, with a ``/``; None keeps them.
        samples: columns ``key``, ``offset``, ``size``, ``image``, ``image_offset``, ``image_size``, ``members``,
            ``extents``.
    """

    shard: Shard
    prefix: str | None
    samples: pa.Table


@dataclass(frozen=True)
class Needed:
    """How the bytes of a slice get into a new shard, and what is fetched for it.

    Args:
        pieces: all of them, in order.
        starts, sizes: shape (n,), int64, increasing: what is fetched.
    """

    pieces: tuple[Piece, ...]
    starts: Int64Array
    sizes: Int64Array


def needed(source_slice: SourceSlice, since_copy: int, at_server: bool) -> Needed:
    """What a slice of an object needs, where its members are copied as they stand.

    Args:
        since_copy: bytes of the new shard since the server copied some last.
        at_server: whether the server may copy.
    """
    starts, sizes = byte_extents(source_slice.samples)
    runs = runs_of(starts, padded_sizes(sizes))
    of_run = np.repeat(np.arange(len(runs.starts)), runs.n_extents)
    chosen = np.zeros(0, np.int64)
    around = _around_images(source_slice.samples)
    if at_server and around is not None and source_slice.shard.etag is not None and not source_slice.shard.gzip:
        chosen = worth_copying(runs, np.bincount(of_run, around.sizes, len(runs.starts)).astype(np.int64))
    pieces = tuple(pieces_of(runs, chosen, since_copy))
    moved = np.array([piece[:2] for piece in pieces if not piece.copied], np.int64).reshape(-1, 2)
    copied = np.isin(of_run, _runs_copied(runs, pieces))
    if around is None or not copied.any():
        return Needed(pieces, *_limited(moved[:, 0], moved[:, 1], source_slice.shard))
    both = np.concatenate([moved, around.ranges_of(copied)])
    both = both[np.argsort(both[:, 0], kind="stable")]
    return Needed(pieces, *_limited(both[:, 0], both[:, 1], source_slice.shard))


@contextmanager
def open_needed(
    location: str, source_slice: SourceSlice, since_copy: int, at_server: bool
) -> Iterator[tuple[MappedShard, Sequence[Piece]]]:
    """Open a source shard that has at least what is `needed` of it.

    Raises:
        NotShards, ShardsChanged, NoSpace: as `shards.io.mapped`.
    """
    shard = source_slice.shard
    if not is_object(location) or shard.gzip:
        starts, sizes = byte_extents(source_slice.samples)
        with open_mapped(location, shard.etag) as source:
            runs = runs_of(starts, padded_sizes(sizes))
            yield source, list(pieces_of(runs, np.zeros(0, np.int64), 0))
        return
    info = ObjectInfo(location, shard.size, shard.etag) if shard.etag else ranges.info_of(location)
    wanted = needed(source_slice, since_copy, at_server)
    with open_copy(info, partial(_fetch, wanted)) as source:
        yield source, wanted.pieces


def _fetch(wanted: Needed, info: ObjectInfo, copy: BinaryIO) -> None:
    places = zip(wanted.starts.tolist(), wanted.sizes.tolist())
    asked = list(ranges.in_parts(ranges.Range(info.url, offset, size, info.etag) for offset, size in places))
    for one, data in zip(asked, ranges.read_ranges(asked), strict=True):
        copy.seek(one.offset)
        copy.write(data)


def _limited(starts: Int64Array, sizes: Int64Array, shard: Shard) -> tuple[Int64Array, Int64Array]:
    """Ranges without what lies behind the shard's end, where the padding of a cut tar would be."""
    return starts, np.minimum(sizes, shard.size - starts)


@dataclass(frozen=True)
class _Around:
    """What lies before and behind the images of samples: shape (n,), int64, bytes."""

    before: Int64Array
    before_sizes: Int64Array
    behind: Int64Array
    behind_sizes: Int64Array

    @property
    def sizes(self) -> Int64Array:
        return self.before_sizes + self.behind_sizes

    def ranges_of(self, chosen: BoolArray) -> Int64Array:
        """Of some samples: shape (2k, 2), offset and size."""
        before = np.stack([self.before[chosen], self.before_sizes[chosen]], axis=1)
        behind = np.stack([self.behind[chosen], self.behind_sizes[chosen]], axis=1)
        return np.concatenate([before, behind[behind[:, 1] > 0]])


def _around_images(samples: pa.Table) -> _Around | None:
    """None where a sample has no image, or is of several extents."""
    image = pc.fill_null(samples["image_offset"], -1).to_numpy()
    if (image < 0).any() or samples["extents"].is_valid().to_numpy().any():
        return None
    start, end = samples["offset"].to_numpy(), samples["offset"].to_numpy() + samples["size"].to_numpy()
    behind = np.minimum(image + padded_sizes(samples["image_size"].to_numpy()), end)
    return _Around(start, image - start, behind, end - behind)


def _runs_copied(runs: Runs, pieces: Sequence[Piece]) -> Int64Array:
    """Numbers of the runs of which the server copies a piece."""
    offsets = np.array([piece.offset for piece in pieces if piece.copied], np.int64)
    order = np.argsort(runs.starts, kind="stable")
    return order[np.searchsorted(runs.starts[order], offsets, side="right") - 1]


@contextmanager
def open_samples(location: str, samples: pa.Table, etag: str | None = None) -> Iterator[MappedShard]:
    """Open a shard that has at least these samples; raises as `open_needed`."""
    info = ranges.info_of(location, etag) if is_object(location) else None
    if info is None or read_range(location, 0, len(GZIP_MAGIC), info.etag) == GZIP_MAGIC:
        with open_mapped(location, etag) as source:
            yield source
        return
    starts, sizes = byte_extents(samples)
    order = np.argsort(starts, kind="stable")
    wanted = Needed((), starts[order], np.minimum(sizes[order], info.size - starts[order]))
    with open_copy(info, partial(_fetch, wanted)) as source:
        yield source
