"""What the files of a run say, read once, for a page about it. No torch, and nothing of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.config.catalogue import SELECTORS
from curate.errors import CurateError
from curate.ledger import ledger, manifest, pruner
from curate.ledger.metrics import read_metrics
from curate.runs import provenance
from curate.types import Beliefs, Mask, Stamp
from shards.errors import Error
from shards.io.json_files import convert, parse_json
from shards.rewriting.marker import MARKER


@dataclass(frozen=True)
class Epoch:
    """An epoch of the ledger.

    Args:
        live: images when it began.
        kept: after it, those that returned among them.
        mean: of E[w], or of the scores, over the live; None of no image.
    """

    number: int
    live: int
    kept: int
    mean: float | None


@dataclass(frozen=True)
class Judged:
    """The last state of every image that a run has judged.

    Args:
        table: columns of `curate.ledger.ledger.FINAL_SCHEMA`, sorted by row.
        beliefs: of the same rows.
        kept: shape (n,).
        stamp: of the last epoch.
        rule: of its manifest.
        facts: what a selector found out, of a run or before its first epoch.
        judges: shape (n,): who was judged by its weight: visited, or told of by a prior.
    """

    table: pa.Table
    beliefs: Beliefs
    kept: Mask
    stamp: Stamp
    rule: str
    facts: dict[str, float]
    judges: Mask

    @property
    def cut(self) -> bool:
        """Whether images go for their weight at all."""
        return self.rule.startswith("prune when")

    @cached_property
    def decodes(self) -> Mask:
        """Shape (n,): who could be judged."""
        return pruner.decodable(self.beliefs)

    @cached_property
    def pruned(self) -> Mask:
        """Shape (n,): who went, though the image decodes."""
        return np.asarray(~self.kept & self.decodes)


@dataclass(frozen=True)
class Reading:
    """A run, as far as it has come.

    Args:
        path: its folder.
        record: what run.json holds.
        epochs: of the ledger.
        judged: None where no epoch is done, or where nothing is judged: of a plain pre-training.
        metrics: the lines of metrics.jsonl.
        finished: whether all that was asked for is there.
    """

    path: Path
    record: dict[str, Any]
    epochs: list[Epoch]
    judged: Judged | None
    metrics: list[dict[str, Any]]
    finished: bool

    @property
    def options(self) -> dict[str, Any]:
        """The run's configuration, by name."""
        options: dict[str, Any] = self.record["configuration"]
        return options

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.options.get("method"))

    @property
    def selects(self) -> bool:
        """Whether it trained nothing."""
        return self.method in SELECTORS

    @property
    def prior(self) -> str:
        """What was believed before the first epoch, as the run was told; empty where that was nothing."""
        return str(self.options.get("prior")) if self.epochs and self.epochs[0].number == 0 else ""

    @property
    def seconds(self) -> dict[str, float]:
        """Of all epochs, by stage, in the order in which they come."""
        found: dict[str, float] = {}
        for line in self.metrics:
            for stage, value in line["seconds"].items():
                found[stage] = found.get(stage, 0.0) + value
        return {stage: round(value, 3) for stage, value in found.items()}


def read(run: Path) -> Reading:
    """Read a run, finished or not; one that is being written is read as far as its epochs are whole.

    Raises:
        CurateError: no run, or a file of it is damaged.
        Unfinished: a partition of the ledger is cut.
    """
    record = provenance.read_run(run)
    _check_options(run, record)
    metrics = [parse_json(line) for line in read_metrics(run)]
    epochs = [_epoch(run, number) for number in ledger.epochs(run)]
    if epochs:
        finished = (run / "curated" / MARKER).is_file() and (run / "weights.parquet").is_file()
        return Reading(run, record, epochs, _judged(run, epochs), metrics, finished)
    wanted = record["configuration"].get("epochs")
    return Reading(run, record, [], None, metrics, bool(metrics) and len(metrics) == wanted)


def _epoch(run: Path, number: int) -> Epoch:
    table = ledger.read_epoch(run, number)
    live, kept = ledger.live_in(table), pc.sum(table["kept"]).as_py() or 0
    return Epoch(number, int(live.sum()), kept, pc.mean(table["mean"].filter(pa.array(live))).as_py())


def _judged(run: Path, epochs: list[Epoch]) -> Judged:
    first, last = epochs[0].number, epochs[-1].number
    table, stamp = ledger.final(run, last), ledger.stamp_of(run, last)
    beliefs, place = ledger.beliefs_of(table), manifest.path_of(run, last)
    rule = pruner.rule_in_words(beliefs, stamp.lam, stamp.rho)
    if place.is_file():  # else the run was stopped between the two
        rule = manifest.read(place)[1].rule
    kept, judges = table["kept"].to_numpy(), beliefs.visits > 0
    judges = pruner.decodable(beliefs) & (judges | ledger.has_prior(run))
    return Judged(table, beliefs, kept, stamp, rule, ledger.facts_of(run, first), judges)


@dataclass(frozen=True)
class _Options:
    """The options that a page looks into; the others are shown as they are."""

    store: str | None
    method: str
    seed: int
    target: str | None = None
    index: str | None = None


def _check_options(run: Path, record: dict[str, Any]) -> None:
    try:
        convert(record["configuration"], _Options)
    except ValueError as error:
        raise CurateError(f"{run / 'run.json'}: is not as it was written ({error}); restore it") from error


@contextmanager
def told(notes: dict[str, str], part: str) -> Iterator[None]:
    """Let a part of a page fail alone: what went wrong is noted under its name, and stands there instead."""
    try:
        yield
    except (Error, OSError) as error:
        notes[part] = " ".join(str(error).split())
