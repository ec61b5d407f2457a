"""Random splits that keep groups whole: of the images of a track, a writer or a patient, all stand on one side.

scikit-learn's StratifiedGroupKFold makes equal folds only, and lets a class of few groups go missing: in five folds of
GTSRB's val, joined 2 : 1 : 2, train lacks 13 of 43 classes. Here sides have any shares, and no class is missing on a
side where its groups suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shards.arrays import Int64Array
from shards.shuffle import permutation

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupCounts:
    """How many rows of which class each group holds, as a sparse matrix by rows.

    Args:
        group: shape (n,), int64: the group of each row that was counted, from 0.
        starts: shape (groups + 1,), int64: where each group begins in the two below.
        classes, counts: shape (entries,), int64: a class of the group, and its rows there.
    """

    group: Int64Array
    starts: Int64Array
    classes: Int64Array
    counts: Int64Array

    def of(self, group: int) -> tuple[Int64Array, Int64Array]:
        """Classes of a group, and how many rows it has of each."""
        part = slice(self.starts[group], self.starts[group + 1])
        return self.classes[part], self.counts[part]


def split_groups(
    labels: Int64Array,
    groups: Sequence[str | None],
    shares: Sequence[float] | Matrix,
    seed: int,
    needed: int | None = None,
) -> Int64Array:
    """The side of each row, shape (n,), int64: no group stands on two sides, and classes are spread by the shares.

    Groups are placed from large to small, at random among those of about one size, each where it brings the classes
    nearest to their shares. Then single groups move, as long as that fills a side where a class is missing.

    Args:
        labels: shape (n,), int64.
        groups: a name a row; a row of None is a group of its own.
        shares: of the sides, which sum to 1, in the order of their importance: a class with fewer groups than sides
            stands on the first ones. A side whose share is 0 gets nothing. Of shape (sides, classes) where each class,
            in the order of its label, has its own.
        seed: of the order of the groups.
        needed: how many of the sides, the first ones, should have every class; None for all.
    """
    counted = count_groups(labels, groups)
    by_class = np.asarray(shares, np.float64).reshape(len(shares), -1)
    sides = np.flatnonzero(by_class.max(axis=1) > 0)
    wanted = by_class[sides] / by_class[sides].sum(axis=0) * np.bincount(counted.classes, counted.counts)
    placed = _placed(counted, wanted, seed)
    _fill_gaps(counted, wanted, placed, int(np.sum(sides < (len(shares) if needed is None else needed))))
    return sides[placed[counted.group]]


def count_groups(labels: Int64Array, groups: Sequence[str | None]) -> GroupCounts:
    """Count the classes of every group."""
    names = {name: code for code, name in enumerate(sorted({name for name in groups if name is not None}))}
    alone = iter(range(len(names), len(names) + len(labels)))
    group = np.array([next(alone) if name is None else names[name] for name in groups], np.int64)
    classes, label = np.unique(labels, return_inverse=True)
    pairs, counts = np.unique(group * len(classes) + label, return_counts=True)
    held, of_class = np.divmod(pairs, max(1, len(classes)))
    return GroupCounts(group, np.searchsorted(held, np.arange(group.max(initial=-1) + 2)), of_class, counts)


def missing_classes(labels: Int64Array, sides: Int64Array, side: int) -> Int64Array:
    """The classes, sorted, that have no row on a side."""
    return np.setdiff1d(labels, labels[sides == side])


def _placed(counted: GroupCounts, wanted: Matrix, seed: int) -> Int64Array:
    """The side of each group, one after the other where it fits best."""
    held = np.zeros_like(wanted)
    placed = np.zeros(len(counted.starts) - 1, np.int64)
    for group in _large_first(counted, seed).tolist():
        classes, counts = counted.of(group)
        side = placed[group] = np.argmin(_cost(held, wanted, classes, counts))
        held[side, classes] += counts
    return placed


def _large_first(counted: GroupCounts, seed: int) -> Int64Array:
    """Groups from large to small, in random order within a factor of two."""
    sizes = np.bincount(counted.group, minlength=len(counted.starts) - 1)
    turn = permutation(seed, "groups", 0, len(sizes))
    return turn[np.argsort(-np.floor(np.log2(sizes[turn])), kind="stable")]


def _cost(held: Matrix, wanted: Matrix, classes: Int64Array, counts: Int64Array) -> Matrix:
    """By how much a group would change each side's sum over classes of (held - wanted)^2 / wanted."""
    over = 2 * (held[:, classes] - wanted[:, classes]) + counts
    return np.asarray((counts * over / wanted[:, classes]).sum(axis=1))


def _fill_gaps(counted: GroupCounts, wanted: Matrix, placed: Int64Array, needed: int) -> None:
    """Move groups, in ``placed``, while a class that is missing on one of the first ``needed`` sides gains by it."""
    n_sides, n_classes = wanted.shape
    group = np.repeat(np.arange(len(placed)), np.diff(counted.starts))
    held, standing = np.zeros_like(wanted), np.zeros(wanted.shape, np.int64)  # rows and groups of a class on a side
    np.add.at(held, (placed[group], counted.classes), counted.counts)
    np.add.at(standing, (placed[group], counted.classes), 1)
    # A gap on an earlier side outweighs one of every class on all later ones.
    weight = np.where(np.arange(n_sides) < needed, float(n_classes + 1) ** -np.arange(n_sides), 0.0)

    def gain(group: int, to: int) -> tuple[float, float]:
        """The weight of the gaps that a move closes less that of those it opens; and how much nearer to the shares."""
        classes, counts = counted.of(group)
        side = placed[group]
        closed, opened = (standing[to, classes] == 0).sum(), (standing[side, classes] == 1).sum()
        over = held[to, classes] - held[side, classes] + wanted[side, classes] - wanted[to, classes] + counts
        return float(weight[to] * closed - weight[side] * opened), -float((counts * over).sum())

    moved = True
    while moved:
        moved = False
        for side, missing in zip(*np.nonzero((standing == 0) & (weight > 0)[:, None])):
            others = [one for one in group[counted.classes == missing].tolist() if placed[one] != side]
            best = max(others, key=lambda one: gain(one, side), default=None)
            if best is None or standing[side, missing] or gain(best, side)[0] <= 0:
                continue
            classes, counts = counted.of(best)
            for table, change in ((held, counts), (standing, 1)):
                table[placed[best], classes] -= change
                table[side, classes] += change
            placed[best], moved = side, True
