"""The store as the engine sees it: batches of pixels in an epoch's order, read once and kept in memory if they fit.

Owns the image cache and the translation between a row of the store and its place in the shards that hold it now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from curate import ranks
from curate.data.decode import Decoder, Pixels
from curate.data.prefetch import on_device
from curate.data.spread import spread
from curate.errors import CurateError
from curate.types import Ints
from shards import shuffle, stream
from shards.indexing.index import Index


@dataclass(frozen=True)
class ShardView:
    """The shards that an epoch reads: the store's, or those of a later generation that hold what is kept.

    Args:
        index: of these shards.
        rows: shape (len(index),), int64, increasing: the store's row of each of its samples.
    """

    index: Index
    rows: Ints

    @classmethod
    def whole(cls, index: Index) -> ShardView:
        """All of a store: its rows are those of its own index."""
        return cls(index, np.arange(len(index)))


class Cache:
    """Decoded images of an epoch's rows, filled by the batches of one epoch, read by later ones.

    Args:
        rows: shape (n,), int64, increasing.
        decoder: gives the shape of an image.
        device: where the pixels live.
    """

    def __init__(self, rows: Ints, decoder: Decoder, device: torch.device) -> None:
        self.rows = rows
        self.pixels = torch.zeros((len(rows), *decoder.shape), dtype=torch.uint8, device=device)
        self.filled = False

    def put(self, batch: Pixels) -> None:
        """Store the pixels of a batch, which has those of images that decode."""
        self.pixels[self._places(batch.rows)] = batch.pixels

    def holds(self, rows: Ints) -> bool:
        """Whether the pixels of every one of ``rows`` are held."""
        return self.filled and bool(np.isin(rows, self.rows, assume_unique=True).all())

    def get(self, rows: Tensor) -> Tensor:
        """The pixels of ``rows``, all held: uint8, shape (len(rows), C, size, size), on the cache's device."""
        return self.pixels[self._places(rows)]

    def _places(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(np.searchsorted(self.rows, rows.numpy())).to(self.pixels.device, non_blocking=True)


class ImageStore:
    """Yields the batches of an epoch. An undecodable image leaves its slot in its batch empty.

    Args:
        view: the shards to read, replaced when a generation is rewritten.
        decoder: bytes -> pixels.
        workers: processes that read and decode.
        cache_bytes: the most that decoded images may take.
        device: where the batches go.
    """

    def __init__(self, view: ShardView, decoder: Decoder, workers: int, cache_bytes: int, device: torch.device) -> None:
        self.view, self.decoder, self.workers = view, decoder, workers
        self.cache_bytes, self.device = cache_bytes, device
        self.cache: Cache | None = None

    def order(self, rows: Ints, seed: int, epoch: int) -> Ints:
        """The order in which an epoch visits ``rows``; for shards that cannot seek, shard by shard."""
        if not stream.is_streamed(self.view.index):
            return shuffle.epoch_order(rows, seed, epoch)
        places = np.searchsorted(self.view.rows, rows)
        return np.asarray(self.view.rows[stream.streamed_order(self.view.index, places, seed, epoch)])

    def batches(self, ordered: Ints, size: int, done: int = 0) -> Iterator[Pixels]:
        """Batches of ``size`` rows of ``ordered`` but for the first ``done``, pixels on the device.

        The last may be short. A cache is filled by a whole epoch only; and not over several ranks, as each has other
        images in the next.
        """
        cuts = [ordered[at : at + size] for at in range(done * size, len(ordered), size)]
        if ranks.world() > 1:
            own = [rows[ranks.span(len(rows))] for rows in cuts]
            yield from spread(cuts, on_device(self.read(own), self.device))
            return
        if self.cache is not None and self.cache.holds(ordered):
            for rows in map(torch.from_numpy, cuts):
                yield Pixels(rows, self.cache.get(rows))
            return
        self.cache = None if done else self._cache_for(ordered)
        for batch in on_device(self.read(cuts), self.device):
            if self.cache is not None:
                self.cache.put(batch)
            yield batch
        if self.cache is not None:
            self.cache.filled = True

    def once(self, rows: Ints) -> Iterator[Pixels]:
        """``rows``, increasing, in batches on the CPU; nothing is cached."""
        yield from self.read([rows[at : at + 256] for at in range(0, len(rows), 256)])

    def read(self, cuts: list[Ints]) -> Iterator[Pixels]:
        """A batch a cut, on the CPU, from the shards; nothing is cached."""
        places = [np.searchsorted(self.view.rows, rows) for rows in cuts]
        workers = min(self.workers, len(places))
        if stream.is_streamed(self.view.index):
            workers = min(1, workers)
        batches = stream.image_batches(self.view.index, places, self.decoder, workers=workers)
        for asked, batch in zip(places, batches, strict=True):
            _refuse_loss(asked, batch)
            rows = torch.from_numpy(self.view.rows[batch.rows.numpy()])
            yield Pixels(rows, batch.pixels, tuple((int(self.view.rows[place]), code) for place, code in batch.bad))

    def sample(self, rows: Ints) -> Iterator[Tensor]:
        """The pixels of ``rows``, increasing, in batches: uint8 (k, C, size, size) on the CPU; not cached."""
        for batch in self.once(rows):
            yield batch.pixels

    def _cache_for(self, ordered: Ints) -> Cache | None:
        fits = len(ordered) * self.decoder.n_bytes <= self.cache_bytes
        return Cache(np.sort(ordered), self.decoder, self.device) if fits else None


def _refuse_loss(asked: Ints, batch: Pixels) -> None:
    """Hold a batch against the rows that were asked for: each is there, in order, or named as undecodable."""
    bad = np.fromiter((row for row, _ in batch.bad), np.int64, len(batch.bad))
    good = asked[~np.isin(asked, bad)] if len(bad) else asked
    as_asked = np.array_equal(batch.rows.numpy(), good) and len(good) + len(bad) == len(asked)
    if not as_asked or len(batch.pixels) != len(good):
        raise CurateError(
            f"the loader lost images: a batch of {len(asked)} came as {len(batch.pixels)} images and {len(bad)} "
            "that do not decode; run the same command again, with --workers 0 if it stays so"
        )


def default_cache_bytes(device: torch.device) -> int:
    """A quarter of the memory that is free now where the pixels would live."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] // 4)
    return free_memory() // 4


def free_memory() -> int:
    """Bytes of main memory that can be had without swapping."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
