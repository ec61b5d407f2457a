"""Table 3 of the paper: what eta, rho and lambda do on STL-10, to accuracy, to what is pruned and to the time.

Every combination of the grid is a run of BDW; uniform weights and L2RW stand beside it, and the authors' own
configuration where the scale has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from curate.errors import Misuse
from curate.experiments.sweep import Result
from curate.experiments.tables import paper_numbers, presets, table3_report
from curate.experiments.tables.datasets import DataSet, claim, open_stl10
from curate.experiments.tables.presets import Scale
from curate.experiments.tables.table2 import settings
from curate.experiments.tables.trials import AUTHORS, Trial, outside, run_trials
from shards.io.json_files import json_bytes, parse_json, write_json

#: The numbers of a row, beside its name and its constants.
NUMBERS = ("finetuned", "logistic", "pruned", "epoch", "epochs", "stopped", "converged", "fine_tuning")


def table3(
    data: Path,
    out: Path,
    scale: str,
    domain: str | None = None,
    *,
    processes: int = 1,
    devices: Sequence[str] = ("auto",),
    seed: int = 0,
) -> dict[str, Any]:
    """Run what an earlier call left, and write ``table3.json``, ``.md``, ``.csv`` and ``.tex``.

    Args:
        data: a folder in which `curate.experiments.tables.datasets` finds STL-10's binary files.
        out: tables, and all that they come from.
        scale: a name in `scales.SCALES`.
        domain: which of several data sets of that layout; None for the only one.
        processes: cells at a time.
        devices: taken in turn by the cells.
        seed: of splits, trainings and fine-tunings.

    Returns:
        What table3.json says.

    Raises:
        Misuse: no such scale, not one such data set, or ``out`` holds another experiment.
        ShardError: the data cannot be used.
    """
    size = presets.of(scale)
    claim(out, size, seed)
    chosen = only_one(open_stl10(data, out, size, seed), data, domain)
    trials = trials_of(size, chosen)
    found = run_trials(trials, size, out, devices=devices, processes=processes, seed=seed)
    record: dict[str, Any] = {"table": 3, "scale": scale, "seed": seed, "set": chosen.name, **settings(size, [chosen])}
    record["rows"] = [row(trial, found[trial.scoring]) for trial in trials]
    record = parse_json(json_bytes(record))  # as it reads back
    write_json(out / "table3.json", record)
    table3_report.write(out, record)
    return record


def only_one(sets: Mapping[str, DataSet], data: Path, name: str | None) -> DataSet:
    """The data set of that name, or the only one.

    Raises:
        Misuse: it is not there, or there are several to choose from.
    """
    fitting = [each for each in sets if name in (None, each)]
    if len(fitting) != 1:
        asked, found = name or "one folder of STL-10's binary files", ", ".join(sets) or "none"
        raise Misuse(f"--data {data}: expected {asked}, found {found}; name one with --domains")
    return sets[fitting[0]]


def trials_of(scale: Scale, data: DataSet) -> list[Trial]:
    """The grid in the paper's order, then what prunes nothing, then the authors' own."""
    grid = scale.table3
    trials = [
        Trial(f"bdw-{eta:g}-{rho:g}-{lam:g}", "bdw", data, {"eta": eta, "rho": rho, "lam": lam})
        for eta, rho, lam in product(grid.etas, grid.rhos, grid.lams)
    ]
    trials += [Trial(method, method, data) for method in ("uniform", "l2rw")]
    return [*trials, Trial("bdw-authors", "bdw", data, AUTHORS)] if scale.authors else trials


def row(trial: Trial, found: Result) -> dict[str, Any]:
    """A row of table3.json; ``paper`` is the paper's, None where it has no such row."""
    constants = {name: trial.options.get(name) for name in ("eta", "rho", "lam")}
    return {
        "row": trial.name,
        "method": trial.method,
        **constants,
        **{name: found[name] for name in NUMBERS},
        "pruned_in": found["pruned_by_domain"].get(trial.data.name) if trial.data.origins else None,
        "pruned_out": outside(found, trial.data),
        "seconds": found["seconds"],
        "paper": None if trial.name == "bdw-authors" else printed(trial.method, constants),
    }


def printed(method: str, constants: Mapping[str, float | None]) -> dict[str, float] | None:
    """The paper's accuracy, share pruned and seconds of that row."""
    for line in paper_numbers.TABLE3:
        if (line.method, line.eta, line.rho, line.lam) == (paper_numbers.TABLE2_NAMES[method], *constants.values()):
            return {"finetuned": line.accuracy, "pruned": line.pruned, "seconds": line.seconds}
    return None
