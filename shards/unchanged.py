"""Makes sure that source shards are still the ones that were indexed, before bytes are copied by their offsets."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import numpy.typing as npt

from . import remote
from .chains import checksum
from .copying import runs_of
from .errors import ShardsChanged
from .index import Index
from .names import locate
from .scan import Shard, state
from .sources import opening
from .tasks import map_shards

Places = npt.NDArray[np.int64]


def check_sources(index: Index, numbers: npt.NDArray[np.int32], *, workers: int) -> None:
    """Hold size and headers of the shards with these numbers against the index. Remote shards are not read twice.

    Raises:
        ShardsChanged: the first shard that is not what it was; the message has both sizes or both checksums.
    """
    items = []
    for number in numbers.tolist():
        rows = index.rows(number)
        items.append((index.shards[number], *runs_of(index.table.slice(rows.start, len(rows)))))
    for _ in map_shards(partial(_check, index.root), items, workers):
        pass


def _check(root: str, item: tuple[Shard, Places, Places]) -> None:
    shard, starts, sizes = item
    location = locate(root, shard.path)
    if remote.is_url(location):
        return
    size = os.path.getsize(location) if os.path.exists(location) else None
    if size != shard.size:
        raise _changed(shard, "size", f"{shard.size} bytes", "no file" if size is None else f"{size} bytes")
    with opening(location) as source:
        order = np.argsort(starts, kind="stable")
        found = None if shard.gzip else checksum(source.buffer, starts[order], sizes[order])
    found = state(location)[1] if found is None else found
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
