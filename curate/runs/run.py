"""A run: epoch -> ledger -> prune -> manifest -> (rewrite) -> metrics -> checkpoint, and at the end the curated shards.

The only place where engine, pruner, ledger, manifest and rewrite meet. Every file of an epoch is written before its
checkpoint's marker, and the same again after a kill, so a resumed run leaves the bytes of one that was never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.config.catalogue import SELECTORS
from curate.config.defaults import refuse_impossible
from curate.config.schema import RunConfig
from curate.errors import NothingLeft
from curate.ledger import ledger, manifest, pruner
from curate.ledger.metrics import METRICS, append_metrics
from curate.progress import NullProgress, Progress
from curate.runs import checkpoint, hand_over, look_alikes, prior, reshard
from curate.runs.epoch import fewest_kept, numbers_of, refuse_undecodable, train_on
from curate.runs.prepare import Job, prepare, trainable
from curate.runs.run_dir import claim, continued, refuse_overlap, resume
from curate.runs.select import select
from curate.training import engine
from curate.types import Beliefs, EpochReport, Ints, Mask, Stamp
from shards.io.locks import locked


@dataclass(frozen=True)
class RunSummary:
    """What a finished run says.

    Args:
        run: the run directory.
        examples: of the store.
        kept: in the last manifest.
        epochs: trained in all.
        seconds: of this call.
        curated: the folder of curated shards.
        manifest: the last one, which they are made of.
        facts: what a selector found out, in place of training or before it.
    """

    run: str
    run_id: str
    examples: int
    kept: int
    epochs: int
    seconds: float
    curated: str
    facts: dict[str, float] = field(default_factory=dict)
    manifest: str = ""


def run(config: RunConfig, out: Path, progress: Progress | None = None) -> RunSummary:
    """Train, weight, prune and rewrite; goes on where an earlier call was stopped.

    Args:
        config: what to do; `curate.config.schema.from_options` makes one.
        out: the run directory, new or of the same run.
        progress: called at every step and epoch; None for silence.

    Raises:
        Misuse: ``out`` lies in the store or the target, or the configuration cannot be meant.
        RunMismatch: ``out`` holds another run.
        Busy: another process is at work in ``out``.
        NothingLeft: pruning would leave less than one batch; no curated set is written.
        NonFinite: training diverged; the last checkpoint is intact.
        ShardError: the store is not readable, or the disk too small for the curated shards (all else is there then).
    """
    started, progress = time.perf_counter(), progress or NullProgress()
    refuse_impossible(config)
    refuse_overlap(config, out)
    with locked(out):
        if config.method in SELECTORS:
            done = select(config, out, progress)
            seconds, curated = round(time.perf_counter() - started, 3), str(out / "curated")
            last = str(manifest.path_of(out, 1))
            return RunSummary(str(out), done.run_id, done.examples, done.kept, 0, seconds, curated, done.facts, last)
        return _run(config, out, progress, started)


def _run(config: RunConfig, out: Path, progress: Progress, started: float) -> RunSummary:
    job = prior.named(prepare(continued(config, out), out))
    run_id = claim(job, out, progress)
    look_alikes.begin(job, out, progress)
    done = resume(job, out, progress)
    last, informed = job.config.train.epochs, job.config.belief.prior != "uniform"
    for note in job.notes:
        progress.note(note)
    if informed:
        if not done:
            prior.begin(job, out, run_id, progress)
        progress.note(prior.in_words(job, out))
        if few := prior.few_left(job.config, len(trainable(job.examples))):
            progress.note(few)
    progress.begin(last, done)
    with progress:
        for epoch in range(done + 1, last + 1):
            one_epoch(job, out, run_id, epoch, progress)
    hand_over.dismiss()
    ledger.write_final(out)
    shared = reshard.curated(job, out, last, progress).shared_keys
    if shared:
        progress.note(
            f"{shared} kept keys are in several shards: readers that ignore shards mix them; see --rename prefix"
        )
    kept, seconds = int(job.examples.kept.sum()), round(time.perf_counter() - started, 3)
    facts = ledger.facts_of(out, 0) if informed else {}
    made_of = str(manifest.path_of(out, last))
    return RunSummary(str(out), run_id, len(job.index), kept, last, seconds, str(out / "curated"), facts, made_of)


def one_epoch(job: Job, out: Path, run_id: str, epoch: int, progress: Progress) -> None:
    """One epoch and everything it leaves behind, the checkpoint's marker last.

    Args:
        job: claimed for ``out`` and brought to the epoch before, by `curate.runs.run_dir`.
        out: the run directory, locked.
        run_id: its own.
        epoch: from 1.
        progress: called at every step and epoch.

    Raises:
        As `run`.
    """
    config, examples = job.config, job.examples
    progress.epoch(epoch, int(examples.kept.sum()), len(job.index))
    totals, seconds = train_on(job, out, trainable(examples), epoch, progress)
    judged = _judged(job)
    beliefs, live = beliefs_of(job, judged), examples.kept[judged]
    lam, rho = config.prune.lam, config.prune.rho
    stamp = Stamp(run_id, config.method, epoch, config.seed, lam, rho, config.belief.eta)
    with _timed(seconds, "prune"):
        kept, below = _judge(job, beliefs, live, epoch), pruner.below(beliefs, lam)
    with _timed(seconds, "ledger"):
        trained = live if config.belief.returns else None
        digest = ledger.write(
            ledger.path_of(out, epoch), beliefs, below, _names(job, judged), kept, stamp, live=trained
        )
    _refuse_too_few(job, out, kept & pruner.decodable(beliefs), epoch)
    with _timed(seconds, "prune"):
        examples.kept[judged] = kept
        rule = pruner.rule_in_words(beliefs, lam, rho) if job.state.method.prunes else "drop none for its weight"
        origin = manifest.Origin(rule, len(judged), digest, stamp)
        manifest.write(manifest.path_of(out, epoch), _names(job, judged[kept]), judged[kept], origin)
    with _timed(seconds, "rewrite"):
        generation = reshard.advance(job, out, epoch, progress)
    with _timed(seconds, "checkpoint"):
        checkpoint.save(out, epoch, job.setup.network, job.state, examples)
    numbers = numbers_of(job, totals, epoch, seconds)
    numbers |= {"mean_belief": float(beliefs.mean[live].mean(dtype=np.float64))}
    if config.belief.returns:
        numbers |= {"returned": int((kept & ~live).sum())}
    report = EpochReport(epoch, totals.images, int(kept.sum()), int((live & ~kept).sum()), numbers, seconds)
    append_metrics(out / METRICS, report)
    checkpoint.finish(out, epoch, job.state, generation)
    reshard.drop_superseded(job, out, generation)
    progress.report(report)


def beliefs_of(job: Job, rows: Ints) -> Beliefs:
    """What is believed of ``rows`` now."""
    mean, a, b = job.state.method.summary(rows)
    visits = job.examples.visits[rows].astype(np.int32)
    return Beliefs(rows, mean, visits, job.examples.error[rows], a, b)


def _judged(job: Job) -> Ints:
    """Who is judged when an epoch ends: what was live in it; where images may return, also what was dropped for its
    weight before."""
    examples = job.examples
    again = examples.error == 0 if job.config.belief.returns else np.zeros_like(examples.kept)
    return np.flatnonzero(examples.kept | again).astype(np.int64)


def _judge(job: Job, beliefs: Beliefs, live: Mask, epoch: int) -> Mask:
    """Who is in the epoch's manifest: judged by the pruner after the warm-up, where the method prunes at all; the
    undecodable by their own option."""
    config, kept = job.config, live & pruner.decodable(beliefs)
    if job.state.method.prunes and epoch > config.belief.warmup:
        # What its prior dropped was never visited; where it may return, it is judged all the same.
        known = config.belief.returns and config.belief.prior != "uniform"
        kept = pruner.keep(pruner.informed(beliefs) if known else beliefs, config.prune.lam, config.prune.rho)
    return kept | reshard.kept_undecodable(config, beliefs.error)


def _refuse_too_few(job: Job, out: Path, usable: Mask, epoch: int) -> None:
    config, fewest = job.config, job.config.train.batch
    if usable.sum() >= fewest or usable.sum() >= (fewest := _fewest(job, out)):
        return
    refuse_undecodable(job)
    last = manifest.path_of(out, epoch - 1) if epoch > 1 else "none"
    constants = f"--lam {config.prune.lam:g} --rho {config.prune.rho:g} --eta {config.belief.eta or 0:g}"
    raise NothingLeft(
        f"after epoch {epoch} only {usable.sum()} images would be kept, less than a batch ({fewest}), with "
        f"{constants}; the last manifest is {last}; lower --lam or --eta, or raise --rho"
    )


def _fewest(job: Job, out: Path) -> int:
    """How many images must stay: a batch, or of a store that was small to begin with as many as can be trained on.

    With a prior the store is what it left, and small where that is hardly enough to learn weights from.
    """
    decodable, batch = job.examples.error == 0, job.config.train.batch
    if not job.state.method.prunes:
        return engine.FEWEST
    if job.config.belief.prior == "uniform":
        return fewest_kept(batch, int(np.count_nonzero(decodable)))
    left = manifest.read(manifest.path_of(out, 0))[0]["row"].to_numpy()
    return engine.FEWEST if prior.few_left(job.config, int(np.count_nonzero(decodable[left]))) else batch


def _names(job: Job, rows: Ints) -> pa.Table:
    return job.index.table.select(["shard", "key"]).take(pa.array(rows))


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started
