"""Makes sure that source shards are still the ones that were indexed, before bytes are copied by their offsets."""

from __future__ import annotations

import os
from functools import partial

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
from shards.tar.header_chain import headers_checksum


def check_sources(index: Index, numbers: npt.NDArray[np.int32], *, workers: int) -> None:
    """Hold size and headers of the shards with these numbers against the index. Remote shards are not read twice.

    Raises:
        ShardsChanged: the first shard that is not what it was; the message has both sizes or both checksums.
    """
    items = []
    for number in numbers.tolist():
        rows = index.rows(number)
        items.append((index.shards[number], *byte_extents(index.table.slice(rows.start, len(rows)))))
    for _ in map_shards(partial(_check, index.root), items, workers):
        pass


def _check(root: str, item: tuple[Shard, Int64Array, Int64Array]) -> None:
    shard, starts, sizes = item
    location = locate(root, shard.path)
    if remote.is_url(location):
        return
    size = os.path.getsize(location) if os.path.exists(location) else None
    if size != shard.size:
        raise _changed(shard, "size", f"{shard.size} bytes", "no file" if size is None else f"{size} bytes")
    with open_mapped(location) as source:
        order = np.argsort(starts, kind="stable")
        found = None if shard.gzip else headers_checksum(source.buffer, starts[order], sizes[order])
    found = size_and_checksum(location)[1] if found is None else found
    if found != shard.checksum:
        raise _changed(shard, "headers", f"checksum {shard.checksum}", f"checksum {found}")


def _changed(shard: Shard, what: str, expected: str, found: str) -> ShardsChanged:
    return ShardsChanged(
        f"{what} changed since it was indexed",
        shard=shard.path,
        expected=expected,
        found=found,
        todo="index the store again, or restore the shard",
    )


def compare(index: Index, *, workers: int = 1) -> None:
    """Make sure that the shards are those that were indexed: same sizes, same headers.

    Raises:
        ShardsChanged: the first shard that is not.
    """
    for shard, found in zip(index.shards, map_shards(partial(_state, index.root), index.shards, workers)):
        if found != (shard.size, shard.checksum):
            changed = "size" if found[0] != shard.size else "headers"
            raise ShardsChanged(
                f"{changed} changed since it was indexed",
                shard=shard.path,
                expected=f"{shard.size} bytes, checksum {shard.checksum}",
                found=f"{found[0]} bytes, checksum {found[1]}",
                todo="index the shards again, or restore the shard",
            )


def _state(root: str, shard: Shard) -> tuple[int, str | None]:
    locator = locate(root, shard.path)
    if not remote.is_url(locator) and os.path.exists(locator) and os.path.getsize(locator) != shard.size:
        return os.path.getsize(locator), None
    return size_and_checksum(locator)
