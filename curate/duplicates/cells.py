"""Short vectors on disk in the order of cells, and what says which cells can hold a neighbour of a vector.

A cell is what lies nearest to one centre of a k-means. Where the centres stand changes how long a search takes, and
nothing of what it finds: see `beyond`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from curate.duplicates.directions import Shortened, Vectors, blocks, brief
from curate.types import Floats, Ints

#: Vectors a centre that the centres are found on, and rounds of it.
SAMPLED, ROUNDS = 64, 10


@dataclass(frozen=True)
class Cells:
    """Vectors by cell, their arrays mapped from a folder; a place is where a vector stands in that order.

    Args:
        short, brief: shape (n, w) and at most (n, `directions.BRIEF`), float32: by place.
        order: shape (n,), int64: the row of each place.
        starts: shape (k + 1,), int64: the first place of each cell.
        centres: shape (k, w), float32.
        own: shape (n,), float32: squared distance from each place's vector to its own centre.
    """

    short: Floats
    brief: Floats
    order: Ints
    starts: Ints
    centres: Floats
    own: Floats

    def beyond(self, places: slice, cells: range, radius: float) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """Whether a vector of later cells can have neighbours in one of ``cells``, all that stand in them excepted.

        A vector x of cell b lies (|x - a|^2 - |x - b|^2) / 2|a - b| from the plane that halves the way between the
        centres a and b, and all of cell a lies on the other side: where that is more than ``radius``, none is near.

        Returns:
            Shape (places, cells): false for vectors of the cell itself and of earlier ones.
        """
        x, near = self.short[places], self.centres[cells.start : cells.stop]
        cell = np.searchsorted(self.starts, np.arange(places.start, places.stop), side="right") - 1
        squared = np.square(x).sum(1, keepdims=True) - 2 * x @ near.T + np.square(near).sum(1)
        present, at = np.unique(cell, return_inverse=True)
        apart = np.linalg.norm(self.centres[present][:, None] - near[None], axis=2)
        reach = squared - self.own[places, None] <= 2 * radius * apart[at] + 1e-4
        return np.asarray(reach & (cell[:, None] > np.arange(cells.start, cells.stop)))


def write_cells(values: Vectors, how: Shortened, count: int, folder: Path) -> None:
    """Sort rows into ``count`` cells and write the arrays of `Cells`; a block of the vectors is in memory at a time."""
    n = len(values)
    sample = how(values[:: max(1, n // (count * SAMPLED))])
    centres = centres_of(sample, min(count, len(sample)))
    cell, own = np.empty(n, np.int32), np.empty(n, np.float32)
    for part in blocks(0, n):
        x = how(values[part])
        squared = np.square(x).sum(1, keepdims=True) - 2 * x @ centres.T + np.square(centres).sum(1)
        cell[part] = squared.argmin(1)
        own[part] = squared.min(1)
    order = np.argsort(cell, kind="stable")
    short = np.lib.format.open_memmap(folder / "short.npy", "w+", np.float32, (n, centres.shape[1]))
    few = np.lib.format.open_memmap(folder / "brief.npy", "w+", np.float32, (n, brief(centres).shape[1]))
    for part in blocks(0, n):
        short[part] = x = how(values[order[part]])
        few[part] = brief(x)
    short.flush()
    few.flush()
    starts = np.searchsorted(cell[order], np.arange(len(centres) + 1))
    np.save(folder / "order.npy", order)
    np.save(folder / "starts.npy", starts)
    np.save(folder / "centres.npy", centres)
    np.save(folder / "own.npy", own[order])


def open_cells(folder: Path) -> Cells:
    """What `write_cells` wrote, mapped."""
    names = ("short", "brief", "order", "starts", "centres", "own")
    return Cells(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in names))


def centres_of(sample: Floats, count: int) -> Floats:
    """``count`` centres of shape (count, w), float32, by k-means from random ones of the sample."""
    means = KMeans(count, init="random", n_init=1, max_iter=ROUNDS, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different vectors than centres are no fault
        means.fit(sample)
    return np.asarray(means.cluster_centers_, np.float32)
