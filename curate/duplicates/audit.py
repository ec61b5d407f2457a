"""Does a store hold images of a target's val or test, and do copies stand on two sides of the target itself?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.duplicates import found, levels, sheets
from curate.duplicates.parts import Part, whole
from curate.duplicates.sheets import Tile
from curate.ledger import manifest, table_file
from curate.types import Ints, Stamp

LEAKS, ACROSS, MANIFEST = "leaks.parquet", "across.parquet", "manifest.parquet"
LEAKS_SHEET, ACROSS_SHEET = "leaks.png", "across.png"
#: Pairs on a sheet, and side by side in a line of it.
SHOWN, IN_LINE = 96, 4


@dataclass(frozen=True)
class Copies:
    """Images of one part that are copies of images of another, each with the nearest.

    Args:
        rows: shape (k,), int64, places in the one part, rising.
        others, places: shape (k,), int64: the other image's part, and its place there.
        names: ``shard`` and ``key`` of those others.
        alike: how alike the two are.
        covered: for each of the other parts, how many of its images have such a copy.
    """

    rows: Ints
    others: Ints
    places: Ints
    names: pa.Table
    alike: found.Likeness
    covered: tuple[int, ...]


@dataclass(frozen=True)
class Audit:
    """What stands on two sides.

    Args:
        images: of the store; 0 where none was looked at.
        target: images of each split.
        leaked: of each split that is looked for in the store, the images that have a copy there.
        leaks: of each image of the store that is a copy of one of those splits: ``shard``, ``key``, ``split``,
            ``target_shard``, ``target_key``, ``level``, ``distance``, ``reason``.
        across: of each image of val and test that has a copy in an earlier split: ``split``, ``shard``, ``key``,
            ``other_split``, ``other_shard``, ``other_key``, ``level``, ``distance``, ``reason``.
        out: the folder of tables and pictures; empty for none.
    """

    images: int
    target: dict[str, int]
    leaked: dict[str, int]
    leaks: list[dict[str, Any]]
    across: list[dict[str, Any]]
    out: str = ""

    def fails(self, level: str) -> bool:
        """Whether there is a copy at this level or a surer one: in the store, or without one across the splits."""
        counted = levels.LEVELS[: levels.LEVELS.index(level) + 1]
        return any(line["level"] in counted for line in (self.leaks if self.images else self.across))

    def text(self) -> str:
        """For people."""
        lines = []
        for split, n in self.leaked.items():
            there, exact = _counts(self.leaks, split)
            told = f"{n:,} of {self.target[split]:,} images of {split} are in the store"
            none = f"no image of {split} is in the store"
            lines.append(f"{told} ({there:,} there, {exact:,} of them exact)" if n else none)
        for split in dict.fromkeys(line["split"] for line in self.across):
            there, exact = _counts(self.across, split)
            others = dict.fromkeys(line["other_split"] for line in self.across if line["split"] == split)
            told = f"{there:,} of {self.target[split]:,} images of {split} have a copy in {' or '.join(others)}"
            lines.append(f"{told}, {exact:,} of them exact")
        if not self.across and len(self.target) > 1:
            lines.append(f"no copies across {', '.join(self.target)}")
        return "\n".join(lines)


def _counts(lines: list[dict[str, Any]], split: str) -> tuple[int, int]:
    """Lines of a split, and of them the exact ones."""
    levels_ = [line["level"] for line in lines if line["split"] == split]
    return len(levels_), levels_.count("exact")


def audit(
    store: Part | None, target: Sequence[Part], *, distance: int, workers: int, out: Path | None, drop: bool
) -> Audit:
    """Look for copies, exact and perceptual; write tables and pictures where there is a place for them.

    Args:
        store: None to look at the target alone.
        target: its splits; of one that has no other than train that is looked for.
        distance: bits of 64.
        drop: also write a manifest of the store without what leaks.

    Raises:
        OSError: disk full, no permission.
    """
    wanted = [part for part in target if part.name not in ("", "train")] or list(target)
    held = None if store is None else copies(store, wanted, distance, workers)
    crossing = [(part, copies(part, list(target[:at]), distance, workers)) for at, part in enumerate(target) if at]
    names = [part.name or "target" for part in wanted]
    leaks = [] if store is None or held is None else _lines(store, wanted, held, ("target", "split"))
    across = [
        {"split": part.name, **line}
        for part, one in crossing
        for line in _lines(part, target, one, ("other", "other_split"))
    ]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        _save(out / LEAKS, leaks)
        _save(out / ACROSS, across)
        in_store = [] if store is None or held is None else [(store, wanted, held)]
        _draw(out / LEAKS_SHEET, in_store, "in the store, and in the target")
        _draw(out / ACROSS_SHEET, [(part, list(target), one) for part, one in crossing], "on two sides of the target")
        (out / MANIFEST).unlink(missing_ok=True)  # an earlier call's
        if drop and store is not None and held is not None:
            _write_manifest(out / MANIFEST, store, held, distance)
    return Audit(
        0 if store is None else len(store.hashed),
        {part.name or "target": len(part.hashed) for part in target},
        {} if held is None else dict(zip(names, held.covered)),
        leaks,
        across,
        "" if out is None else str(out),
    )


def copies(one: Part, others: Sequence[Part], distance: int, workers: int) -> Copies:
    """The images of a part that are copies of images of others."""
    everyone, part, place = whole([one, *others])
    n = len(one.hashed)
    near = levels.nearest_of_other(everyone, len(everyone) - n, "perceptual", distance, workers).place
    rows = np.flatnonzero(near[:n] >= 0)
    by = near[rows]
    covered = np.bincount(part[n:][near[n:] >= 0] - 1, minlength=len(others))
    alike = found.likeness(everyone, rows, by, distance)
    names = everyone.names.take(pa.array(by))
    return Copies(rows, part[by] - 1, place[by], names, alike, tuple(covered.tolist()))


def _lines(one: Part, others: Sequence[Part], held: Copies, words: tuple[str, str]) -> list[dict[str, Any]]:
    """A record a copy; ``words`` call the other image's shard and key, and its split."""
    prefix, split = words
    return [
        {
            **mine,
            split: others[part].name or "target",
            **{f"{prefix}_{name}": value for name, value in theirs.items()},
            "level": levels.LEVELS[level],
            "distance": distance,
            "reason": reason,
        }
        for mine, part, theirs, level, distance, reason in zip(
            one.hashed.names.take(pa.array(held.rows)).to_pylist(),
            held.others.tolist(),
            held.names.to_pylist(),
            held.alike.level.tolist(),
            held.alike.distance.tolist(),
            held.alike.words(),
        )
    ]


def _save(path: Path, lines: list[dict[str, Any]]) -> None:
    if lines:
        table_file.write(path, pa.Table.from_pylist(lines), {"format": "leaks", "version": 1})
    else:
        path.unlink(missing_ok=True)


def _draw(path: Path, pairs: Sequence[tuple[Part, Sequence[Part], Copies]], what: str) -> None:
    """Pairs side by side, the surest first; no sheet where there is none."""
    path.unlink(missing_ok=True)
    order = [
        (level, distance, number, at, reason)
        for number, (_, _, held) in enumerate(pairs)
        for at, (level, distance, reason) in enumerate(
            zip(held.alike.level.tolist(), held.alike.distance.tolist(), held.alike.words())
        )
    ]
    tiles: list[Tile] = []
    for _, _, number, at, reason in sorted(order)[:SHOWN]:
        one, others, held = pairs[number]
        other = others[held.others[at]]
        tiles.append((one.pictures(held.rows[[at]], sheets.SIDE)[0], one.name or "store"))
        caption = f"{other.name or 'target'}: {sheets.brief(reason)}"
        tiles.append((other.pictures(held.places[[at]], sheets.SIDE)[0], caption))
    if tiles:
        width = 2 * IN_LINE
        lines = [tiles[at : at + width] for at in range(0, len(tiles), width)]
        shown = min(len(order), SHOWN)
        sheets.lines_sheet(path, lines, f"{len(order):,} pairs {what}, {shown} of them, the surest first")


def _write_manifest(path: Path, store: Part, held: Copies, distance: int) -> None:
    n = len(store.hashed)
    kept = np.setdiff1d(np.arange(n), held.rows)
    rule = f"drop what is a copy of the target's val or test, up to {distance} of 64 bits"
    origin = manifest.Origin(rule, n, "", Stamp("", "audit", 0, 0, 0.0, 0.0, None))
    manifest.write(path, store.hashed.names.take(pa.array(kept)), kept, origin)
