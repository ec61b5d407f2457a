"""One pass of a job over its store: what a run and a plain pre-training do alike."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curate import ranks
from curate.data.decode import Pixels
from curate.errors import CurateError, NothingLeft
from curate.progress import Progress
from curate.runs import hand_over, midway, stopping
from curate.runs.prepare import Job
from curate.training import engine
from curate.types import Ints

_STOPPING = "stopping when this step is done and saved; once more stops now"


def train_on(
    job: Job, out: Path, rows: Ints, epoch: int, progress: Progress, most_steps: int | None = None
) -> tuple[engine.Totals, dict[str, float]]:
    """Train one epoch on ``rows``, or its first ``most_steps``; count the visits, and note what does not decode.

    Goes on in its midst where an earlier call saved it there in ``out``, and saves it there itself. Over several ranks
    each trains on its part of every batch; the first calls this, and has the others call it (`curate.runs.follow`).
    """
    hand_over.lead(job, epoch, most_steps)
    size, device = job.config.train.batch, job.setup.device
    ordered = job.images.order(rows, job.config.seed, epoch)
    ordered = ordered[: visited(len(ordered), size, job.setup.pretext.couples, most_steps)]
    if len(ordered) < len(rows):
        rows = np.sort(ordered)
    visit = np.empty(len(rows), np.int64)
    visit[np.searchsorted(rows, ordered)] = job.state.step + np.arange(len(rows)) // size
    at = torch.from_numpy(rows).to(device)
    begun, busy = time.perf_counter(), time.thread_time()
    job.state.method.begin_epoch(at, torch.from_numpy(visit).to(device), epoch)
    totals = engine.Totals.fresh(device)
    one = midway.Pass(job, out, epoch, ordered, totals, job.state.step)
    done = midway.take_up(one, progress)
    if not ranks.is_common(done):
        raise CurateError(f"{out}: not every rank sees the same files in it; name a folder that all machines share")
    totals.seconds["step"] += time.perf_counter() - begun
    totals.cpu_seconds += time.thread_time() - busy
    batches = _counted(job, job.images.batches(ordered, size, done), epoch, len(rows), min(done * size, len(rows)))
    try:
        with stopping.postponed(partial(progress.note, _STOPPING)) as stop:
            watched = midway.saving(one, batches, stop, progress) if ranks.is_first() else batches
            engine.train_epoch(job.setup, job.state, epoch, watched, progress.step, totals)
    except torch.cuda.OutOfMemoryError as error:
        raise CurateError(
            f"CUDA out of memory in epoch {epoch} at --batch {size} --crop {job.config.images.crop}; "
            f"`--dry-run --batch {max(2, size // 2)}` says whether half of it fits"
        ) from error
    job.state.method.end_epoch(at, job.state.step)
    return totals, totals.seconds


def visited(images: int, batch: int, couples: bool, most_steps: int | None = None) -> int:
    """How many of an epoch's images are trained on: all, or those of its first ``most_steps``.

    Where a pretext sets the images of a batch against one another, not those of a last batch that is less than half:
    with two images the contrast is nothing and batch norm goes by two, which costs more than a whole step brings.

    >>> visited(514, 64, couples=True), visited(514, 64, couples=False), visited(20, 64, couples=True)
    (512, 514, 20)
    """
    if couples and images > batch and images % batch < batch / 2:
        images -= images % batch
    return images if most_steps is None else min(images, most_steps * batch)


def fewest_kept(batch: int, decodable: int) -> int:
    """What pruning must leave: a batch; of a store smaller than one, as many as can be trained on."""
    return batch if decodable >= batch else engine.FEWEST


def _counted(job: Job, batches: Iterator[Pixels], epoch: int, wanted: int, found: int) -> Iterator[Pixels]:
    """Note what was trained on and what does not decode; together that is every image that the epoch was to visit.

    Args:
        wanted: images of the epoch.
        found: those that came before.
    """
    for batch in batches:
        found += len(batch.rows) + len(batch.bad)
        for row, code in batch.bad:
            job.examples.error[row] = code
        if len(batch.rows) >= engine.FEWEST:
            job.examples.visits[batch.rows.numpy()] += 1
        yield batch
    if found != wanted:
        raise CurateError(
            f"epoch {epoch}: {found} images came, {wanted} were to be visited; run the same command again"
        )


def refuse_undecodable(job: Job) -> None:
    """Say so where hardly an image of the store decodes.

    Raises:
        NothingLeft: too few to train on.
    """
    found = int((job.examples.error == 0).sum())
    if found < engine.FEWEST:
        raise NothingLeft(
            f"{job.config.store}: only {found} of {len(job.index)} samples have an image that decodes, training needs "
            f"{engine.FEWEST}; `curate index --check` names what is wrong with the others"
        )


def numbers_of(job: Job, totals: engine.Totals, epoch: int, seconds: dict[str, float]) -> dict[str, Any]:
    """What an epoch's line of metrics.jsonl says of its training."""
    return {
        **totals.numbers(),
        "learning_rate": engine.learning_rate(job.config, epoch, max(0, job.state.step - 1)),
        "cpu_seconds": totals.cpu_seconds,
        "images_per_second": totals.images / max(1e-9, seconds["load"] + seconds["step"]),
        "peak_memory": peak_memory(job.setup.device),
    }


def peak_memory(device: torch.device) -> int:
    """The most bytes this process has held so far: of the device's memory on CUDA, else of main memory."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
