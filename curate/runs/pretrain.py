"""Plain pre-training on any shards: the engine with every weight 1, no target, no pruning.

What curated shards are judged by, and what any other pipeline would do with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curate.config.defaults import refuse_impossible, resolve
from curate.config.resolved import ready
from curate.config.schema import RunConfig, from_options
from curate.errors import Misuse
from curate.ledger.metrics import METRICS, append_metrics, read_metrics, seconds_spent
from curate.progress import NullProgress, Progress
from curate.runs import checkpoint, hand_over
from curate.runs.epoch import numbers_of, refuse_undecodable, train_on, visited
from curate.runs.prepare import fresh_examples, prepare, pretext_of, trainable
from curate.runs.run_dir import claim, continued, refuse_overlap, resume
from curate.types import EpochReport
from shards.io.json_files import parse_json
from shards.io.locks import locked
from shards.io.mirror.place import local
from shards.store import open_index


@dataclass(frozen=True)
class PretrainSummary:
    """What was trained.

    Args:
        images: that decode.
        epochs, steps: trained in all; the last epoch may be a part of one.
        loss: the pretext's mean over the last epoch.
        seconds: of all epochs, this call's and earlier ones'.
    """

    images: int
    epochs: int
    steps: int
    loss: float
    seconds: float


def pretrain(
    store: str, out: Path, options: dict[str, Any], steps: int | None = None, progress: Progress | None = None
) -> PretrainSummary:
    """Train on every image of ``store`` alike; goes on where an earlier call was stopped.

    Args:
        store: a shard set.
        out: run.json, checkpoints and metrics.jsonl go here.
        options: of a run's configuration, by name.
        steps: train for exactly so many, over as many epochs as that takes; None for the configuration's epochs.
            The rate follows them where the schedule is step or cosine, else the epochs.
        progress: called at every step and epoch.

    Raises:
        Misuse, ShardError, CurateError: as `curate.runs.run.run`.
    """
    options = {**options, "store": store, "target": "", "method": "uniform"}
    if steps is not None and "epochs" in options:
        raise Misuse("--steps and --epochs both say how long to train; give one")
    config = from_options(options)
    if config.train.schedule != "epoch":
        config = replace(config, train=replace(config.train, steps=steps))
    refuse_impossible(config)
    refuse_overlap(config, out)
    with locked(out):
        return _pretrain(config, out, steps, progress or NullProgress())


def _pretrain(config: RunConfig, out: Path, steps: int | None, progress: Progress) -> PretrainSummary:
    if steps is not None:
        config = replace(config, train=replace(config.train, epochs=epochs_for(steps, config, out)))
    job = prepare(continued(config, out), out)
    claim(job, out, progress)
    done, last = resume(job, out, progress), job.config.train.epochs
    for note in job.notes:
        progress.note(note)
    progress.begin(last, done)
    with progress:
        for epoch in range(done + 1, last + 1):
            rows = trainable(job.examples)
            progress.epoch(epoch, len(rows), len(job.index))
            left = None if steps is None else steps - job.state.step
            totals, seconds = train_on(job, out, rows, epoch, progress, left)
            refuse_undecodable(job)
            checkpoint.save(out, epoch, job.setup.network, job.state, job.examples)
            report = EpochReport(epoch, totals.images, len(rows), 0, numbers_of(job, totals, epoch, seconds), seconds)
            append_metrics(out / METRICS, report)
            checkpoint.finish(out, epoch, job.state, 0)
            progress.report(report)
    hand_over.dismiss()
    loss = parse_json(read_metrics(out)[-1])["pretext_loss"]
    return PretrainSummary(len(trainable(job.examples)), last, job.state.step, loss, seconds_spent(out))


def epochs_for(steps: int, config: RunConfig, out: Path) -> int:
    """The passes over the store that ``steps`` steps begin."""
    place = local(config.index) if config.index else None
    allowed = config.machine.allow_pipe
    index = open_index(config.store, place, image=config.image, cache_path=out / "index.parquet", allow_pipe=allowed)
    resolved = resolve(config, labelled=True)
    channels, batch = resolved.images.channels, resolved.train.batch
    # Of which statistics the pretext is made says nothing about how it takes a batch.
    pretext = pretext_of(ready(resolved, (0.0,) * channels, (1.0,) * channels))
    images = visited(len(trainable(fresh_examples(index))), batch, pretext.couples)
    a_pass = -(-images // batch)
    return max(1, -(-steps // max(1, a_pass)))
