"""The whole of curate on small real images in a minute or two: pack, choose, rewrite, verify, pre-train, score, draw.

Settings are those of docs/method.md, section 5: the classifier chooses, and four sets are trained on alike, with as
many steps of each. Beside it the images are weighed by BDW, and by the paper's own rule, for comparison.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from sklearn.metrics import roc_auc_score

from curate.config.schema import from_options
from curate.data.decode import Decoder
from curate.data.image_store import ImageStore, ShardView
from curate.data.target import open_target
from curate.errors import CurateError, Misuse
from curate.evaluation.evaluate import Protocol
from curate.evaluation.readings import PIXELS, Reading, read
from curate.evaluation.trained import open_trained
from curate.experiments.baselines import report, trials
from curate.experiments.baselines.report import UNTRAINED
from curate.experiments.demo import data
from curate.experiments.sweep import Result, one_thread, run_cells
from curate.ledger import ledger
from curate.progress import Bar, Progress
from curate.runs.pretrain import pretrain
from curate.runs.run import run
from curate.stats import plots
from shards.indexing import index as shard_index
from shards.io import shard_set
from shards.io.json_files import said_in, write_json
from shards.rewriting.verify import verify

#: How images are chosen without training: by one untrained network.
CHOOSE: dict[str, Any] = {"method": "classifier", "encoder": "untrained", "nets": 1, "colour": "grey"}
#: How they are weighed by BDW, by pretext.
BELIEF: dict[str, dict[str, Any]] = {
    "reconstruction": {
        "meta_loss": "self-supervised",
        "size": 16,
        "crop": 16,
        "lr": 1e-4,
        "momentum": 0.9,
        "epochs": 3,
        "batch": 64,
        "target_batch": 64,
        "eta_scale": "history",
        "eta": 1.0,
        "reference": "target",
    },
    "rotation": {
        "meta_loss": "self-supervised",
        "network": "small",
        "norm": "group",
        "width": 8,
        "colour": "grey",
        "size": 16,
        "crop": 16,
        "mirror": False,
        "lr": 0.01,
        "lr_drops": (),
        "momentum": 0.9,
        "epochs": 2,
        "batch": 32,
        "target_batch": 32,
        "eta_scale": "history",
        "eta": 1.0,
        "reference": "batch",
        "meta_average": 0.95,
        "expected_gradient": True,
    },
}
PAPER_RULE = {"eta_scale": "raw", "eta": 100.0, "reference": "none", "meta_average": 0.0, "expected_gradient": False}
#: The plain training that the sets are compared by, each for so many steps.
PRETRAIN: dict[str, Any] = {
    "pretext": "simclr",
    "network": "small",
    "width": 16,
    "stem_stride": 2,
    "colour": "grey",
    "size": 16,
    "crop": 16,
    "mirror": False,
    "batch": 64,
    "lr": 0.1,
    "schedule": "cosine",
    "workers": 0,
}
STEPS, SEEDS = 240, 3
#: Of each: labels a class, and draws of them.
LABELS, DRAWS = 5, 10
#: Where networks are read: the tap of the verdict, and another beside it.
TAPS = ("pool", "layer2:4x4")
SETS = ("raw", "random", "curated", "in_domain")


@dataclass(frozen=True)
class Training:
    """A cell: a pre-training with equal weights on a shard set, and the scores of its network."""

    shards: str
    seed: int
    steps: int
    options: dict[str, Any]


@dataclass(frozen=True)
class Weighing:
    """A cell: a run of BDW on the store."""

    name: str
    seed: int
    options: dict[str, Any]


def demo(out: Path, pretext: str = "reconstruction", seed: int = 0) -> dict[str, Any]:
    """Run the demo in ``out``, or what an earlier call left of it; returns what results.json holds.

    Args:
        pretext: of the weighing by BDW.

    Raises:
        Misuse: ``out`` holds something else, or a demo with other settings.
        CurateError: the curated shards do not verify.
    """
    clock = Clock()
    one_thread()
    claim(out, {"demo": "a twentieth", "pretext": pretext, "seed": seed})
    data.pack(out, seed)
    clock.lap("pack")
    index = shard_index.build(shard_set.resolve(out / "source"))[0]
    select(out, CHOOSE, "run", seed, Bar("classifier"))
    prove(out / "run" / "curated", index)
    clock.lap("classifier")
    chosen = ledger.read_final(out / "run")
    subsets(out, index, chosen, seed)
    done = compute(out, pretext, seed)
    clock.lap("trainings")
    figures(out, chosen, ledger.read_final(out / "bdw"), index)
    results = {
        **by_domain(out, chosen),
        **scores(done),
        "seconds": clock.seconds | {"total": round(sum(clock.seconds.values()), 1)},
        "cpu_seconds": clock.cpu | costs(done),
        "steps": STEPS,
        "labels": LABELS,
        "seeds": SEEDS,
        "source": len(index),
        "kept": int(np.count_nonzero(chosen["kept"])),
        "bdw": by_domain(out, ledger.read_final(out / "bdw")),
        "paper_rule": by_domain(out, ledger.read_final(out / "paper-rule")),
        "pretext": pretext,
        "seed": seed,
    }
    write_json(out / "results.json", results)
    return results


class Clock:
    """Wall-clock seconds and this process's CPU seconds of each part of the demo."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._last = time.perf_counter(), time.process_time()

    def lap(self, part: str) -> None:
        """Record the seconds since the last call as those of ``part``."""
        now = time.perf_counter(), time.process_time()
        self.seconds[part], self.cpu[part] = (round(b - a, 2) for a, b in zip(self._last, now))
        self._last = now


def select(out: Path, options: dict[str, Any], name: str, seed: int, progress: Progress | None = None) -> None:
    """Run ``curate run`` on the demo's store and target with ``options``, in ``out``/NAME."""
    where = {"store": str(out / "source"), "target": str(out / "target"), "seed": seed, "workers": 0}
    run(from_options(options | where), out / name, progress)


def prove(curated: Path, index: shard_index.Index) -> None:
    """Verify the curated shards against the store.

    Raises:
        CurateError: a fault, the first one named.
    """
    faults = verify(curated, index)
    if faults:
        raise CurateError(f"{curated}: does not verify: {faults[0]}")


def subsets(out: Path, index: shard_index.Index, chosen: pa.Table, seed: int) -> None:
    """Write the shard sets for comparison: as many random images as were kept, one set a seed, and all digits."""
    kept = int(np.count_nonzero(chosen["kept"]))
    digits = np.flatnonzero(data.domains_of(out, index.table["key"]) == "digit")
    for number in range(SEEDS):
        if not (out / f"random-{number}").exists():
            trials.random_subset(index, kept, seed + number, out / f"random-{number}")
    if not (out / "in_domain").exists():
        trials.subset(index, digits, out / "in_domain")


def compute(out: Path, pretext: str, seed: int) -> dict[str, Result]:
    """Results of all cells, two at a time: every set and seed, with what no training gives, and BDW by both rules."""
    belief = BELIEF[pretext] | {"pretext": pretext}
    cells: dict[str, Training | Weighing] = {
        f"{name}-{number}": Training(name, number, STEPS, PRETRAIN) for number in range(SEEDS) for name in SETS
    }
    cells |= {"bdw": Weighing("bdw", seed, belief), "paper_rule": Weighing("paper-rule", seed, belief | PAPER_RULE)}
    done = run_cells(partial(work, out), cells, out / "cells", "trainings", min(2, len(os.sched_getaffinity(0))))
    beside = {f"untrained-{number}": {"right": done[f"raw-{number}"]["untrained"]} for number in range(SEEDS)}
    # Of the same images and labels for every seed, so the same score.
    return done | beside | {f"pixels-{number}": {"right": done["raw-0"]["pixels"]} for number in range(SEEDS)}


def work(out: Path, cell: Training | Weighing) -> Result:
    """Train and score, or weigh; ``cpu_seconds`` of this process."""
    busy = time.process_time()
    found: Result = {}
    if isinstance(cell, Training):
        found = train(out, cell)
    else:
        select(out, cell.options, cell.name, cell.seed)
    spent = {"cpu_seconds": round(time.process_time() - busy, 2)}
    beside = untrained(out, cell.seed) if isinstance(cell, Training) and cell.shards == "raw" else {}
    return found | spent | beside


def train(out: Path, cell: Training) -> Result:
    """Pre-train with equal weights and score: ``right`` by tap, and the last epoch's ``loss``."""
    own = {"raw": "source", "curated": "run/curated", "random": f"random-{cell.seed}"}
    to = out / "pretrain" / f"{cell.shards}-{cell.seed}"
    record = pretrain(str(out / own.get(cell.shards, cell.shards)), to, cell.options | {"seed": cell.seed}, cell.steps)
    return {"right": _right(out, to, TAPS), "loss": record.loss}


def untrained(out: Path, seed: int) -> Result:
    """By tap, what the network has before the first step; beside the first, the pixels, which have one tap."""
    network = out / "pretrain" / f"raw-{seed}"
    pixels = {"pixels": _right(out, network, (PIXELS,) * len(TAPS), 0)} if seed == 0 else {}
    return {"untrained": _right(out, network, TAPS, 0), **pixels}


def _right(out: Path, network: Path, taps: tuple[str, ...], epoch: int | None = None) -> dict[str, list[float]]:
    opened = open_trained(network, str(out / "target"), open_target(out / "target"), "cpu")
    found = read(opened, [Reading(tap, LABELS) for tap in taps], Protocol(epoch=epoch, device="cpu"), DRAWS)
    return {tap: [round(x, 6) for x in one.right.tolist()] for tap, one in zip(TAPS, found)}


def scores(trained: dict[str, Result]) -> dict[str, Any]:
    """Accuracy of each set, its deviation over the seeds, and what the curated set has more than each other."""
    found = {}
    for tap in TAPS:
        names = (*SETS, *UNTRAINED)
        right = {name: [trained[f"{name}-{seed}"]["right"][tap] for seed in range(SEEDS)] for name in names}
        found[tap] = report.compared(right, "curated")
    first = found[TAPS[0]]
    return {
        "accuracy": {name: round(np.mean(values) / 100, 4) for name, values in first["accuracy"].items()},
        "accuracy_std": {name: round(np.std(values, ddof=1) / 100, 4) for name, values in first["accuracy"].items()},
        "by_tap": found,
        "pretext_loss": {
            name: round(np.mean([trained[f"{name}-{seed}"]["loss"] for seed in range(SEEDS)]), 4) for name in SETS
        },
    }


def costs(done: dict[str, Result]) -> dict[str, float]:
    """Processor seconds of one training of each set, its score included, and of each weighing."""
    of = {name: [done[f"{name}-{number}"]["cpu_seconds"] for number in range(SEEDS)] for name in SETS}
    of |= {name: [done[name]["cpu_seconds"]] for name in ("bdw", "paper_rule")}
    return {name: round(float(np.mean(each)), 2) for name, each in of.items()}


def table(results: dict[str, Any], out: Path) -> str:
    """The lines that `curate demo` prints: accuracies, who is kept, seconds, and the files to open."""
    seconds, taps = results["cpu_seconds"], results["by_tap"]
    lines = [
        f"{results['source']:,} images, 5 % of them digits; the classifier kept {results['kept']:,}",
        "",
        f"plain pre-training, {results['steps']} steps of each; test accuracy with {results['labels']} labels a class",
        "                      pool              curated less this           layer2:4x4     CPU s",
    ]
    shown = {"raw": "raw", "random": "random", "curated": "curated", "in_domain": "all digits"}
    for name in (*SETS, *UNTRAINED):
        score = f"{results['accuracy'][name]:.1%} +- {results['accuracy_std'][name]:.1%}"
        less = taps[TAPS[0]]["difference"].get(name)
        verdict = "" if less is None else f"{less['mean']:+.1f} +- {less['half_width']:.1f}: {less['verdict']}"
        second = "" if name == "pixels" else f"{np.mean(taps[TAPS[1]]['accuracy'][name]):.1f}%"
        spent = f"{seconds[name]:.1f}" if name in seconds else ""
        lines.append(f"  {shown.get(name, name):<20}{score:<18}{verdict:<28}{second:>10}{spent:>10}".rstrip())
    lines += ["", "who is kept             digits   patches    AUROC     CPU s"]
    rows = {"classifier": results, "bdw": results["bdw"], "paper_rule": results["paper_rule"]}
    names = {"classifier": "classifier", "bdw": f"BDW ({results['pretext']})", "paper_rule": "  paper's rule, eta 100"}
    for key, found in rows.items():
        spent = f"{seconds[key]:.1f}" if key in seconds else ""
        kept = f"{found['kept_in_domain']:>7.1%}{found['kept_out_of_domain']:>10.1%}"
        lines.append(f"  {names[key]:<20}{kept:>19}{found['auroc']:>9.4f}{spent:>10}".rstrip())
    opened = ["kept-and-pruned.png", "weights-by-domain.png", "beliefs.png", "run/weights.parquet", "run/curated/"]
    lines += ["", "open next:", *(f"  {out / name}" for name in opened)]
    return "\n".join(lines)


def claim(out: Path, settings: dict[str, Any]) -> None:
    """Take a new folder for a demo, or go on with one of the same settings.

    Raises:
        Misuse: it holds something else.
    """
    path = out / "demo.json"
    if path.exists():
        found = said_in(path)
        if found != settings:
            raise Misuse(f"--out {out}: holds a demo with {found}, not {settings}; name another folder")
    elif out.is_dir() and any(out.iterdir()):
        raise Misuse(f"--out {out}: is not empty, and no demo; name a new folder")
    else:
        write_json(path, settings)


def by_domain(out: Path, weights: pa.Table) -> dict[str, float]:
    """Shares kept of digits and of patches, and the AUROC of the final weights, those of pruned images included."""
    digit = data.domains_of(out, weights["key"]) == "digit"
    kept = weights["kept"].to_numpy()
    return {
        "kept_in_domain": round(float(kept[digit].mean()), 4),
        "kept_out_of_domain": round(float(kept[~digit].mean()), 4),
        "auroc": round(float(roc_auc_score(digit, weights["mean"].to_numpy())), 4),
    }


def figures(out: Path, chosen: pa.Table, believed: pa.Table, index: shard_index.Index) -> None:
    """Write the three figures: scores by domain, BDW's beliefs, and thirty images each of kept and pruned."""
    mean, domain = chosen["mean"].to_numpy(), data.domains_of(out, chosen["key"])
    kept, rows = chosen["kept"].to_numpy(), chosen["row"].to_numpy()
    plots.histogram_of_means(out / "weights-by-domain.png", mean, domain, round(float(mean[kept].min()), 3), "score")
    a, b = (believed[name].to_numpy() for name in ("a", "b"))
    plots.density_of_beliefs(out / "beliefs.png", a, b, data.domains_of(out, believed["key"]))
    shown = [_some(index, rows[mask], mean[mask]) for mask in (kept, ~kept)]
    plots.picture_grid(out / "kept-and-pruned.png", kept=shown[0], pruned=shown[1], measure="score")


def _some(index: shard_index.Index, rows: npt.NDArray[np.int64], means: npt.NDArray[np.float32]) -> plots.Pictures:
    """Thirty of these images, evenly over their rank by weight, the highest first."""
    ranked = np.argsort(-means, kind="stable")
    chosen = ranked[np.unique(np.linspace(0, max(0, len(ranked) - 1), 30).astype(int))] if len(ranked) else ranked
    by_row = np.sort(chosen)
    store = ImageStore(ShardView.whole(index), Decoder(data.SIDE, "grey"), 0, 0, torch.device("cpu"))
    pixels = dict(zip(by_row.tolist(), (x for batch in store.sample(rows[by_row]) for x in batch.squeeze(1).numpy())))
    return plots.Pictures([pixels[row] for row in chosen.tolist()], means[chosen])
