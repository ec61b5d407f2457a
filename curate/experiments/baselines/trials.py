"""Does curation help? Plain pre-training on several shard sets, the same network and number of steps or epochs, scored
on the target, over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.evaluation.evaluate import Evaluation, Protocol, evaluate
from curate.progress import Bar, Progress
from curate.runs.pretrain import PretrainSummary, pretrain
from shards.indexing.index import Index
from shards.rewriting.rewrite import RewriteOptions, rewrite
from shards.shuffle import permutation


@dataclass(frozen=True)
class Trial:
    """A pre-training's summary, and the evaluation of its network."""

    trained: PretrainSummary
    scored: Evaluation


def compare(
    sets: Mapping[str, str], target: str, out: Path, options: dict[str, Any], seeds: int, steps: int | None = None
) -> dict[str, list[Trial]]:
    """Train and score every set with every seed, the sets in turn, so that a noisy machine slows all alike.

    Args:
        sets: name -> shards.
        target: the labelled target.
        out: a folder of trainings, ``NAME-SEED``; finished ones are not trained again.
        options: of the pre-training.
        seeds: how many.
        steps: the same number for all; None for the options' epochs.
    """
    trials: dict[str, list[Trial]] = {name: [] for name in sets}
    for seed in range(seeds):
        for name, shards in sets.items():
            to = out / f"{name}-{seed}"
            record: Progress = Bar(f"{name} {seed + 1}/{seeds}")
            trained = pretrain(shards, to, {**options, "seed": seed}, steps, record)
            trials[name].append(Trial(trained, evaluate(to, target, Protocol(device=options.get("device", "auto")))))
    return trials


def accuracy(trials: list[Trial]) -> tuple[float, float]:
    """Mean and sample deviation of the test accuracy over the seeds."""
    values = [trial.scored.test_accuracy for trial in trials]
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def loss(trials: list[Trial]) -> float:
    """Mean pretext loss of the trainings' last epochs."""
    return float(np.mean([trial.trained.loss for trial in trials]))


def seconds(trials: list[Trial]) -> float:
    """Mean seconds of one training."""
    return float(np.mean([trial.trained.seconds for trial in trials]))


def random_subset(index: Index, size: int, seed: int, out: Path) -> Path:
    """Shards of ``size`` random samples of a store, as the curated ones are made; returns their folder."""
    rows = np.sort(permutation(seed, "random subset", 0, len(index))[:size])
    return subset(index, rows, out)


def subset(index: Index, rows: np.ndarray[Any, np.dtype[np.int64]], out: Path) -> Path:
    """Rewrite these rows (int64, increasing) of a store into shards in ``out``; returns the folder."""
    chosen = index.table.select(["shard", "key"]).take(pa.array(rows)).append_column("row", pa.array(rows))
    rewrite(index, chosen, out, options=RewriteOptions(workers=1))
    return out
