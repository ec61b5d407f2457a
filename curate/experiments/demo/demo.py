"""The whole of curate on small real images in minutes: pack, weigh, prune, rewrite, verify, pre-train, score, draw.

Settings are those of METHOD.md, section 10, for digits; beside them runs the paper's own rule, for comparison.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from sklearn.metrics import roc_auc_score

from curate.config.schema import from_options
from curate.data.decode import Decoder
from curate.data.image_store import ImageStore, Shelf
from curate.errors import CurateError, Misuse
from curate.experiments.baselines import trials as comparison
from curate.experiments.demo import data
from curate.experiments.sweep import one_thread, said_in
from curate.ledger import ledger
from curate.ledger.metrics import seconds_spent
from curate.progress import Bar
from curate.runs.run import run
from curate.stats import plots
from shards.indexing import index as shard_index
from shards.io import shard_set
from shards.io.json_files import publish_json
from shards.rewriting.verify import verify

#: The store's side and patch, and how it is weighed, by pretext.
SIZES = {"reconstruction": data.Sizes(16, 32), "rotation": data.Sizes(32, 128)}
WEIGH: dict[str, dict[str, Any]] = {
    "reconstruction": {
        "meta_loss": "self-supervised",
        "size": 16,
        "crop": 16,
        "lr": 1e-4,
        "momentum": 0.9,
        "epochs": 12,
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
        "size": 32,
        "crop": 32,
        "mirror": False,
        "lr": 0.01,
        "lr_drops": (),
        "momentum": 0.9,
        "epochs": 6,
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
#: The plain training that the three sets are compared by.
PRETRAIN: dict[str, Any] = {
    "pretext": "rotation",
    "network": "small",
    "colour": "grey",
    "width": 8,
    "size": 16,
    "crop": 16,
    "mirror": False,
    "epochs": 8,
    "batch": 32,
    "lr": 0.05,
    "workers": 0,
}
SEEDS = 3


def demo(out: Path, pretext: str = "reconstruction", seed: int = 0) -> dict[str, Any]:
    """Run it all in ``out`` and return what results.json says.

    Raises:
        Misuse: ``out`` holds something else, or a demo with other settings.
        CurateError: the curated shards do not verify.
    """
    started = time.perf_counter()
    one_thread()
    claim(out, {"pretext": pretext, "seed": seed})
    data.pack(out, SIZES[pretext], seed)
    bdw_seconds = weigh(out, pretext, seed)
    index = shard_index.build(shard_set.resolve(out / "source"))[0]
    prove(out / "run" / "curated", index)
    weights = ledger.read_final(out / "run")
    figures(out, weights, index, SIZES[pretext].side)
    trials = pretrain_all(out, index, weights, seed)
    scores = {name: comparison.accuracy(done) for name, done in trials.items()}
    times = {"bdw": bdw_seconds, **{name: comparison.seconds(done) for name, done in trials.items()}}
    results = {
        **by_domain(out, weights),
        "accuracy": {name: round(mean, 4) for name, (mean, _) in scores.items()},
        "accuracy_std": {name: round(deviation, 4) for name, (_, deviation) in scores.items()},
        "seconds": {name: round(x, 2) for name, x in (times | {"total": time.perf_counter() - started}).items()},
        "steps": {name: done[0].trained.steps for name, done in trials.items()},
        "pretext_loss": {name: round(comparison.loss(done), 4) for name, done in trials.items()},
        "source": len(index),
        "kept": int(np.count_nonzero(weights["kept"])),
        "paper_rule": by_domain(out, ledger.read_final(out / "paper-rule")),
        "pretext": pretext,
        "seed": seed,
    }
    publish_json(out / "results.json", results)
    return results


def weigh(out: Path, pretext: str, seed: int) -> float:
    """The two runs: ours in ``run``, the paper's rule in ``paper-rule``. Returns the seconds of the first."""
    options = {**WEIGH[pretext], "pretext": pretext, "seed": seed, "workers": 0}
    options |= {"store": str(out / "source"), "target": str(out / "target")}
    run(from_options(options), out / "run", Bar("weigh"))
    run(from_options({**options, **PAPER_RULE}), out / "paper-rule", Bar("paper's rule"))
    return seconds_spent(out / "run")


def prove(curated: Path, index: shard_index.Index) -> None:
    """Hold the curated shards against the store.

    Raises:
        CurateError: a fault, the first one named.
    """
    faults = verify(curated, index)
    if faults:
        raise CurateError(f"{curated}: does not verify: {faults[0]}")


def pretrain_all(
    out: Path, index: shard_index.Index, weights: pa.Table, seed: int
) -> dict[str, list[comparison.Trial]]:
    """Plain rotation training on the raw source, the curated shards, and as many random images."""
    kept = int(np.count_nonzero(weights["kept"]))
    sets = {
        "raw": str(out / "source"),
        "curated": str(out / "run" / "curated"),
        "random": str(comparison.random_subset(index, kept, seed, out / "random")),
    }
    return comparison.compare(sets, str(out / "target"), out / "pretrain", PRETRAIN, SEEDS)


def table(results: dict[str, Any], out: Path) -> str:
    """results.json for people, and what to open next."""
    seconds, paper = results["seconds"], results["paper_rule"]
    lines = [
        f"weighed {results['source']:,} images in {seconds['bdw']:.0f} s, kept {results['kept']:,}",
        "",
        "                     digits kept   patches kept   AUROC of E[w]",
        _kept_line("curate", results),
        _kept_line("plain rule, eta 100", paper),
        "",
        "plain pre-training   test accuracy          steps   rotation loss at the end   seconds",
    ]
    for name in ("raw", "curated", "random"):
        score = f"{results['accuracy'][name]:.1%} +- {results['accuracy_std'][name]:.1%}"
        loss = results["pretext_loss"][name]
        lines.append(f"  {name:<18} {score:<20} {results['steps'][name]:>7,} {loss:>26.3f} {seconds[name]:>9.1f}")
    opened = ["kept-and-pruned.png", "weights-by-domain.png", "beliefs.png", "run/weights.parquet", "run/curated/"]
    lines += ["", "open next:", *(f"  {out / name}" for name in opened)]
    return "\n".join(lines)


def _kept_line(name: str, found: dict[str, float]) -> str:
    inside, outside, auroc = found["kept_in_domain"], found["kept_out_of_domain"], found["auroc"]
    return f"  {name:<19}{inside:>11.1%}   {outside:>12.1%}   {auroc:>13.4f}"


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
        publish_json(path, settings)


def by_domain(out: Path, weights: pa.Table) -> dict[str, float]:
    """How the final weights, of pruned images too, tell digits from patches."""
    digit = data.domains_of(out, weights["key"]) == "digit"
    kept = weights["kept"].to_numpy()
    return {
        "kept_in_domain": round(float(kept[digit].mean()), 4),
        "kept_out_of_domain": round(float(kept[~digit].mean()), 4),
        "auroc": round(float(roc_auc_score(digit, weights["mean"].to_numpy())), 4),
    }


def figures(out: Path, weights: pa.Table, index: shard_index.Index, side: int) -> None:
    """The three pictures that a person looks at first."""
    domain = data.domains_of(out, weights["key"])
    mean, a, b = (weights[name].to_numpy() for name in ("mean", "a", "b"))
    plots.histogram_of_means(out / "weights-by-domain.png", mean, domain)
    plots.density_of_beliefs(out / "beliefs.png", a, b, domain)
    kept, rows = weights["kept"].to_numpy(), weights["row"].to_numpy()
    shown = [_some(index, rows[mask], mean[mask], side) for mask in (kept, ~kept)]
    plots.picture_grid(out / "kept-and-pruned.png", kept=shown[0], pruned=shown[1])


def _some(
    index: shard_index.Index, rows: npt.NDArray[np.int64], means: npt.NDArray[np.float32], side: int
) -> plots.Pictures:
    """Thirty of these images, evenly over their rank by E[w], the highest first."""
    ranked = np.argsort(-means, kind="stable")
    chosen = ranked[np.unique(np.linspace(0, max(0, len(ranked) - 1), 30).astype(int))] if len(ranked) else ranked
    by_row = np.sort(chosen)
    store = ImageStore(Shelf.whole(index), Decoder(side, "grey"), 0, 0, torch.device("cpu"))
    pixels = dict(zip(by_row.tolist(), (x for batch in store.sample(rows[by_row]) for x in batch.squeeze(1).numpy())))
    return plots.Pictures([pixels[place] for place in chosen.tolist()], means[chosen])
