"""What a run will cost before it is started: index and target read, a few steps timed, nothing trained or kept."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from curate.config.catalogue import METHODS, SELECTORS
from curate.config.defaults import refuse_impossible, resolve
from curate.config.schema import NeighbourConfig, RunConfig
from curate.config.share import parse_share
from curate.data.target import TargetIndex
from curate.errors import Misuse
from curate.runs import checkpoint, look_alikes, prior
from curate.runs.cheaper import Saving, savings
from curate.runs.epoch import peak_memory
from curate.runs.prepare import Job, prepare, trainable
from curate.runs.run_dir import refuse_overlap
from curate.runs.step_times import time_steps
from curate.training import engine

#: Seconds for timing steps, for finding something cheaper, and for finding out what the prior keeps.
STEPS_FOR, SAVINGS_FOR, PRIOR_FOR = 15.0, 8.0, 4.0
#: Hours from which on something cheaper is named.
LONG = 1.0


@dataclass(frozen=True)
class Forecast:
    """What is expected; an upper bound, as if nothing were pruned once it trains.

    Args:
        images, epochs, steps: of the whole run.
        seconds_per_step: median of the timed steps, reading included; of parts of one, what these come to.
        hours: of the whole run, by that.
        peak_memory: bytes held by this process while it was timed.
        disk: bytes the run directory will take at most: curated shards, checkpoints, ledger.
        disk_free: bytes free where it goes.
        episode: the shape of a target batch, or what else the target is for.
        problems: what will not work, a line each.
        notes: what is worth knowing.
        timed_steps: how many steps that rests on.
        hours_low, hours_high: of the whole run, if all its steps took as long as the fastest, the slowest of them.
        by: what was timed, in words.
        kept: images that the prior leaves, of which the steps are; None where it is not known, or there is none.
        cheaper: where the run takes more than `LONG` hours, the choices that cut most.
    """

    images: int
    epochs: int
    steps: int
    seconds_per_step: float
    hours: float
    peak_memory: int
    disk: int
    disk_free: int
    episode: str
    problems: list[str]
    notes: list[str]
    timed_steps: int = 0
    hours_low: float = 0.0
    hours_high: float = 0.0
    cheaper: list[Saving] = field(default_factory=list)
    by: str = ""
    kept: int | None = None

    def text(self) -> str:
        """For people."""
        low, high = (_duration(hours * 3600) for hours in (self.hours_low, self.hours_high))
        spread = low if low == high else f"{low} to {high}"
        kept = "" if self.kept is None else f", of which the prior keeps {self.kept:,}"
        lines = [
            f"{self.images:,} images{kept}, {self.epochs} epochs, {self.steps:,} steps "
            f"of {self.seconds_per_step:.3g} s",
            f"time    {spread}, by {self.by}; less once images are pruned",
            f"memory  {self.peak_memory / 2**30:.2f} GiB",
            f"disk    at most {self.disk / 1e6:,.1f} MB of {self.disk_free / 1e6:,.0f} MB free",
            f"target  {self.episode}",
        ]
        lines += [f"cheaper {one.options}: about {_duration(one.hours * 3600)} ({one.by})" for one in self.cheaper]
        lines += [f"note    {note}" for note in self.notes] + [f"PROBLEM {problem}" for problem in self.problems]
        return "\n".join(lines)


def dry_run(config: RunConfig, out: Path) -> Forecast:
    """Time up to five steps of the run that ``config`` describes, or parts of one where they take long; half a minute.

    Raises:
        As `curate.runs.run.run`; and CurateError on CUDA out of memory, with the batch that may fit.
    """
    if config.method in SELECTORS:
        raise Misuse(f"--dry-run times training, --method {config.method} has none; `curate features` tells its rate")
    refuse_impossible(config)
    refuse_overlap(config, out)
    with tempfile.TemporaryDirectory() as scratch:
        job = prior.named(prepare(_without_distances(config), Path(scratch)))
        before = prior.seconds_before(job, out)
        kept = prior.kept_before(job, out, Path(scratch)) if before < PRIOR_FOR else None
    if _measures(config):
        job.notes.append(
            f"before the first epoch {config.method} reads the whole store once more, for its distances; not timed here"
        )
    if before:
        job.notes.append(f"before the first epoch the store is read once for features: {_duration(before)} of the time")
    if (several := config.machine.devices) > 1:
        job.notes.append(f"timed in one process; of --devices {several} each takes its part of every batch")
    if kept is None and job.config.belief.prior != "uniform":
        job.notes.append(
            "how many images the prior keeps is known once their features are (`curate features`); the time is as if "
            "it kept all"
        )
    # Prepared: the index is in memory now, and the temporary copy of it is no longer needed.
    batch, epochs = job.config.train.batch, job.config.train.epochs
    rows = trainable(job.examples)
    steps = -(-(len(rows) if kept is None else kept) // batch)
    timed = time_steps(job, rows, batch, STEPS_FOR)
    hours, low, high = ((before + each * steps * epochs) / 3600 for each in (timed.middle, timed.low, timed.high))
    disk, free = disk_needed(job, len(rows), epochs), _disk_free(out)
    problems = (
        [] if disk < free else [f"disk: at most {disk:,} bytes are needed, {free:,} are free; name another --out"]
    )
    if timed.trained == 0:
        problems.append("no image of the timed steps decodes; `curate index --check` says what is wrong with them")
    if len(rows) < batch:
        problems.append(f"--batch {batch}: the store has {len(rows)} images with a picture; give a smaller batch")
    if kept is not None and kept < engine.FEWEST:
        problems.append(f"--prior {job.config.belief.prior} keeps {kept} images, training needs {engine.FEWEST}")
    elif kept is not None and (few := prior.few_left(job.config, kept)):
        job.notes.append(few)
    share = parse_share(job.config.belief.share)
    if share is not None and (wrong := look_alikes.too_many(share, len(rows))):
        problems.append(wrong)
    return Forecast(
        len(rows),
        epochs,
        steps * epochs,
        timed.middle,
        hours,
        peak_memory(job.setup.device),
        disk,
        free,
        _nearest(job.target) if job.target and _measures(config) else _episode(job),
        problems,
        job.notes,
        timed.steps,
        low,
        high,
        savings(job, hours, time.perf_counter() + SAVINGS_FOR) if hours > LONG else [],
        timed.how,
        kept,
    )


def _without_distances(config: RunConfig) -> RunConfig:
    """Weights by distance as uniform ones, whose steps are the same: a dry run spares measuring every image."""
    if not _measures(config):
        return config
    resolve(config, labelled=True)  # refuses what nn refuses
    return replace(config, method="uniform", neighbours=NeighbourConfig())


def _measures(config: RunConfig) -> bool:
    """Whether the method needs the distance of every image."""
    return "distances" in METHODS.spec(config.method).inputs


def disk_needed(job: Job, images: int, epochs: int) -> int:
    """Bytes of the run directory if everything were kept: shards, a model an epoch, ledger, and three full checkpoints,
    one of them in the midst of an epoch."""
    shards = sum(shard.size for shard in job.index.shards)
    state = checkpoint.model_state(job.setup.network, job.state.theta)
    model = sum(x.numel() * x.element_size() for x in state.values())
    # The ledger and manifest of an epoch measured 20 to 40 bytes an example, names included.
    return shards + model * (epochs + 7) + 40 * images * epochs


def _episode(job: Job) -> str:
    if job.setup.meta_loss is None:
        return "none"
    return job.setup.meta_loss.shape()


def _nearest(target: TargetIndex) -> str:
    return f"{len(target.splits['train']):,} train images; every image of the store is held against its nearest"


def _disk_free(out: Path) -> int:
    place = out.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(os.fspath(place)).free


def _duration(seconds: float) -> str:
    """In the unit that fits.

    >>> _duration(90), _duration(9000)
    ('90 s', '2.5 h')
    """
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 3600:.1f} h"
