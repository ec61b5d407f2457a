"""A run's ledger in a few numbers an epoch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.ledger import ledger
from shards.indexing.domains import Domains


class EpochSummary(TypedDict):
    """One epoch of a ledger, of all its images or of those of one domain.

    Args:
        epoch: its number, from 1.
        domain: of the images, where they are summed by it.
        live: images that were live in it, those that do not decode among them.
        kept: images that are live after it, those that returned among them.
        mean: of the expected weights of the live ones; None where there is none.
        undecodable: images that do not decode.
    """

    epoch: int
    domain: NotRequired[str]
    live: int
    kept: int
    mean: float | None
    undecodable: int


def by_epoch(run: Path) -> list[EpochSummary]:
    """A row an epoch, in order; reads some rows at a time.

    Raises:
        CurateError, Unfinished: a partition is missing or damaged.
    """
    columns = ["mean", "kept", "error"]
    return [_counted(ledger.groups(run, epoch, columns), epoch) for epoch in ledger.epochs(run)]


def by_epoch_and_domain(run: Path, domains: Domains) -> list[EpochSummary]:
    """A row an epoch and domain, in order of the epochs, then of names; a domain without live images has zeros.

    Args:
        domains: of the rows of the run's store.

    Raises:
        CurateError, Unfinished: as `by_epoch`.
    """
    found: list[EpochSummary] = []
    for epoch in ledger.epochs(run):
        table = ledger.read_epoch(run, epoch)
        codes = domains.codes[table["row"].to_numpy()]
        for code in np.argsort(domains.names):
            found.append({**_counted([table.filter(pa.array(codes == code))], epoch), "domain": domains.names[code]})
    return found


def _counted(groups: Iterable[pa.Table], epoch: int) -> EpochSummary:
    """The numbers of an epoch from groups of its rows."""
    rows = live = kept = decodable = 0
    weights = 0.0
    for group in groups:
        was_live = ledger.live_in(group)
        rows += len(group)
        live += int(was_live.sum())
        kept += pc.sum(group["kept"]).as_py() or 0
        weights += pc.sum(group["mean"].filter(pa.array(was_live))).as_py() or 0.0
        decodable += group["error"].null_count
    mean = weights / live if live else None
    return {"epoch": epoch, "live": live, "kept": kept, "mean": mean, "undecodable": rows - decodable}
