"""The semantic level of duplicates for stores: their features, wherever these are, and the groups that they make."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from curate.duplicates.directions import blocks
from curate.duplicates.near_pairs import DISTANCE
from curate.duplicates.semantic import semantic_groups
from curate.progress import Progress
from curate.runs.features import Source, beside, of_store
from curate.selection import feature_files
from curate.types import Floats, Ints
from shards.indexing.index import Index


def semantic_level(
    stores: Sequence[Index], source: Source, out: Path, order: Ints, progress: Progress, within: float = DISTANCE
) -> tuple[Ints, Floats]:
    """Group the images of one store, or of several together, by their features.

    Args:
        stores: n images in all; ``source`` is calibrated on the first.
        out: where features go that are not beside their store.
        order: shape (n,): the rank in which images are preferred, store after store.

    Returns:
        As `semantic_groups`; an image without features stands alone.

    Raises:
        CurateError, ShardError: features cannot be made or read, or tell nothing apart.
    """
    n = sum(len(index) for index in stores)
    representative, distance = np.arange(n), np.zeros(n, np.float32)
    with tempfile.TemporaryDirectory(dir=out, prefix=".features-") as scratch:
        path, rows = _joined(stores, source, out, Path(scratch), progress)
        rank = np.argsort(np.argsort(order[rows]))
        with progress.shards("features alike"):
            of, apart = semantic_groups(path, rank, within, max(1, source.workers), Path(scratch))
    representative[rows], distance[rows] = rows[of], apart
    return representative, distance


def _joined(stores: Sequence[Index], source: Source, out: Path, scratch: Path, progress: Progress) -> tuple[Path, Ints]:
    """One file with the features of all, and whose they are."""
    rows, paths, before = [], [], 0
    for number, index in enumerate(stores):
        paths.append(scratch / f"{number}.npy")
        places = [*beside(index), out / feature_files.FOLDER]
        rows.append(of_store(source, index, places, progress, paths[-1]).rows + before)
        before += len(index)
    if len(paths) == 1:
        return paths[0], rows[0]
    parts = [np.load(path, mmap_mode="r") for path in paths]
    shape = sum(map(len, rows)), parts[0].shape[1]
    whole, at = np.lib.format.open_memmap(scratch / "whole.npy", "w+", parts[0].dtype, shape), 0
    for part in parts:
        for block in blocks(0, len(part)):
            whole[at + block.start : at + block.stop] = part[block]
        at += len(part)
    whole.flush()
    return scratch / "whole.npy", np.concatenate(rows)
