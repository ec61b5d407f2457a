"""What scripts/gpu_check measures on the card itself: how well faster arithmetics agree, and a short real run.

usage: python scripts/gpu_parts.py agreement|run --json FILE [--device cuda] [--quick] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import benchmarks
import torch
from benchmarks import Workload

from curate.config.schema import from_options
from curate.runs.run import run
from curate.training import engine, precision

RESNET18 = Workload("resnet18", 84, 32, 10, 10, 10)
RESNET34 = Workload("resnet34", 64, 64, 20, 5, 5)
TOY = Workload("small", 16, 4, 2, 3, 3)
#: Plain steps before the agreement is measured: a network at its start is not where a run spends its time.
TRAINED = 20


def agreement(device: torch.device, quick: bool, data: Path | None) -> dict[str, Any]:
    """Cosine and relative error of bf16's and TF32's meta-gradient with float32's, early and after some steps."""
    found: dict[str, Any] = {}
    for workload in [TOY] if quick else [RESNET18, RESNET34]:
        setup = benchmarks.open_setup(workload, device)
        batches = benchmarks.noise_batches(setup)
        state = benchmarks.begin(setup, "bdw")
        setup.bare.train()
        for name in ("start", "trained"):
            found[f"{workload.network} {name}"] = _agreement(setup, state, batches[0])
            benchmarks.engine_steps(setup, state, batches * (TRAINED // len(batches)))
    return benchmarks.conditions(device) | {"steps": TRAINED, "with_float32": found}


def _agreement(setup: engine.Setup, state: engine.State, batch: Any) -> dict[str, dict[str, float]]:
    def meta_gradient(arithmetic: str) -> torch.Tensor:
        precision.use(arithmetic)
        half = torch.bfloat16 if arithmetic == "bf16" else None
        return engine.meta_gradient(replace(setup, autocast=half), state, batch).double()

    setup.network.train()
    exact, found = meta_gradient("float32"), {}
    for name in ("tf32", "bf16"):
        h = meta_gradient(name)
        error = float((h - exact).norm() / exact.norm())
        found[name] = {"cosine": precision.cosine(h, exact), "relative_error": error}
    precision.use("float32")
    return found


def real_run(device: torch.device, quick: bool, data: Path | None) -> dict[str, Any]:
    """Two epochs of `curate run` on the packed store, every default but the sizes."""
    if data is None:
        raise SystemExit("gpu_parts run: needs --data: a folder with source/ and target/ shards")
    options: dict[str, Any] = {"store": str(data / "source"), "target": str(data / "target"), "device": str(device)}
    options |= {"epochs": 2, "rewrite": "end"}
    if quick:
        options |= {"size": 18, "crop": 16, "batch": 64, "ways": 5, "shots": 2, "workers": 0}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        summary = run(from_options(options), Path(folder) / "run")
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
        machine = json.loads((Path(folder) / "run" / "run.json").read_text())["machine"]
    return benchmarks.conditions(device) | {
        "seconds": round(time.perf_counter() - started, 2),
        "examples": summary.examples,
        "kept": summary.kept,
        "arithmetic": machine,
        "epochs": [json.loads(line) for line in lines],
    }


PARTS = {"agreement": agreement, "run": real_run}


def main() -> None:
    """One part -> its JSON."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device", default="cuda", type=torch.device)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    figures = PARTS[given.part](given.device, given.quick, given.data)
    given.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
