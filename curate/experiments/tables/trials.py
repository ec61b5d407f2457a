"""What a method is worth to a target: train on the source under it, score the network that it trained.

The cells of tables 2 and 3. A training is done once, however many targets its network is scored on: with uniform
weights that is one a source. Everything is resumable: cells, and inside them runs and fine-tunings.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from curate.config.catalogue import METHODS
from curate.config.defaults import applicable, paper
from curate.config.schema import PAPER, from_options
from curate.errors import NonFinite, NothingLeft
from curate.evaluation.evaluate import Protocol, evaluate, finetune
from curate.evaluation.grid import Grid
from curate.experiments.sweep import Result, run_cells
from curate.experiments.tables import presets
from curate.experiments.tables.datasets import DataSet
from curate.experiments.tables.presets import Options, Scale
from curate.ledger import ledger
from curate.ledger.metrics import read_metrics, seconds_spent
from curate.runs import checkpoint
from curate.runs.run import run
from shards.indexing import domains
from shards.io.json_files import parse_json
from shards.store import open_index

#: The configuration in the authors' code for STL-10 (docs/method.md section 9), a row of its own beside the paper's.
AUTHORS: Options = {**PAPER, "eta": 1.0, "meta_momentum": 0.9, "lam": 0.1, "rho": 0.5}
#: Why a training ended before its last epoch.
NOTHING_LEFT, DIVERGED = "nothing left", "diverged"


@dataclass(frozen=True)
class Trial:
    """A method on a data set.

    Args:
        name: of the row that it is a number of; the same for all data sets.
        method: of `curate.methods`.
        options: what differs from paper mode.
        data: target and source.
    """

    name: str
    method: str
    data: DataSet
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def training(self) -> str:
        """Name of the cell that trains it; the same for all targets of a source where the method uses no target."""
        return f"{self.name}-{self.data.source if not METHODS.spec(self.method).needs_target else self.data.name}"

    @property
    def scoring(self) -> str:
        """Name of the cell that scores it."""
        return f"{self.name}-{self.data.name}"


@dataclass(frozen=True)
class Training:
    """A cell: a run.

    Args:
        source, target: names; no target where the method looks at none.
        options: of the run, but paths and device.
    """

    name: str
    source: str
    target: str
    options: Options


@dataclass(frozen=True)
class Scoring:
    """A cell: the network of a training, scored on a target.

    Args:
        training: name of the cell that trained it.
        tap, patience: of logistic regression.
        grid, seed: of fine-tuning.
    """

    name: str
    training: str
    target: str
    tap: str
    patience: int | None
    grid: Grid
    seed: int


@dataclass(frozen=True)
class Workspace:
    """Where the work is done, which changes no result.

    Args:
        out: gets ``runs/`` and ``searches/``.
        stores, targets: paths by name.
        devices: of each cell, by name.
    """

    out: Path
    stores: Mapping[str, Path]
    targets: Mapping[str, Path]
    devices: Mapping[str, str]


def run_trials(
    trials: Sequence[Trial], scale: Scale, out: Path, *, devices: Sequence[str], processes: int, seed: int
) -> dict[str, Result]:
    """Train and score every trial; by `Trial.scoring`, what `train` and `score` found.

    Args:
        out: gets ``runs/``, ``searches/``, and the finished cells in ``trainings/`` and ``scorings/``.
        devices: cells take them in turn.
        processes: cells at a time.
        seed: of all trainings.

    Raises:
        Misuse: ``out`` holds another experiment.
    """
    trainings = {trial.training: training_of(trial, scale, seed) for trial in trials}
    scorings = {trial.scoring: scoring_of(trial, scale, seed) for trial in trials}
    workspace = Workspace(
        out,
        {trial.data.source: trial.data.store for trial in trials},
        {trial.data.name: trial.data.target for trial in trials},
        in_turn(trainings, devices) | {f"score {name}": device for name, device in in_turn(scorings, devices).items()},
    )
    trained = run_cells(partial(train, workspace), trainings, out / "trainings", "trainings", processes)
    scored = run_cells(partial(score, workspace), scorings, out / "scorings", "scorings", processes)
    return {trial.scoring: _together(trained[trial.training], scored[trial.scoring]) for trial in trials}


def train(workspace: Workspace, cell: Training) -> Result:
    """Run a cell's training.

    Returns:
        ``epochs`` finished, ``stopped`` (why there are no more, or None), ``pruned``: per cent of the source,
        ``pruned_by_domain``: the same of each domain where domains are on record, ``seconds``: ``training``, and
        ``cpu``, the processor time of its steps.
    """
    out, stopped = workspace.out / "runs" / cell.name, None
    where = {"store": str(workspace.stores[cell.source]), "device": workspace.devices[cell.name]}
    if cell.target:
        where["target"] = str(workspace.targets[cell.target])
    try:
        run(from_options({**cell.options, **where}), out)
    except NothingLeft:
        stopped = NOTHING_LEFT
    except NonFinite:
        stopped = DIVERGED
    lines = [parse_json(line) for line in read_metrics(out)]
    return {
        "epochs": len(lines),
        "stopped": stopped,
        "seconds": {"training": seconds_spent(out), "cpu": round(sum(line["cpu_seconds"] for line in lines), 2)},
        **(
            pruned(out, workspace.stores[cell.source])
            if ledger.epochs(out)
            else {"pruned": None, "pruned_by_domain": {}}
        ),
    }


def pruned(out: Path, store: Path) -> Result:
    """Per cent of the store's images that a run pruned, of all and of each domain."""
    weights = ledger.final(out)
    gone, by_domain = ~weights["kept"].to_numpy(), {}
    if (store / domains.FILE_NAME).exists():
        recorded = domains.load(open_index(str(store)))
        codes = recorded.codes[weights["row"].to_numpy()]
        by_domain = {name: per_cent(gone[codes == code].mean()) for code, name in enumerate(recorded.names)}
    return {"pruned": per_cent(gone.mean()), "pruned_by_domain": by_domain}


def score(workspace: Workspace, cell: Scoring) -> Result:
    """Score a cell's network: logistic regression picks the epoch, fine-tuning starts from it.

    Returns:
        ``epoch``, ``logistic`` and ``finetuned`` (test accuracies, per cent), ``converged``, ``fine_tuning`` (the
        picked setting), and ``seconds`` of both; where the training finished no epoch None, and no seconds.
    """
    trained, target = workspace.out / "runs" / cell.training, str(workspace.targets[cell.target])
    if not checkpoint.finished(trained):
        return {**dict.fromkeys(("epoch", "logistic", "finetuned", "converged", "fine_tuning")), "seconds": {}}
    device, started = workspace.devices[f"score {cell.name}"], time.perf_counter()
    found = evaluate(trained, target, Protocol(tap=cell.tap, patience=cell.patience, device=device))
    seconds = round(time.perf_counter() - started, 2)
    tuned = finetune(
        trained, target, cell.grid, workspace.out / "searches" / cell.name, cell.seed, device, epoch=found.epoch
    )
    return {
        "epoch": found.epoch,
        "logistic": per_cent(found.test_accuracy),
        "converged": found.converged,
        "finetuned": per_cent(tuned.test_accuracy),
        "fine_tuning": f"{tuned.cell.name}, {tuned.epochs} epochs",
        "seconds": {"logistic": seconds, "finetuned": tuned.seconds},
    }


def outside(found: Result, data: DataSet) -> float | None:
    """Per cent pruned of the images that are of none of the target's classes; None where origins are not on record."""
    shares = [share for name, share in found["pruned_by_domain"].items() if name != data.name]
    return shares[0] if data.origins and shares else None


def per_cent(share: float | np.floating[Any]) -> float:
    """A share in [0, 1] as per cent with two decimals."""
    return round(100 * float(share), 2)


def training_of(trial: Trial, scale: Scale, seed: int) -> Training:
    """The cell of a trial's training: paper mode, but for the trial's own options."""
    method, domain = trial.method, trial.data.domain
    options = presets.training_options(scale, domain) | paper(method) | applicable(method, dict(trial.options))
    target = ""
    if METHODS.spec(method).needs_target:
        options |= presets.episode_options(scale, domain)
        target = trial.data.name
    return Training(trial.training, trial.data.source, target, {**options, "method": method, "seed": seed})


def scoring_of(trial: Trial, scale: Scale, seed: int) -> Scoring:
    """The cell of a trial's scores."""
    tap = presets.tap(scale, trial.data.domain)
    return Scoring(trial.scoring, trial.training, trial.data.name, tap, scale.patience, scale.grid, seed)


def in_turn(names: Iterable[str], devices: Sequence[str]) -> dict[str, str]:
    """A device for each cell, taken in turn."""
    return {name: devices[position % len(devices)] for position, name in enumerate(names)}


def _together(trained: Result, scored: Result) -> Result:
    return trained | scored | {"seconds": trained["seconds"] | scored["seconds"]}
