"""What scripts/gpu_check measures of the whole method on a card: STL-10's layout at the paper's geometry.

usage: python scripts/gpu_parts_downstream.py --json FILE --data FOLDER [--device cuda] [--quick]

FOLDER holds `imagenette96/` and `make_stl10.py`, which writes STL-10's binary files of it. Uniform weights, L2RW and
BDW under two pruning settings are trained for as many epochs as fit into `SECONDS`, the same for all, and scored.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import benchmarks
import torch

from curate.evaluation.grid import Cell, Grid
from curate.experiments.tables import presets
from curate.experiments.tables import trials as transfer
from curate.experiments.tables.datasets import DataSet, open_stl10
from curate.experiments.tables.presets import Scale
from curate.experiments.tables.trials import Trial
from curate.ledger.metrics import read_metrics

#: For the trainings together, and the most epochs the paper has.
SECONDS, EPOCHS = 150, 35
#: The cost of an epoch of the four trainings in epochs of BDW: uniform weights take a third, nothing is pruned yet.
SHARE = 3.4
#: The rows: name, method, and what differs from paper mode.
ROWS: tuple[tuple[str, str, dict[str, float]], ...] = (
    ("uniform", "uniform", {}),
    ("l2rw", "l2rw", {}),
    ("bdw-10-0.5-0.25", "bdw", {"eta": 10.0, "rho": 0.5, "lam": 0.25}),
    ("bdw-100-0.5-0.1", "bdw", {"eta": 100.0, "rho": 0.5, "lam": 0.1}),
)
#: The paper's sizes with little fine-tuning; and toy sizes.
PAPER = replace(
    presets.SCALES["paper"], grid=Grid((Cell(1e-4, 1e-4, 5),), epochs=20), training={}, patience=5, authors=False
)
TOY = replace(
    presets.SCALES["smoke"],
    source=64,
    training={**presets.SCALES["smoke"].training, "size": 18, "crop": 16, "batch": 32},
)


def downstream(data: Path, device: str, quick: bool) -> dict[str, Any]:
    """Data, a trial epoch, the trainings, the scores."""
    scale = TOY if quick else PAPER
    with tempfile.TemporaryDirectory() as folder:
        here, started = Path(folder), time.perf_counter()
        (chosen,) = open_stl10(binaries(data, here / "binaries"), here, scale, seed=0).values()
        prepared = time.perf_counter() - started
        epochs = 2 if quick else epochs_that_fit(chosen, scale, here / "trial", device)
        scale = replace(scale, training={**scale.training, "epochs": epochs})
        trials = [Trial(name, method, chosen, options) for name, method, options in ROWS]
        found = transfer.run_trials(trials, scale, here, devices=[device], processes=1, seed=0)
        rows = [figures(trial, found[trial.scoring], here / "runs" / trial.training) for trial in trials]
    return benchmarks.conditions(torch.device(device)) | {
        "seconds": {"data": round(prepared, 1), "all": round(time.perf_counter() - started, 1)},
        "geometry": presets.training_options(scale, chosen.domain) | presets.episode_options(scale, chosen.domain),
        "images": chosen.images,
        "epochs": epochs,
        "rows": rows,
    }


def binaries(data: Path, out: Path) -> Path:
    """STL-10's files of the photographs, with their origins beside them; the folder above."""
    made = out / "imagenette96"
    subprocess.run(
        [sys.executable, str(data / "make_stl10.py"), str(data / "imagenette96"), str(made)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.copy(data / "imagenette96" / "origin.csv", made)
    return out


def epochs_that_fit(data: DataSet, scale: Scale, out: Path, device: str) -> int:
    """By the time of BDW's second epoch: the first one holds what is done once."""
    short = replace(scale, training={**scale.training, "epochs": 2})
    workspace = transfer.Workspace(
        out, {data.source: data.store}, {data.name: data.target}, {f"bdw-{data.name}": device}
    )
    transfer.train(workspace, transfer.training_of(Trial("bdw", "bdw", data), short, seed=0))
    seconds = json.loads(read_metrics(out / "runs" / f"bdw-{data.name}")[-1])["seconds"]
    return max(2, min(EPOCHS, int(SECONDS / (SHARE * sum(seconds.values())))))


def figures(trial: Trial, found: dict[str, Any], run: Path) -> dict[str, Any]:
    """A row: accuracies and shares pruned in per cent, seconds, images a second, peak memory in bytes."""
    lines = [json.loads(line) for line in read_metrics(run)]
    return {
        "row": trial.name,
        **{key: found[key] for key in ("logistic", "finetuned", "pruned", "epochs", "epoch", "stopped", "seconds")},
        "pruned_in": found["pruned_by_domain"].get(trial.data.name),
        "pruned_out": transfer.outside(found, trial.data),
        "images_per_second": round(lines[-1]["images_per_second"], 1) if lines else None,
        "peak_memory": max((line["peak_memory"] or 0 for line in lines), default=None),
    }


def main() -> None:
    """Data -> its JSON."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    found = downstream(given.data, given.device, given.quick)
    given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
