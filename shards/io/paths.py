"""Whether two folders overlap: the one test that keeps output apart from what is read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shards.errors import Misuse


def overlap(one: Path, other: Path) -> bool:
    """Whether one of two folders is the other or lies in it; links are followed, and neither need exist."""
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


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
