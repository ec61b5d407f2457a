"""Draws train, val and test of labelled files, each class by itself: pure functions of names, labels and seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from shards.errors import Misuse, ShardError
from shards.packing.group_splits import missing_classes, split_groups
from shards.packing.groups import Groups, gap_notes
from shards.packing.target import SPLITS
from shards.shuffle import permutation

#: Shares of train, val and test.
Split = tuple[float, float, float]
#: Of a large class.
DEFAULT: Split = (0.4, 0.2, 0.4)
#: Of a class, train gets so much by default before the others get more, and never a greater share than the second.
ENOUGH, MOST = 40, 0.7
#: Images of a class in test below which a score on it is called coarse.
COARSE = 10


def default_split(count: int) -> Split:
    """The shares of a class of ``count`` images where nobody asks for others.

    Train gets 40 images, but at most 70 % of a small class and at least 40 % of a large one; val gets one part of the
    rest, and test two.

    >>> [tuple(round(share, 2) for share in default_split(count)) for count in (18, 80, 1000)]
    [(0.7, 0.1, 0.2), (0.5, 0.17, 0.33), (0.4, 0.2, 0.4)]
    """
    train = max(DEFAULT[0], min(MOST, ENOUGH / max(1, count)))
    return train, (1 - train) / 3, 2 * (1 - train) / 3


def split_by_class(
    of: Mapping[str, str], classes: Sequence[str], split: Split | None, seed: int
) -> tuple[list[list[str]], tuple[str, ...]]:
    """Sorted files of train, val and test, each class divided at random by ``seed``; and notes on small classes.

    Args:
        of: the class of each file.
        split: the shares; None for each class's `default_split`.

    Raises:
        ShardError: a class has fewer files than there are splits.
    """
    members: dict[str, list[str]] = {name: [] for name in classes}
    for file, name in of.items():
        members[name].append(file)
    parts: list[list[str]] = [[] for _ in SPLITS]
    for name, held in members.items():
        turn = [held[place] for place in permutation(seed, f"split of {name!r}", 0, len(held))]
        for part, count in zip(parts, split_counts(len(held), split or default_split(len(held)), name), strict=True):
            part += turn[:count]
            turn = turn[count:]
    return [sorted(part) for part in parts], _coarse_notes(of, parts[2])


def split_by_group(
    groups: Groups, of: Mapping[str, str], classes: Sequence[str], split: Split | None, seed: int
) -> tuple[list[list[str]], tuple[str, ...]]:
    """As `split_by_class`, so that every group stands in one split; and notes on what the splits lack.

    Args:
        groups: the group of each file; None for one that stands alone.

    Raises:
        ShardError: a class has no file, or a split would be empty.
    """
    files = sorted(groups)
    names = [of[file] for file in files]
    counts = Counter(names)
    if empty := sorted(set(classes) - set(counts)):
        raise ShardError("no readable image", shard=empty[0], todo="add images or remove the class folder")
    place = {name: number for number, name in enumerate(classes)}
    labels = np.array([place[name] for name in names], np.int64)
    wanted = np.array([split or default_split(counts[name]) for name in classes]).T
    sides = split_groups(labels, [groups[file] for file in files], wanted[[0, 2, 1]], seed)
    side_of = dict(zip(SPLITS, (0, 2, 1), strict=True))
    missing = {}
    for name, shares in zip(SPLITS, wanted, strict=True):
        if shares.max() > 0:
            missing[name] = [classes[label] for label in missing_classes(labels, sides, side_of[name])]
            if len(missing[name]) == len(classes):
                todo = "tell smaller groups, or give it no share with --split"
                raise ShardError(f"too few groups: {name} would be empty", todo=todo)
    told = {(name, groups[file] or file) for name, file in zip(names, files)}
    parts = [[file for file, side in zip(files, sides) if side == side_of[name]] for name in SPLITS]
    return parts, (*gap_notes(Counter(name for name, _ in told), missing), *_coarse_notes(of, parts[2]))


def split_counts(count: int, split: Sequence[float], name: str) -> list[int]:
    """``count`` divided by the shares ``split`` by largest remainder; at least 1 wherever the share is not 0.

    >>> split_counts(10, (0.4, 0.2, 0.4), "cat"), split_counts(3, (0.8, 0.1, 0.1), "dog")
    ([4, 2, 4], [1, 1, 1])
    """
    wanted = sum(share > 0 for share in split)
    if count < wanted:
        raise ShardError(
            "too few readable images for the splits",
            shard=name,
            expected=f"at least {wanted}",
            found=count,
            todo="add images or remove the class folder" + (", or do without val: --split 0.5,0,0.5" if count else ""),
        )
    exact = [round(share * count, 9) for share in split]
    counts = [int(part) for part in exact]
    by_remainder = sorted(range(len(split)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: count - sum(counts)]:
        counts[place] += 1
    for place, share in enumerate(split):
        if share > 0 and counts[place] == 0:
            counts[counts.index(max(counts))] -= 1
            counts[place] = 1
    return counts


def check_split(split: Sequence[float]) -> None:
    """Raise `Misuse` unless these are shares of train, val and test."""
    # Written so that a share that is no number fails, too.
    fits = len(split) == len(SPLITS) and all(0 <= share <= 1 for share in split) and split[0] > 0
    if not fits or not abs(sum(split) - 1) <= 1e-9:
        raise Misuse(
            "this is no split",
            expected="three shares that sum to 1, the first above 0",
            found=",".join(map(str, split)),
            todo="for example 0.4,0.2,0.4",
        )


def _coarse_notes(of: Mapping[str, str], test: Sequence[str]) -> tuple[str, ...]:
    """What a test of few images a class is worth, and what to do."""
    held = Counter(of[file] for file in test)
    few = {name: count for name, count in held.items() if count < COARSE}
    if not few:
        return ()
    least = min(few, key=lambda name: (few[name], name))
    many = f"{len(few)} of {len(set(of.values()))} classes (of {least} {few[least]})"
    return (f"test has fewer than {COARSE} images of {many}: add images, or trust a score over several seeds alone",)
