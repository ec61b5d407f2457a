"""Table 2 of the paper: features learned under four weightings of one source, scored on many targets.

Each network is the one that its method trained, as in the paper. Owns which methods are run and what table2.json says;
how that is shown is `table2_report`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curate.experiments import ranking
from curate.experiments.sweep import Result
from curate.experiments.tables import presets, table2_report
from curate.experiments.tables.datasets import DataSet, open_datasets
from curate.experiments.tables.presets import Scale
from curate.experiments.tables.trials import AUTHORS, Trial, run_trials
from curate.stats.comparison import write_comparison
from shards.io.json_files import json_bytes, parse_json, write_json

#: The paper's methods, in its order; the authors' own configuration stands beside the table.
METHODS = ("uniform", "nn", "l2rw", "bdw")
AUTHORS_ROW = "bdw-authors"
PROTOCOLS = ("logistic", "finetuned")
#: What of `transfer` goes into the JSON.
NUMBERS = (*PROTOCOLS, "pruned", "seconds", "epoch", "epochs", "stopped", "converged", "fine_tuning")


def table2(
    data: Path,
    out: Path,
    scale: str,
    domains: Sequence[str] | None = None,
    *,
    processes: int = 1,
    devices: Sequence[str] = ("auto",),
    seed: int = 0,
) -> dict[str, Any]:
    """Run what an earlier call left, and write ``table2.json``, ``.md``, ``.csv``, ``.tex`` and the diagrams.

    Args:
        data: `curate.experiments.tables.datasets` says what it may hold.
        out: tables, and all that they come from.
        scale: a name in `scales.SCALES`.
        domains: data sets; None for all there are.
        processes: cells at a time.
        devices: taken in turn by the cells.
        seed: of splits, trainings and fine-tunings.

    Returns:
        What table2.json says.

    Raises:
        Misuse: no such scale or data set, or ``out`` holds another experiment.
        ShardError: the data cannot be used.
    """
    size = presets.of(scale)
    sets = open_datasets(data, out, size, seed, domains)
    trials = [Trial(method, method, each) for method in METHODS for each in sets]
    if size.authors:
        trials += [Trial(AUTHORS_ROW, "bdw", each, AUTHORS) for each in sets]
    found = run_trials(trials, size, out, devices=devices, processes=processes, seed=seed)
    record: dict[str, Any] = {
        "table": 2,
        "scale": scale,
        "seed": seed,
        **settings(size, sets),
        **results(trials, found),
    }
    record = parse_json(json_bytes(record))  # as it reads back
    write_json(out / "table2.json", record)
    table2_report.write(out, record)
    for protocol in PROTOCOLS:
        comparison = ranking.compared(record[protocol])
        if comparison is not None:
            write_comparison(out / protocol, ranking.score_table(record[protocol]), comparison)
    return record


def settings(scale: Scale, sets: Sequence[DataSet]) -> dict[str, Any]:
    """The settings and the data sets of table2.json."""
    return {
        "unit": "per cent",
        "settings": {key: value for key, value in asdict(scale).items() if key not in ("few", "table3")},
        "data": {each.name: {"source": each.source, **each.images, "full": each.full} for each in sets},
    }


def results(trials: Sequence[Trial], found: Mapping[str, Result]) -> dict[str, Any]:
    """The numbers of the table; those of the authors' configuration under ``extras``.

    Returns:
        ``logistic`` and ``finetuned``: method -> data set -> test accuracy; ``average``, ``ranks``, ``decathlon``,
        ``comparison``: protocol -> what follows from them; ``pruned``, ``seconds`` and what `transfer` found besides,
        method -> data set.
    """
    rows: dict[str, dict[str, Result]] = {}
    for trial in trials:
        rows.setdefault(trial.name, {})[trial.data.name] = found[trial.scoring]
    own = columns({name: row for name, row in rows.items() if name in METHODS})
    extras = columns({name: row for name, row in rows.items() if name not in METHODS})
    return own | standing(own) | {"extras": extras}


def columns(rows: Mapping[str, Mapping[str, Result]]) -> dict[str, Any]:
    """The same results with the number first: number -> method -> data set -> value."""
    return {
        key: {method: {name: one[key] for name, one in row.items()} for method, row in rows.items()} for key in NUMBERS
    }


def standing(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Means, mean ranks, tests and decathlon points of the accuracies, by protocol."""
    compared = {protocol: ranking.compared(scores[protocol]) for protocol in PROTOCOLS}
    return {
        "average": {protocol: ranking.averages(scores[protocol]) for protocol in PROTOCOLS},
        "ranks": {protocol: ranking.mean_ranks(scores[protocol]) for protocol in PROTOCOLS},
        "decathlon": {protocol: ranking.decathlon(scores[protocol]) for protocol in PROTOCOLS},
        "comparison": {protocol: found and asdict(found) for protocol, found in compared.items()},
    }
