"""The semantic level: groups of images whose features are alike."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from curate.duplicates.directions import Vectors, blocks, distances
from curate.duplicates.groups import distinct, group
from curate.duplicates.near_pairs import DISTANCE, digests, near_pairs
from curate.types import Floats, Ints


def semantic_groups(
    features: Path, order: Ints, within: float = DISTANCE, workers: int = 1, folder: Path | None = None
) -> tuple[Ints, Floats]:
    """Group images around representatives by 1 - cosine of their features.

    Args:
        features: an .npy file of shape (n, d); a block of it is in memory at a time.
        order: shape (n,), int64: the rank in which images are preferred as representatives, as `groups.group` has it.
        within: the greatest distance that counts, in (0, 1).
        workers, folder: as `near_pairs` has them.

    Returns:
        Each image's representative, shape (n,), int64, its own where it stands alone; and its distance from that, shape
        (n,), float32.

    Raises:
        CurateError: as `near_pairs`.
    """
    values: Vectors = np.load(features, mmap_mode="r")
    kept, kind = distinct(digests(values), order=order)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".distinct-") as scratch:
        place, path = np.argsort(np.argsort(kept)), features
        kept, kind = np.sort(kept), place[kind]
        if len(kept) < len(values):
            path = Path(scratch) / "features.npy"
            _write(values, kept, path)
        rank = np.argsort(np.argsort(order[kept]))
        of_kept = group(len(kept), near_pairs(path, within, workers, folder), rank, within)
        representative = kept[of_kept][kind]
        return representative, distances(values, np.arange(len(values)), representative)


def _write(values: Vectors, rows: Ints, path: Path) -> None:
    """Some rows, as a file."""
    out = np.lib.format.open_memmap(path, "w+", values.dtype, (len(rows), values.shape[1]))
    for part in blocks(0, len(rows)):
        out[part] = values[rows[part]]
    out.flush()
