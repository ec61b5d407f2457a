"""Output folders that lie apart from what is read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shards.errors import Misuse


def refuse_overlap(out: Path, roots: Iterable[tuple[str, Path]], otherwise: str = "") -> None:
    """Refuse a folder in, or around, one that is read; links are followed.

    Args:
        out: the folder asked for.
        roots: what is read, each with its name.
        otherwise: what else may be done, at the end of the message.

    Raises:
        Misuse: they overlap.
    """
    here = out.resolve()
    for name, place in roots:
        root = place.resolve()
        if here.is_relative_to(root) or root.is_relative_to(here):
            raise Misuse(f"--out {out}: overlaps the {name} {root}; name a folder apart from it{otherwise}")
