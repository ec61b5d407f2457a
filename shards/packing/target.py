"""Writes a labelled target: a shard set for each of train, val and test, and classes.txt.

Owns the form of the folder and the order inside a split. Which samples are in which split is decided before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

from shards.arrays import Int64Array
from shards.errors import ShardError
from shards.io.atomic import write_bytes
from shards.shuffle import permutation
from shards.tar.writer import Sample, write_shards

SPLITS = ("train", "val", "test")


def write_target(
    folder: Path, splits: Mapping[str, Iterable[Sample]], classes: Sequence[str], *, shard_size: int
) -> dict[str, int]:
    """Write the splits as ``folder``/train, /val and /test, and the names of the classes; return samples by split."""
    lines = class_lines(classes, str(folder))
    counts = {name: write_counted(folder / name, samples, shard_size) for name, samples in splits.items()}
    write_bytes(folder / "classes.txt", lines)
    return counts


def class_lines(classes: Sequence[str], place: str) -> bytes:
    """What classes.txt holds: a name a line, the line's number being the label.

    Args:
        place: where the names are from, for the message.

    Raises:
        ShardError: a name is no line, so that every label behind it would name another class.
    """
    odd = next((name for name in classes if name.splitlines() != [name]), None)
    if odd is not None:
        todo = "rename it: classes.txt has a class a line"
        raise ShardError("the name of a class", shard=place, expected="a line of text", found=ascii(odd), todo=todo)
    return "".join(f"{name}\n" for name in classes).encode("utf-8", "surrogateescape")


def shuffled(rows: Int64Array, split: str, seed: int) -> Int64Array:
    """The rows of a split in the order in which they are written: random, so that neighbours are not of one class."""
    return rows[permutation(seed, "order of split", SPLITS.index(split), len(rows))]


def write_counted(folder: Path, samples: Iterable[Sample], shard_size: int) -> int:
    """Write a shard set and return how many samples it has."""
    numbers = count()
    # zip asks for a number only after it got a sample, so the next number is how many there were.
    write_shards(folder, (sample for sample, _ in zip(samples, numbers)), shard_size=shard_size)
    return next(numbers)
