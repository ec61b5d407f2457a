"""The cells of the study: choosing, training, scoring. Each is computed once, and in any order that its inputs allow.

Seconds are those of this process's processor, one thread, so that what else a machine does changes them little.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from curate.config.schema import MachineConfig, from_options
from curate.data.target import open_target
from curate.errors import CurateError, NothingLeft
from curate.evaluation.evaluate import Protocol
from curate.evaluation.readings import PIXELS, Reading, read
from curate.evaluation.trained import Trained, open_trained
from curate.experiments.baselines import trials
from curate.experiments.pays import presets
from curate.experiments.sweep import Result
from curate.ledger import ledger
from curate.progress import NullProgress
from curate.runs import provenance
from curate.runs.features import Choice, features
from curate.runs.pretrain import pretrain
from curate.runs.run import run
from shards.indexing import domains
from shards.rewriting.verify import verify
from shards.store import open_index

HERE = MachineConfig(device="cpu", workers=0)


@dataclass(frozen=True)
class Encoding:
    """A cell: features of the whole store."""

    encoder: str
    nets: int


@dataclass(frozen=True)
class Choosing:
    """A cell: a run that chooses images for a target.

    Args:
        selector: of `presets.CHOICES` or `presets.WEIGHINGS`.
        options: of the run, but paths.
        keep: images, where the selector has no rule of its own.
    """

    target: str
    selector: str
    options: dict[str, Any]
    keep: int


@dataclass(frozen=True)
class Subset:
    """A cell: shards of the images that are inside, or of random ones."""

    target: str
    images: int
    seed: int


@dataclass(frozen=True)
class Training:
    """A cell: a plain training on a set of shards.

    Args:
        shards: where they lie in the study's folder.
        options: of the pre-training, the seed among them.
    """

    shards: str
    steps: int
    options: dict[str, Any]


@dataclass(frozen=True)
class Scoring:
    """A cell: networks of a kind, one a seed, scored on a target.

    Args:
        networks: their folders.
        taps: where they are read; none for the pixels.
        untrained: whether they are read as they were drawn.
    """

    target: str
    networks: tuple[str, ...]
    taps: tuple[str, ...]
    untrained: bool = False


def encode(out: Path, cell: Encoding) -> Result:
    """Compute the features, beside the store: ``seconds``, ``images``, ``numbers`` of each."""
    started = time.process_time()
    made = features(open_index(str(out / "store")), Choice(cell.encoder, cell.nets), None, HERE, None, NullProgress())
    return {"seconds": _since(started), "images": made.images, "numbers": made.numbers}


def choose(out: Path, cell: Choosing) -> Result:
    """Run it, verify what it keeps, and see how its scores rank the store.

    Returns:
        ``kept``, ``purity`` (share of the kept that is inside), ``auroc``, ``precision`` of as many as are inside, at
        the top; ``facts`` of the footer; ``seconds``, without those of the features. Where nothing is left after
        an epoch ``kept`` is 0, and the others are None.
    """
    place = chosen(out, cell.target, cell.selector, cell.options.get("seed"))
    asked = cell.options | ({"keep": float(cell.keep)} if cell.options.get("keep") == 0 else {})
    asked |= {"store": str(out / "store"), "target": str(out / "targets" / cell.target)}
    started = time.process_time()
    try:
        summary = run(from_options(asked | {"workers": 0, "device": "cpu"}), place)
    except NothingLeft:
        return {"kept": 0, "seconds": _since(started), "facts": {}} | dict.fromkeys(("purity", "auroc", "precision"))
    seconds, index = _since(started), open_index(str(out / "store"))
    if faults := verify(place / "curated", index):
        raise CurateError(f"{place}: curated shards do not verify: {faults[0]}")
    weights = ledger.read_final(place)
    own = domains.load(index).own(cell.target)[weights["row"].to_numpy()]
    mean, kept = weights["mean"].to_numpy(), weights["kept"].to_numpy()
    top = np.argsort(-mean, kind="stable")[: int(own.sum())]
    return {
        "kept": int(kept.sum()),
        "purity": round(float(own[kept].mean()), 4),
        "auroc": round(float(roc_auc_score(own, mean)), 4),
        "precision": round(float(own[top].mean()), 4),
        "facts": {name: round(value, 4) for name, value in summary.facts.items()},
        "seconds": seconds,
    }


def subset(out: Path, cell: Subset) -> Result:
    """Write the shards: ``images``."""
    index, to = open_index(str(out / "store")), out / "subsets" / _name_of(cell)
    if not to.exists():
        if cell.target:
            trials.subset(index, np.flatnonzero(domains.load(index).own(cell.target)), to)
        else:
            trials.random_subset(index, cell.images, cell.seed, to)
    return {"images": len(open_index(str(to)))}


def train(out: Path, cell: Training) -> Result:
    """Pre-train: ``seconds``, ``loss``, ``images``."""
    started = time.process_time()
    done = pretrain(str(out / cell.shards), network(out, cell), cell.options, cell.steps)
    return {"seconds": _since(started), "loss": done.loss, "images": done.images}


def score(out: Path, cell: Scoring) -> Result:
    """Read the networks: ``right``, reading -> a row a seed of shares of the draws that told each test image."""
    target, right = str(out / "targets" / cell.target), dict[str, list[list[float]]]()
    opened: Trained | None = None
    for name in cell.networks:
        folder = out / "networks" / name
        if opened is None:
            opened = open_trained(folder, target, open_target(target), "cpu")
        # Of one target and one way to decode, so that images are decoded once for all networks.
        opened = replace(opened, run=folder, config=provenance.read_config(folder))
        for labels, draws in ((presets.FEW, presets.DRAWS), (presets.ALL, 1)):
            readings = [Reading(tap, labels) for tap in cell.taps or (PIXELS,)]
            protocol = Protocol(epoch=0 if cell.untrained or not cell.taps else None, device="cpu")
            for one in read(opened, readings, protocol, draws):
                rows = right.setdefault(reading_name(one.reading), [])
                rows.append([round(x, 4) for x in one.right.tolist()])
    return {"right": right}


def reading_name(reading: Reading) -> str:
    """As in "pool, 5": the tap, and labels a class or "all"."""
    return f"{reading.tap}, {'all' if reading.labels == presets.ALL else reading.labels}"


def chosen(out: Path, target: str, selector: str, seed: int | None) -> Path:
    """Where a run that chooses lies."""
    return out / "chosen" / f"{target}-{selector}{'' if seed is None else f'-{seed}'}"


def network(out: Path, cell: Training) -> Path:
    """Where a training's network lies."""
    return out / "networks" / network_name(cell)


def network_name(cell: Training) -> str:
    """Of its shards, pretext, steps and seed."""
    return f"{cell.shards.replace('/', '-')}-{cell.options['pretext']}-{cell.steps}-{cell.options['seed']}"


def _name_of(cell: Subset) -> str:
    return f"in-domain-{cell.target}" if cell.target else f"random-{cell.seed}"


def _since(started: float) -> float:
    return round(time.process_time() - started, 2)
