"""Looks for duplicates in a store, says of every group who stays, and writes what a cut or soft weights need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.duplicates import found, levels, sheets
from curate.duplicates.hash_table import Hashed, taken
from curate.duplicates.keep import order_by
from curate.duplicates.parts import Part, whole
from curate.duplicates.sheets import Tile
from curate.ledger import manifest, table_file
from curate.types import Floats, Ints, Stamp
from shards.indexing.index import Index

TABLE, MANIFEST, SOFT, SHEET = "duplicates.parquet", "manifest.parquet", "weights.parquet", "duplicates.png"
#: Groups on the sheet, the largest first, and images of each.
SHOWN, TILES = 24, 8
#: Why one stays, by the rule.
WHY = {"largest": "the largest", "first": "the first", "highest-weight": "of the highest weight"}

#: From ranks to representatives and their distances, by features; see `curate.duplicates.semantic`.
Semantic = Callable[[Ints], tuple[Ints, Floats]]


@dataclass(frozen=True)
class Choice:
    """What counts as a duplicate, and which of several stays.

    Args:
        level: the least sure level that counts, of `levels.LEVELS`.
        distance: bits of 64 at the perceptual level.
        keep: of `keep.RULES`.
        weights: a run's weights.parquet, for ``highest-weight``.
        within: whether images of the store are compared with each other.
        soft: whether copies share a weight instead of going.
        encoder, cosine: of the semantic level, where one is asked for: what gives features, and 1 - cosine up to which
            they are alike.
    """

    level: str = "perceptual"
    distance: int = levels.DISTANCE
    keep: str = "largest"
    weights: Path | None = None
    within: bool = True
    soft: bool = False
    encoder: str | None = None
    cosine: float | None = None


@dataclass(frozen=True)
class Deduplicated:
    """What was found.

    Args:
        images: of the store.
        groups: of images that are alike, those of which one is not the store's own included.
        dropped: copies: images that go, or share a weight.
        by_level: of them, by the surest level at which each is like who stays.
        largest: images of the largest group.
        flat: images whose hash says nothing (of one colour, for one): only exact copies of them are found; 0 where
            features are compared.
        undecodable: images that do not decode, which are left as they are.
        out: the folder.
    """

    images: int
    groups: int
    dropped: int
    by_level: dict[str, int]
    largest: int
    flat: int
    undecodable: int
    out: str

    def text(self) -> str:
        """A line for people."""
        by_level = ", ".join(f"{n:,} {level}" for level, n in self.by_level.items() if n) or "none"
        parts = [
            f"{self.dropped:,} of {self.images:,} images are copies ({by_level})",
            f"{self.groups:,} group{'s' * (self.groups != 1)}, the largest of {self.largest:,}" if self.groups else "",
            f"{self.flat:,} have no look of their own (one colour, say) and were compared exactly" if self.flat else "",
            f"{self.undecodable:,} do not decode and stay" if self.undecodable else "",
        ]
        return "; ".join(part for part in parts if part)


def dedup(
    store: Part, others: Sequence[Part], choice: Choice, out: Path, workers: int, semantic: Semantic | None = None
) -> Deduplicated:
    """Find duplicates, and write ``duplicates.parquet``, a contact sheet, and a manifest or soft weights.

    Args:
        store: whose images may go.
        others: whose images stay; what of the store is like one of them goes, whatever else it is like.
        semantic: for the level of that name; then ``others`` is empty.

    Raises:
        CurateError: as `keep.order_by`.
        OSError: disk full, no permission.
    """
    everyone, part, place = whole([store, *others])
    representative, cosine = _representatives(store, everyone, choice, workers, semantic)
    n = len(store.hashed)
    sizes = np.bincount(representative, minlength=len(everyone))
    members = np.flatnonzero((sizes[representative] > 1) | (representative >= n)[:n])
    by = representative[members]
    alike = found.likeness(everyone, members, by, choice.distance, cosine[members])
    names = pa.array(["", *(other.name or "other" for other in others)])
    table = found.table_of(
        found.Named(store.hashed.names.take(pa.array(members)), members),
        np.unique(by, return_inverse=True)[1],
        found.Named(everyone.names.take(pa.array(by)), by),
        names.take(pa.array(part[by])),
        alike,
        WHY[choice.keep],
    )
    out.mkdir(parents=True, exist_ok=True)
    table_file.write(out / TABLE, table, {"format": "duplicates", "version": 1})
    _write_choice(store, representative, choice, out)
    _draw([store, *others], representative, part, place, table, out / SHEET)
    copies = by != members
    error = store.hashed.error
    return Deduplicated(
        images=n,
        groups=len(np.unique(by)),
        dropped=int(copies.sum()),
        by_level={name: int((copies & (alike.level == at)).sum()) for at, name in enumerate(levels.LEVELS)},
        largest=int((sizes + (np.arange(len(sizes)) >= n))[by].max(initial=0)),
        flat=int(((error == 0) & store.hashed.look.flat).sum()) if semantic is None else 0,
        undecodable=int((error != 0).sum()),
        out=str(out),
    )


def _representatives(
    store: Part, everyone: Hashed, choice: Choice, workers: int, semantic: Semantic | None
) -> tuple[Ints, Floats]:
    """Of each image of the store, a place in ``everyone``; and the distance of features, NaN where none was taken."""
    assert isinstance(store.source, Index)
    n, exact = len(store.hashed), choice.level == "exact"
    order = order_by(choice.keep, store.hashed, store.source, choice.weights)
    if semantic is not None:
        return semantic(order)
    representative = np.arange(n)
    if len(everyone) > n:
        level = "exact" if exact else "perceptual"
        near = levels.nearest_of_other(everyone, len(everyone) - n, level, choice.distance, workers).place[:n]
        representative = np.where(near >= 0, near, representative)
    if choice.within:
        left = np.flatnonzero(representative < n)
        held, rank = taken(store.hashed, left), np.argsort(np.argsort(order[left]))
        groups = (
            levels.exact_groups(held, rank) if exact else levels.perceptual_groups(held, rank, choice.distance, workers)
        )
        representative[left] = left[groups]
    return representative, np.full(n, np.nan, np.float32)


def _write_choice(store: Part, representative: Ints, choice: Choice, out: Path) -> None:
    """The manifest of what stays; of soft weights, 1 / images of the group for each."""
    n, names = len(representative), store.hashed.names
    stale = out / (MANIFEST if choice.soft else SOFT)
    stale.unlink(missing_ok=True)
    if choice.soft:
        _, group, size = np.unique(representative, return_inverse=True, return_counts=True)
        others = np.bincount(group, representative >= n) > 0  # an image that is not the store's shares, too
        columns = {name: names[name] for name in ("shard", "key")}
        weights = pa.table({**columns, "row": np.arange(n), "mean": 1.0 / (size + others)[group]})
        table_file.write(out / SOFT, weights, {"format": "soft weights", "version": 1})
        return
    kept = np.flatnonzero(representative == np.arange(n))
    rule = f"drop {choice.level} duplicates, keep {WHY[choice.keep]}"
    origin = manifest.Origin(rule, n, "", Stamp("", "dedup", 0, 0, 0.0, 0.0, None))
    manifest.write(out / MANIFEST, names.take(pa.array(kept)), kept, origin)


def _draw(parts: Sequence[Part], representative: Ints, part: Ints, place: Ints, table: pa.Table, path: Path) -> None:
    """The largest groups, a line each, who stays on the left; no sheet where there is none."""
    path.unlink(missing_ok=True)
    if not len(table):
        return
    row, reasons = table["row"].to_numpy(), table["reason"].to_pylist()
    by = representative[row]
    names, first, sizes = np.unique(by, return_index=True, return_counts=True)
    shown = names[np.lexsort((first, -sizes))][:SHOWN]
    lines: list[list[Tile]] = []
    for one in shown.tolist():
        copies = [at for at in np.flatnonzero(by == one).tolist() if row[at] != one][: TILES - 1]
        head = parts[part[one]].pictures(place[[one]], sheets.SIDE)
        rest = parts[0].pictures(row[copies], sheets.SIDE)
        lines.append([(head[0], "stays"), *zip(rest, (sheets.brief(reasons[at]) for at in copies))])
    title = f"{len(names):,} groups, the {len(lines)} largest; on the left who stays"
    sheets.lines_sheet(path, lines, title)
