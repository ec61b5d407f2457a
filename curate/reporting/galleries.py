"""Which images of a run a page shows, and their thumbnails: by what became of them, and by domain."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from curate.data.contact_sheet import small_images, spread
from curate.reporting.reading import Judged
from curate.types import Floats, Ints, Mask, Reals
from shards.indexing import domains
from shards.indexing.domains import Domains
from shards.indexing.index import Index

#: Images in a gallery, and of each kind in that of a domain.
SHOWN, BY_DOMAIN = 24, 8
#: Domains with a gallery: those of which most was kept.
MOST_DOMAINS = 8
#: Longest side of a thumbnail, in pixels. A smaller image is shown as it is, as PNG; the others as JPEG.
SIDE, TINY = 96, 32
#: A belief is undecided where more than this lies on either side of lambda.
EITHER_SIDE = 0.1


@dataclass(frozen=True)
class Gallery:
    """Some images under a heading.

    Args:
        name: for a link to it.
        places: shape (m,), int64, places in `Judged.table`.
        count: how many there are of the kind, shown or not.
    """

    name: str
    title: str
    note: str
    places: Ints
    count: int


@dataclass(frozen=True)
class DomainRow:
    """What became of a domain.

    Args:
        images, kept: of those that were judged.
        mean: of E[w], or of the scores.
        shown: a few of the kept, a few of the pruned.
    """

    name: str
    images: int
    kept: int
    mean: float
    shown: tuple[Gallery, ...]


@dataclass(frozen=True)
class Tile:
    """An image of a gallery: its thumbnail as a data URI, None where it does not decode; what stands below it."""

    source: str | None
    key: str
    shard: str
    value: float
    kept: bool


def galleries(judged: Judged) -> list[Gallery]:
    """Kept, pruned, near the cut and undecided; those that the rule knows."""
    mean, rows = judged.beliefs.mean, np.arange(len(judged.table))
    high = rows[np.argsort(-mean, kind="stable")]
    kept, pruned = high[(judged.kept & judged.decodes)[high]], high[::-1][judged.pruned[high[::-1]]]
    found = [
        Gallery("kept", "Kept", "evenly over their rank, the highest first", spread(kept, SHOWN), len(kept)),
        Gallery("pruned", "Pruned", "evenly over their rank, the lowest first", spread(pruned, SHOWN), len(pruned)),
    ]
    if judged.cut:
        found += [_near_the_cut(judged), *_undecided(judged)]
    return found


def by_domain(judged: Judged, held: Domains) -> list[DomainRow]:
    """A row a domain, first the one of which most images were kept.

    Args:
        held: of every row of the store.
    """
    codes, mean = held.codes[judged.beliefs.rows], judged.beliefs.mean
    counts, kept = (np.bincount(part, minlength=len(held.names)) for part in (codes, codes[judged.kept]))
    there = np.flatnonzero(counts).tolist()
    order = sorted(there, key=lambda code: (-kept[code], -counts[code], held.names[code]))
    rows = []
    for number, code in enumerate(order):
        own = np.flatnonzero(codes == code)
        shown = tuple(_of_domain(judged, own, number)) if number < MOST_DOMAINS else ()
        average = float(mean[own].mean(dtype=np.float64))
        rows.append(DomainRow(held.names[code], len(own), int(kept[code]), average, shown))
    return rows


def domains_of(index: Index) -> Domains | None:
    """The domains on record for a store; None where there are none.

    Raises:
        ShardError: they are damaged, or of other shards.
    """
    return domains.load(index) if domains.beside(Path(index.root)).is_file() else None


def tiles(judged: Judged, index: Index, shown: Sequence[Gallery]) -> dict[str, list[Tile]]:
    """The tiles of each gallery, by its name; an image that is in several is read once.

    Raises:
        ShardsChanged: a shard of the store is gone, or shorter than its index says.
    """
    wanted = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.places for one in shown)]))
    pictures = small_images(index, judged.beliefs.rows[wanted], SIDE)
    sources = {place: None if one is None else data_uri(one) for place, one in zip(wanted.tolist(), pictures)}
    names = judged.table.select(["shard", "key", "mean", "kept"])
    return {
        one.name: [
            Tile(sources[place], row["key"], row["shard"], row["mean"], row["kept"])
            for place, row in zip(one.places.tolist(), names.take(one.places).to_pylist())
        ]
        for one in shown
    }


def data_uri(picture: Image.Image) -> str:
    """A thumbnail for the page itself; the same picture gives the same letters."""
    file, form = io.BytesIO(), "png" if max(picture.size) <= TINY else "jpeg"
    if form == "png":
        picture.save(file, "PNG", optimize=True)
    else:
        picture.save(file, "JPEG", quality=80)
    return f"data:image/{form};base64,{base64.b64encode(file.getvalue()).decode()}"


def _near_the_cut(judged: Judged) -> Gallery:
    away, near = np.abs(_distance(judged)), np.flatnonzero(judged.judges)
    near = near[np.argsort(away[near], kind="stable")]
    sides = [near[mask[near]][: SHOWN // 2] for mask in (judged.kept, ~judged.kept)]
    note = "those that came closest to being judged otherwise: first who just stayed, then who just went"
    return Gallery("near", "Near the cut", note, np.concatenate(sides), sum(map(len, sides)))


def _distance(judged: Judged) -> Reals:
    """How far each image is from being judged otherwise: in mass below lambda of a belief, in weight of a point."""
    if judged.beliefs.a is None:
        return np.asarray(judged.beliefs.mean, np.float64) - judged.stamp.lam
    return np.asarray(judged.table["below"].to_numpy(), np.float64) - judged.stamp.rho


def _undecided(judged: Judged) -> Iterator[Gallery]:
    a, b = judged.beliefs.a, judged.beliefs.b
    if a is None or b is None:
        return
    below = judged.table["below"].to_numpy()
    open_still: Mask = judged.decodes & (below > EITHER_SIDE) & (below < 1 - EITHER_SIDE)
    places = np.flatnonzero(open_still)
    widest = places[np.argsort(-_deviation(a, b)[places], kind="stable")]
    note = f"at least {EITHER_SIDE:.0%} of the belief lies on either side of {judged.stamp.lam:g}; the widest first"
    yield Gallery("undecided", "Undecided", note, widest[:SHOWN], len(widest))


def _deviation(a: Floats, b: Floats) -> Reals:
    """Of Beta(a, b)."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    whole = wide_a + wide_b
    return np.asarray(np.sqrt(wide_a * wide_b / (whole + 1)) / whole)


def _of_domain(judged: Judged, own: Ints, number: int) -> Iterator[Gallery]:
    high = own[np.argsort(-judged.beliefs.mean[own], kind="stable")]
    for name, mask in (("kept", judged.kept & judged.decodes), ("pruned", judged.pruned)):
        places = high[mask[high]]
        yield Gallery(f"domain-{number}-{name}", name, "", spread(places, BY_DOMAIN), len(places))
