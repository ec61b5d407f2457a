"""Groups of image files that are near-copies of one another, for splits that keep such images on one side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.data.photos import Photos
from curate.duplicates import hash_files, levels
from curate.duplicates.hash_table import Hashed, of_table, table_of
from curate.errors import Misuse
from curate.types import Ints
from shards.io import remote
from shards.io.parallel import default_workers
from shards.member_names import storable
from shards.packing.decathlon.annotations import read_domain
from shards.packing.decathlon.images import open_images
from shards.packing.listing import Listing

_SCHEMA = pa.schema([("file", pa.string()), ("group", pa.string())])


class NearGroups(NamedTuple):
    """Which images are not to be parted.

    Args:
        table: columns ``file``, as the packer has it, and ``group``.
        together: groups of several images.
        largest: images of the largest.
    """

    table: pa.Table
    together: int
    largest: int

    def text(self) -> str:
        """For people."""
        if not self.together:
            return "no image is a near-copy of another; each is split by itself"
        return f"{self.together:,} groups of near-copies stay in one split each, the largest of {self.largest:,} images"


def near_groups(listing: Listing, distance: int = levels.DISTANCE) -> NearGroups:
    """Group images that are to be packed so that no two of different groups are within the distance.

    Other than where copies are dropped, steps are followed from image to image: of a track of frames, each like the
    next, all stay together.

    Raises:
        Misuse: one lies behind a URL.
        CurateError: a file may not be read.
    """
    files = [entry.file for entry in listing.entries]
    if far := next((file for file in files if remote.is_url(file)), None):
        raise Misuse(f"{far[:80]!r} is a URL: near-duplicates are found among files of this machine alone")
    return _grouped(files, hash_files.of_photos(Photos(listing.root, tuple(files)), default_workers()), distance)


def of_decathlon(root: Path, domains: Sequence[str], distance: int = levels.DISTANCE) -> NearGroups:
    """The same for the train and val images of decathlon domains, each domain by itself.

    Raises:
        ShardError: annotations or images are missing or inconsistent.
    """
    each = [_of_domain(root, domain, distance) for domain in domains]
    together, largest = sum(one.together for one in each), max((one.largest for one in each), default=0)
    return NearGroups(pa.concat_tables([one.table for one in each]), together, largest)


def _of_domain(root: Path, domain: str, distance: int) -> NearGroups:
    files, parts = list[str](), []
    for split in read_domain(root, domain):
        here = split.files.to_pylist()
        names = pa.table({"shard": [""] * len(here), "key": [storable(file) for file in here]})
        with open_images(root, split) as image_of:
            parts.append(table_of(names, np.zeros(len(here), np.bool_), map(image_of, range(len(here)))))
        files += here
    found = _grouped(files, of_table(pa.concat_tables(parts)), distance)
    apart = pc.binary_join_element_wise(domain, found.table["group"], " ")
    return found._replace(table=found.table.set_column(1, "group", apart))


def _grouped(files: Sequence[str], held: Hashed, distance: int) -> NearGroups:
    group: Ints = levels.connected(held, distance, default_workers())
    sizes = np.bincount(group) if len(group) else np.zeros(0, np.int64)
    table = pa.table({"file": [storable(file) for file in files], "group": group.astype(str).tolist()}, schema=_SCHEMA)
    return NearGroups(table, int((sizes > 1).sum()), int(sizes.max(initial=0)))
