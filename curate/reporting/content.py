"""Everything that a page about a run is made of, gathered from the run, its store and its target.

What is wrong with the store or the target is noted and not raised: a run outlives both.
"""

from __future__ import annotations

from dataclasses import dataclass

from curate.reporting import galleries
from curate.reporting.copies import Copies, copies
from curate.reporting.galleries import DomainRow, Gallery, Tile
from curate.reporting.reading import Reading, told
from curate.reporting.verdicts import Comparison, comparisons
from shards.indexing.index import Index
from shards.io import remote
from shards.io.mirror.place import local
from shards.store import open_index


@dataclass(frozen=True)
class Content:
    """All that a page is made of.

    Args:
        target: the one that is named in commands; empty for none.
        notes: what could not be shown, by part: ``images``, ``domains``, ``copies``.
    """

    reading: Reading
    target: str
    shown: tuple[Gallery, ...]
    tiles: dict[str, list[Tile]]
    domains: tuple[DomainRow, ...]
    copies: Copies | None
    comparisons: tuple[Comparison, ...]
    notes: dict[str, str]


def gather(reading: Reading, target: str | None) -> Content:
    """All of it.

    Args:
        target: to look for copies of, and to name; None for the run's own.

    Raises:
        CurateError: a damaged file of the run.
    """
    judged, notes = reading.judged, dict[str, str]()
    aim = str(reading.options.get("target") or "") if target is None else target
    shown: list[Gallery] = [] if judged is None else galleries.galleries(judged)
    rows: list[DomainRow] = []
    found, pictures = None, dict[str, list[Tile]]()
    store = None if judged is None else _store(reading, notes)
    if judged is not None and store is not None:
        with told(notes, "domains"):
            held = galleries.domains_of(store)
            rows = [] if held is None else galleries.by_domain(judged, held)
        with told(notes, "copies"):
            found = copies(judged, store, aim) if aim else None
        if found is not None and len(found.places):
            shown.append(_copied(found))
        with told(notes, "images"):
            pictures = galleries.tiles(judged, store, [*shown, *(one for row in rows for one in row.shown)])
    against = tuple(comparisons(reading.path))
    return Content(reading, aim, tuple(shown), pictures, tuple(rows), found, against, notes)


def _store(reading: Reading, notes: dict[str, str]) -> Index | None:
    """The index of the run's store; None where it is gone, has changed, or is not on this machine."""
    spec, index = str(reading.options.get("store")), reading.options.get("index")
    if remote.is_url(spec) and not spec.startswith("file:"):
        notes["images"] = f"the store is remote ({spec}); its images are not fetched for a page"
        return None
    with told(notes, "images"):
        store = open_index(spec, local(index) if index else None, cache_path=reading.path / "index.parquet")
        if store.fingerprint == reading.record["store"]:
            return store
        notes["images"] = f"{spec}: is no longer the store of this run; its shards have changed since"
    return None


def _copied(found: Copies) -> Gallery:
    places = found.places[: galleries.SHOWN]
    return Gallery("copies", "Kept, and among the test images", "", places, len(found.places))
