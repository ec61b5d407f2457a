"""A line of warning, at little cost, where a store holds images of the target that it will be scored on.

Where hashes of the store are there already, near-copies are looked for; else images of the same bytes, of which those
of an equal size alone are read. `curate audit` looks thoroughly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.data.contact_sheet import spread
from curate.data.photos import Photos
from curate.data.splits import bodies
from curate.duplicates import hash_files, hash_table
from curate.duplicates.audit import copies
from curate.duplicates.levels import DISTANCE
from curate.duplicates.parts import Part
from curate.errors import CurateError
from shards import stream
from shards.errors import ShardError
from shards.indexing.index import Index

#: Images of the target that are looked for at most, by their bytes and by their look.
MOST_SOUGHT, MOST_LOOKED_FOR = 20_000, 5_000
#: Images of the store whose hashes are compared at most, and that are read.
MOST_HASHED, MOST_READ = 50_000, 2_000
#: The splits that tell how good something is.
SCORED = ("val", "test")


def leak_notes(store: Index, target: Mapping[str, Index | Photos]) -> list[str]:
    """A line for val and for test, as far as a store holds images of them; none for a store that is read as a stream.

    Args:
        target: its splits by name; others than val and test are passed over.

    Raises:
        ShardError, CurateError: one of them cannot be read.
    """
    sought = {name: target[name] for name in SCORED if name in target}
    n_sought = sum(map(len, sought.values()))
    if not 0 < n_sought <= MOST_SOUGHT or stream.is_streamed(store):
        return []
    hashed = hashes_there(store) if n_sought <= MOST_LOOKED_FOR else None
    if hashed is not None:
        held, how = near_copies(Part("", store, hashed), sought), "(or near-copies of them) "
    else:
        held, how = _by_bytes(store, sought), ""
    return [
        f"{n:,} of {len(sought[name]):,} images of the target's {name} {how}are in the store: a score on {name} says "
        "too much; `curate audit` shows them, and with --drop writes a manifest without them"
        for name, n in held.items()
        if n
    ]


def hashes_there(store: Index) -> hash_table.Hashed | None:
    """The hashes that an earlier call left beside a store; None where there are none, too many to compare here, or
    damaged ones, which `curate dedup` makes again."""
    if len(store) > MOST_HASHED:
        return None
    folder = next((one for one in hash_files.places_of(store, None) if hash_files.is_whole(one, store)), None)
    try:
        return None if folder is None else hash_files.load(folder, store)
    except (CurateError, ShardError):
        return None


def near_copies(store: Part, sought: Mapping[str, Index | Photos]) -> dict[str, int]:
    """How many images of each split have an exact or a near-copy."""
    parts = [Part(name, split, _hashed(split)) for name, split in sought.items()]
    return dict(zip(sought, copies(store, parts, DISTANCE, workers=1).covered))


def _hashed(split: Index | Photos) -> hash_table.Hashed:
    return hash_files.of_photos(split) if isinstance(split, Photos) else hash_files.in_memory(split)


def _by_bytes(store: Index, sought: Mapping[str, Index | Photos]) -> dict[str, int]:
    """How many images of each split have a copy of the same bytes among those that are read."""
    known = {name: [(len(body), _digest(body)) for body in bodies(split)] for name, split in sought.items()}
    sizes = sorted({size for held in known.values() for size, _ in held})
    alike = np.flatnonzero(pc.is_in(store.table["image_size"], pa.array(sizes, pa.int64())).to_numpy())
    there = {_digest(body) for body in stream.images(store, spread(alike, MOST_READ))}
    return {name: sum(digest in there for _, digest in held) for name, held in known.items()}


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
