"""A run's ledger in a few numbers an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import pyarrow.compute as pc

from curate.ledger import ledger


class EpochSummary(TypedDict):
    """One epoch of a ledger.

    Args:
        epoch: its number, from 1.
        live: images that were live in it, those that do not decode among them.
        kept: images that are live after it.
        mean: of the expected weights of the live ones; None where there is none.
        undecodable: images that do not decode.
    """

    epoch: int
    live: int
    kept: int
    mean: float | None
    undecodable: int


def by_epoch(run: Path) -> list[EpochSummary]:
    """A row an epoch, in order; reads one epoch at a time.

    Raises:
        CurateError, Unfinished: a partition is missing or damaged.
    """
    return [_summary(run, epoch) for epoch in ledger.epochs(run)]


def _summary(run: Path, epoch: int) -> EpochSummary:
    table = ledger.read_epoch(run, epoch, ["mean", "kept", "error"])
    return {
        "epoch": epoch,
        "live": len(table),
        "kept": pc.sum(table["kept"]).as_py() or 0,
        "mean": pc.mean(table["mean"]).as_py(),
        "undecodable": len(table) - table["error"].null_count,
    }
