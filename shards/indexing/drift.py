"""Drift of shards against their index: same size in bytes, same headers (of an object: same ETag), or `ShardsChanged`.

One comparison, made for two callers: whoever opens an index, and whoever is about to copy bytes by its offsets.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shards.arrays import Int64Array
from shards.errors import ShardsChanged
from shards.indexing.extents import byte_extents
from shards.indexing.index import Index
from shards.indexing.scan import Shard, size_and_checksum
from shards.io import remote
from shards.io.mapped import open_mapped
from shards.io.parallel import map_shards
from shards.io.shard_set import locate
from shards.io.storage.clients import is_object
from shards.io.storage.objects import list_objects
from shards.tar.header_chain import headers_checksum


class Extents(NamedTuple):
    """Where the samples of one shard lie: shape (runs,), int64, bytes."""

    starts: Int64Array
    sizes: Int64Array


def check_unchanged(index: Index, *, workers: int = 1) -> None:
    """Read the headers of all shards and hold them against the index; of objects, a listing.

    Raises:
        ShardsChanged: the first shard of another size or with other headers or another ETag; the message has both.
    """
    if is_object(index.root):
        _check_objects(index, index.shards)
        return
    _check_all(index.root, ((shard, None) for shard in index.shards), len(index.shards), workers)


def check_sources(index: Index, numbers: npt.NDArray[np.int32], *, workers: int) -> None:
    """As `check_unchanged`, for the shards with these numbers; those behind other URLs pass, to be fetched once."""
    if is_object(index.root):
        _check_objects(index, [index.shards[number] for number in numbers.tolist()])
        return
    if remote.is_url(index.root):
        return
    items = ((index.shards[number], _extents(index, number)) for number in numbers.tolist())
    _check_all(index.root, items, len(numbers), workers)


def _check_objects(index: Index, shards: Sequence[Shard]) -> None:
    """Compare sizes and ETags; where the index is older than they are, sizes alone."""
    there = {info.url: info for info in list_objects(index.root)}
    for shard in shards:
        info = there.get(locate(index.root, shard.path))
        if info is None or info.size != shard.size:
            found = "no object" if info is None else f"{info.size} bytes"
            raise _changed(shard, "size", f"{shard.size} bytes", found)
        if None not in (shard.etag, info.etag) and shard.etag != info.etag:
            raise _changed(shard, "ETag", shard.etag, info.etag)


def _extents(index: Index, number: int) -> Extents:
    rows = index.rows(number)
    return Extents(*byte_extents(index.table.slice(rows.start, len(rows))))


def _check_all(root: str, items: Iterable[tuple[Shard, Extents | None]], n_items: int, workers: int) -> None:
    for _ in map_shards(partial(_check, root), items, workers, n_items):
        pass


def _check(root: str, item: tuple[Shard, Extents | None]) -> None:
    """Compare sizes first: of a local file that costs nothing."""
    shard, extents = item
    location = locate(root, shard.path)
    if not remote.is_url(location):
        found = f"{os.path.getsize(location)} bytes" if os.path.exists(location) else "no file"
        if found != f"{shard.size} bytes":
            raise _changed(shard, "size", f"{shard.size} bytes", found)
    size, checksum = _state(location, shard, extents)
    if size != shard.size:
        raise _changed(shard, "size", f"{shard.size} bytes", f"{size} bytes")
    if checksum != shard.checksum:
        raise _changed(shard, "headers", f"checksum {shard.checksum}", f"checksum {checksum}")


def _state(location: str, shard: Shard, extents: Extents | None) -> tuple[int, str]:
    """Size and header checksum as they are now; known extents lead from header to header faster than a walk."""
    if extents is not None and not shard.gzip:
        order = np.argsort(extents.starts, kind="stable")
        with open_mapped(location) as source:
            checksum = headers_checksum(source.buffer, extents.starts[order], extents.sizes[order])
            if checksum is not None:
                return source.size, checksum
    return size_and_checksum(location)


def _changed(shard: Shard, what: str, expected: str | None, found: str | None) -> ShardsChanged:
    todo = "index the shards again, or restore the shard"
    return ShardsChanged(
        f"{what} changed since it was indexed", shard=shard.path, expected=expected, found=found, todo=todo
    )
