"""Reads one shard, the task that indexing maps over shards: index rows, faults, stored size, header checksum."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import xxhash

from shards.errors import NotShards, StoreFailed
from shards.faults import Fault
from shards.indexing.bulk_rows import bulk_rows
from shards.indexing.content import check_samples, count_images
from shards.indexing.lint import capped, member_faults, sample_faults
from shards.indexing.sample import group_members, link_targets
from shards.indexing.schema import rows_from_samples
from shards.io.mapped import MappedShard, open_mapped
from shards.io.shard_set import locate
from shards.tar.far_headers import open_headers
from shards.tar.sniff import not_a_tar_fault
from shards.tar.walk import HARD_LINK, Member, walk_runs


@dataclass(frozen=True)
class Shard:
    """A shard as recorded when it was indexed.

    Args:
        path: relative to the root of its set.
        size: bytes as stored.
        checksum: xxh3 (64 bits, hex) of all its header blocks, extensions included, in order.
        gzip: stored compressed; offsets count uncompressed bytes then.
        borrows: some member cannot be read from its own blocks (a hard link, or a global PAX header that sets name or
            size), so copying from this shard needs a walk.
        etag: of an object, which changes with its bytes; None for a file, and in indexes of earlier releases.
    """

    path: str
    size: int
    checksum: str
    gzip: bool
    borrows: bool = False
    etag: str | None = None

    def record(self) -> dict[str, Any]:
        """Its fields in the footer of an index, without those that it has not."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Scan:
    """What one shard holds. ``shard`` is None where it is no tar; ``faults`` says why."""

    shard: Shard | None
    rows: pa.RecordBatch
    images: Counter[str]
    faults: tuple[Fault, ...]


def scan_shard(root: str, path: str, *, check: bool = False, image: str | None = None) -> Scan:
    """Read one shard. One that cannot be opened or read to its end is reported like one that is no tar, unless a store
    or a server fails, which says nothing of it.

    Args:
        root, path: of the shard set, and of the shard below it.
        check: decode every image and parse every sidecar.
        image: extension of the image; None for the first in tar order.

    Raises:
        StoreFailed: an object store or a server refuses, or is out of reach.
    """
    try:
        with (open_mapped if check else open_headers)(locate(root, path)) as source:
            why = not_a_tar_fault(source.buffer, path, source.damage)
            if why is None:
                return _scan(source, path, check, image)
    except StoreFailed:
        raise
    except NotShards as error:
        why = Fault("not-a-tar", path, None, None, error.problem)
    return Scan(None, rows_from_samples([], None), Counter(), (why,))


def _scan(source: MappedShard, path: str, check: bool, image: str | None) -> Scan:
    digest = xxhash.xxh3_64()
    found = list(walk_runs(source.buffer, path, digest.update))
    parts = [piece for piece in found if not isinstance(piece, Fault)]
    faults = [piece for piece in found if isinstance(piece, Fault)]
    if source.damage is not None:
        faults.append(Fault("truncated", path, None, len(source.buffer), f"gzip stream is damaged: {source.damage}"))
    if source.mismatch is not None:
        detail = f"{source.mismatch}: all of it is used, some bytes may not be those that were packed"
        faults.append(Fault("wrong-checksum", path, None, None, detail))
    members = [piece for piece in parts if isinstance(piece, Member)]
    linked = any(member.kind == HARD_LINK for member in members)
    borrows = linked or any(member.borrowed for member in members)
    shard = Shard(path, source.size, digest.hexdigest(), source.gzip, borrows, source.etag)
    regular = None if check else bulk_rows(parts, image)
    if regular is not None:
        return Scan(shard, *regular, tuple(capped(faults)))
    links = link_targets(parts) if linked else {}
    grouped = group_members(parts, links)
    faults += [*member_faults(parts, path, links), *sample_faults(grouped, path, image)]
    if not grouped.samples:
        faults.append(Fault("empty-shard", path, None, None, "holds no sample"))
    if check:
        faults += check_samples(source.buffer, path, grouped.samples, image)
    images = count_images(grouped.samples, image, faults if check else [])
    return Scan(shard, rows_from_samples(grouped.samples, image), images, tuple(capped(faults)))


def size_and_checksum(locator: str) -> tuple[int, str]:
    """Stored size and header checksum of a shard as it is now, to compare with `Shard`."""
    digest = xxhash.xxh3_64()
    with open_headers(locator) as source:
        for _ in walk_runs(source.buffer, locator, digest.update):
            pass
        return source.size, digest.hexdigest()
