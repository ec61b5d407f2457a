"""Groups of image files that are near-copies of one another, for splits that keep such images on one side."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curate.data.photos import of_folder
from curate.duplicates import hash_files, levels
from curate.types import Ints
from shards.io.parallel import default_workers
from shards.member_names import storable


class NearGroups(NamedTuple):
    """Which images are not to be parted.

    Args:
        table: columns ``file``, relative to the folder, and ``group``.
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


def near_groups(folder: Path, distance: int = levels.DISTANCE) -> NearGroups:
    """Group the image files of a folder so that no two of different groups are within the distance.

    Other than where copies are dropped, steps are followed from image to image: of a track of frames, each like the
    next, all stay together.

    Raises:
        CurateError: a file may not be read.
    """
    photos = of_folder(folder)
    held = hash_files.of_photos(photos, default_workers())
    group = levels.connected(held, distance, default_workers())
    sizes = np.bincount(group) if len(group) else np.zeros(0, np.int64)
    names: Ints = group
    table = pa.table({"file": [storable(path) for path in photos.paths], "group": names.astype(str).tolist()})
    return NearGroups(table, int((sizes > 1).sum()), int(sizes.max(initial=0)))
