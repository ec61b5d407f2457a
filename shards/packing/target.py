"""What a labelled target has: a shard set for each of train, val and test, in a random order, and ``classes.txt``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shards.arrays import Int64Array
from shards.errors import ShardError
from shards.io.atomic import write_bytes
from shards.shuffle import permutation

SPLITS = ("train", "val", "test")
CLASSES = "classes.txt"


def write_classes(folder: Path, classes: Sequence[str]) -> None:
    """Write ``classes.txt``: the name of one class a line, so that the number of a line, from 0, is its label.

    Args:
        classes: names that `check_class_names` lets pass; bytes that are not UTF-8 stand as lone surrogates.
    """
    text = "".join(f"{name}\n" for name in classes)
    write_bytes(folder / CLASSES, text.encode("utf-8", "surrogateescape"))


def check_class_names(classes: Sequence[str], place: str) -> None:
    """Refuse a name that is not one line of text: every label after it would name another class.

    Args:
        place: where the names are from, for the message.

    Raises:
        ShardError: names the first such class.
    """
    odd = next((name for name in classes if name.splitlines() != [name]), None)
    if odd is not None:
        todo = "rename it: classes.txt has a class a line"
        raise ShardError("the name of a class", shard=place, expected="a line of text", found=ascii(odd), todo=todo)


def shuffled(rows: Int64Array, split: str, seed: int) -> Int64Array:
    """The rows of a split in a random order by ``seed``, so that neighbours are not of one class."""
    return rows[permutation(seed, "order of split", SPLITS.index(split), len(rows))]
