"""Which splits a target folder has; known without decoding an image, and without torch."""

from __future__ import annotations

from pathlib import Path

from curate.errors import CurateError

SPLITS = ("train", "val", "test")


def splits_of(target: str | Path) -> list[str]:
    """The splits that a target folder has.

    Raises:
        CurateError: no such folder, or no train split.
    """
    root = Path(target)
    if not root.is_dir():
        raise CurateError(f"{target}: no such target folder; `curate pack imagefolder --target` makes one")
    found = [name for name in SPLITS if (root / name).is_dir()]
    if "train" not in found:
        raise CurateError(f"{target}: has no train/ (found: {', '.join(found) or 'no split'}); a target needs one")
    return found
