"""What a run will cost before it is started: index and target read, a few steps timed, nothing trained or kept."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from curate.config.catalogue import METHODS, SELECTORS
from curate.config.defaults import refuse_impossible, resolve
from curate.config.schema import NeighbourConfig, RunConfig
from curate.data.decode import Pixels
from curate.data.target import TargetIndex
from curate.errors import CurateError, Misuse
from curate.runs import checkpoint, prior
from curate.runs.cheaper import Saving, savings
from curate.runs.epoch import peak_memory
from curate.runs.prepare import Job, prepare, trainable
from curate.runs.run_dir import refuse_overlap
from curate.training import engine
from curate.types import Ints

#: Steps that are timed, after one that warms up; fewer where these seconds are over before, but never less than two.
STEPS, FEWEST, STEPS_FOR = 5, 2, 15.0
#: Seconds for finding something cheaper.
SAVINGS_FOR = 10.0
#: Hours from which on something cheaper is named.
LONG = 1.0


@dataclass(frozen=True)
class Forecast:
    """What is expected; an upper bound, as if nothing were ever pruned.

    Args:
        images, epochs, steps: of the whole run.
        seconds_per_step: median of the timed steps, reading included.
        hours: of the whole run, by that median.
        peak_memory: bytes held by this process while it was timed.
        disk: bytes the run directory will take at most: curated shards, checkpoints, ledger.
        disk_free: bytes free where it goes.
        episode: the shape of a target batch, or what else the target is for.
        problems: what will not work, a line each.
        notes: what is worth knowing.
        timed_steps: how many steps that rests on.
        hours_low, hours_high: of the whole run, if all its steps took as long as the fastest, the slowest of them.
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

    def text(self) -> str:
        """For people."""
        low, high = (_duration(hours * 3600) for hours in (self.hours_low, self.hours_high))
        spread = low if low == high else f"{low} to {high}"
        lines = [
            f"{self.images:,} images, {self.epochs} epochs, {self.steps:,} steps of {self.seconds_per_step:.3g} s",
            f"time    {spread}, by the fastest and slowest of {self.timed_steps} steps; less once images are pruned",
            f"memory  {self.peak_memory / 2**30:.2f} GiB",
            f"disk    at most {self.disk / 1e6:,.1f} MB of {self.disk_free / 1e6:,.0f} MB free",
            f"target  {self.episode}",
        ]
        lines += [f"cheaper {one.options}: about {_duration(one.hours * 3600)} ({one.by})" for one in self.cheaper]
        lines += [f"note    {note}" for note in self.notes] + [f"PROBLEM {problem}" for problem in self.problems]
        return "\n".join(lines)


def dry_run(config: RunConfig, out: Path) -> Forecast:
    """Time up to five steps of the run that ``config`` describes; half a minute, or two steps where they take longer.

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
    if _measures(config):
        job.notes.append(
            f"before the first epoch {config.method} reads the whole store once more, for its distances; not timed here"
        )
    if before:
        job.notes.append(f"before the first epoch the store is read once for features: {_duration(before)} of the time")
    # Prepared: the index is in memory now, and the temporary copy of it is no longer needed.
    batch, epochs = job.config.train.batch, job.config.train.epochs
    rows = trainable(job.examples)
    steps = -(-len(rows) // batch)
    timed, trained = _timed_steps(job, rows, batch, time.perf_counter() + STEPS_FOR)
    seconds = float(np.median(timed))
    hours, low, high = ((before + float(each) * steps * epochs) / 3600 for each in (seconds, min(timed), max(timed)))
    disk, free = disk_needed(job, len(rows), epochs), _disk_free(out)
    problems = (
        [] if disk < free else [f"disk: at most {disk:,} bytes are needed, {free:,} are free; name another --out"]
    )
    if trained == 0:
        problems.append("no image of the timed steps decodes; `curate index --check` says what is wrong with them")
    if len(rows) < batch:
        problems.append(f"--batch {batch}: the store has {len(rows)} images with a picture; give a smaller batch")
    return Forecast(
        len(rows),
        epochs,
        steps * epochs,
        seconds,
        hours,
        peak_memory(job.setup.device),
        disk,
        free,
        _nearest(job.target) if job.target and _measures(config) else _episode(job),
        problems,
        job.notes,
        len(timed),
        low,
        high,
        savings(job, hours, time.perf_counter() + SAVINGS_FOR) if hours > LONG else [],
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
    """Bytes of the run directory if everything were kept: shards, a model an epoch and two full checkpoints, ledger."""
    shards = sum(shard.size for shard in job.index.shards)
    state = checkpoint.model_state(job.setup.network, job.state.theta)
    model = sum(x.numel() * x.element_size() for x in state.values())
    # The ledger and manifest of an epoch measured 20 to 40 bytes an example, names included.
    return shards + model * (epochs + 4) + 40 * images * epochs


def _timed_steps(job: Job, rows: Ints, batch: int, deadline: float) -> tuple[list[float], int]:
    """Seconds of each timed step, and the images trained on; the first step counts only where there are no others."""
    job = replace(job, state=engine.begin(job.setup, job.state.method))
    some = job.images.order(rows, job.config.seed, 1)[: batch * (STEPS + 1)]
    visit = torch.zeros(len(some), dtype=torch.int64, device=job.setup.device)
    at = torch.from_numpy(np.sort(some)).to(job.setup.device)
    job.state.method.begin_epoch(at, visit, 1)
    marks: list[float] = []
    warmed = replace(job.config, belief=replace(job.config.belief, warmup=0))
    setup = replace(job.setup, config=warmed)
    batches = _marked(job.images.batches(some, batch), marks, setup.device, deadline)
    try:
        totals, _ = engine.train_epoch(setup, job.state, 1, batches)
    except torch.cuda.OutOfMemoryError as error:
        raise CurateError(f"CUDA out of memory at --batch {batch}; try --batch {max(2, batch // 2)}") from error
    seconds = np.diff(marks).tolist()
    return (seconds[1:] if len(seconds) > FEWEST else seconds), totals.images


def _marked(batches: Iterable[Pixels], marks: list[float], device: torch.device, deadline: float) -> Iterator[Pixels]:
    """The batches, until the deadline but for the first `FEWEST`; when each was asked for goes to ``marks``."""
    for batch in batches:
        _mark(marks, device)
        if len(marks) > FEWEST and marks[-1] > deadline:
            return
        yield batch
    _mark(marks, device)


def _mark(marks: list[float], device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
    marks.append(time.perf_counter())


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
