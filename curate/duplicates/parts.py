"""What images are compared with: a store, or the splits of a target, each with its hashes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from curate.data.contact_sheet import small, small_images
from curate.data.photos import Photos
from curate.data.splits import folder_of, sources_of
from curate.duplicates import hash_files, hash_table
from curate.duplicates.hash_table import Hashed
from curate.progress import Progress
from curate.types import Ints
from shards.indexing import index as shard_index
from shards.indexing.index import Index


@dataclass(frozen=True)
class Part:
    """Some images and what they are known by.

    Args:
        name: train, val or test; empty for a store.
        source: where they are.
    """

    name: str
    source: Index | Photos
    hashed: Hashed

    def pictures(self, rows: Ints, side: int) -> list[Image.Image | None]:
        """Some of them, small: as `small_images`."""
        if isinstance(self.source, Index):
            return small_images(self.source, rows, side)
        paths = [self.source.paths[row] for row in rows.tolist()]
        return [small(body, side) for body in Photos(self.source.root, tuple(paths)).bodies()]


def store_part(index: Index, out: Path | None, workers: int, progress: Progress) -> Part:
    """A store; its hashes are kept beside it, else in ``out``, else nowhere. Raises as `hash_files.of_store`."""
    return Part("", index, _hashed(index, out, workers, progress))


def parts_of(place: str, out: Path | None, workers: int, progress: Progress) -> list[Part]:
    """The splits of a target, or the one part of anything else that holds images.

    Args:
        place: as `curate.data.splits.sources_of` has it.

    Raises:
        CurateError, ShardError: there is no such thing, or it cannot be read.
    """
    sources = sources_of(place)
    is_target = (folder_of(place) / "train").is_dir()
    found = []
    for name, source in sources.items():
        held = source if isinstance(source, Photos) else shard_index.build(source, workers=max(1, workers))[0]
        within = None if out is None else out / name
        hashed = hash_files.of_photos(held) if isinstance(held, Photos) else _hashed(held, within, workers, progress)
        found.append(Part(name if is_target else "", held, hashed))
    return found


def whole(parts: Sequence[Part]) -> tuple[Hashed, Ints, Ints]:
    """Several parts as one: their hashes, and of each image its part and its place there."""
    hashed = parts[0].hashed
    for part in parts[1:]:
        hashed = hash_table.joined(hashed, part.hashed)
    of = np.repeat(np.arange(len(parts)), [len(part.hashed) for part in parts])
    place = np.concatenate([np.arange(len(part.hashed)) for part in parts])
    return hashed, of, place


def _hashed(index: Index, out: Path | None, workers: int, progress: Progress) -> Hashed:
    with ExitStack() as stack:
        places = hash_files.places_of(index, out)
        if not places or not hash_files.may_be_made(places[-1]):
            places.append(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hashes-"))))
        return hash_files.of_store(index, places, workers, progress)
