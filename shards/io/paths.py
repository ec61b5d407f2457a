"""What keeps output apart from what is read, and from what somebody else has written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from shards.errors import Misuse


def overlap(one: Path, other: Path) -> bool:
    """Whether one of two folders is the other or lies in it; links are followed, and neither need exist."""
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


def holds_others(folder: Path, ours: Collection[str]) -> bool:
    """Whether there is a folder that holds what is neither hidden nor has one of these names."""
    return folder.is_dir() and any(path.name[0] != "." and path.name not in ours for path in folder.iterdir())


def refuse_overlap(out: Path, roots: Iterable[tuple[str, Path]], otherwise: str = "") -> None:
    """Refuse a folder in, or around, one that is read; links are followed.

    Args:
        out: the folder asked for.
        roots: what is read, each with its name.
        otherwise: what else may be done, at the end of the message.

    Raises:
        Misuse: they overlap.
    """
    for name, root in roots:
        if overlap(out, root):
            raise Misuse(f"--out {out}: overlaps the {name} {root.resolve()}; name a folder apart from it{otherwise}")
