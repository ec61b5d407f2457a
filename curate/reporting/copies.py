"""Images of the target that a run kept from the store: the same bytes, so that a score on them says too much.

Only images of equal size in bytes are read. Copies that were scaled, mirrored or saved again are counted where
`curate dedup` or `curate audit` has left hashes of the store.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.data.contact_sheet import spread
from curate.data.photos import Photos
from curate.data.splits import bodies, sources_of
from curate.duplicates.hash_table import taken
from curate.duplicates.leak_notes import MOST_LOOKED_FOR, hashes_there, near_copies
from curate.duplicates.parts import Part
from curate.reporting.reading import Judged
from curate.types import Ints
from shards import stream
from shards.indexing import index as shard_index
from shards.indexing.index import Index

#: Images of the store that are read at the most.
MOST_READ = 50_000


@dataclass(frozen=True)
class Copies:
    """What was found, and what was looked at.

    Args:
        target: images of each split.
        found: images of each split that have a copy among the kept.
        places: shape (m,), int64: the kept copies of test images, places in `Judged.table`.
        kept: images that were kept.
        alike: of them, as many bytes as some image of the target has.
        read: of these, read and compared.
        near: images of each split with a copy or a near-copy among the kept; None where there are no hashes.
    """

    target: dict[str, int]
    found: dict[str, int]
    places: Ints
    kept: int
    alike: int
    read: int
    near: dict[str, int] | None = None


def copies(judged: Judged, store: Index, target: str) -> Copies:
    """Compare the images of every split of a target with those that were kept, byte for byte.

    Raises:
        CurateError: no such target.
        ShardError: a shard of either is gone or damaged.
    """
    splits: defaultdict[bytes, Counter[str]] = defaultdict(Counter)  # digest -> images of each split
    sizes, counts = set(), Counter[str]()
    sought = {
        split: source if isinstance(source, Photos) else shard_index.build(source)[0]
        for split, source in sources_of(target).items()
    }
    for split, held in sought.items():
        for body in bodies(held):
            splits[_digest(body)][split] += 1
            counts[split] += 1
            sizes.add(len(body))
    rows, kept = judged.beliefs.rows, np.flatnonzero(judged.kept & judged.decodes)
    as_large = pc.is_in(store.table["image_size"].take(pa.array(rows[kept])), pa.array(sorted(sizes), pa.int64()))
    alike = kept[as_large.to_numpy()]
    looked, found, in_test = spread(alike, MOST_READ), Counter[str](), []
    seen: set[bytes] = set()
    for place, body in zip(looked.tolist(), stream.images(store, rows[looked])):
        digest = _digest(body)
        if digest in splits:
            found.update({} if digest in seen else splits[digest])
            in_test += [place] if "test" in splits[digest] else []
            seen.add(digest)
    each = {split: found[split] for split in counts}
    near = _near(store, rows[kept], sought)
    return Copies(dict(counts), each, np.array(in_test, np.int64), len(kept), len(alike), len(looked), near)


def _near(store: Index, kept: Ints, sought: Mapping[str, Index | Photos]) -> dict[str, int] | None:
    """By look, for at most as many images as are compared in passing."""
    if sum(map(len, sought.values())) > MOST_LOOKED_FOR or (hashed := hashes_there(store)) is None:
        return None
    return near_copies(Part("", store, taken(hashed, kept)), sought)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
