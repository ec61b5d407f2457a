"""How long a step of a run takes, found out in a given time: by whole steps where these fit, else by parts of one.

A step on a part of its images takes longer than that share of a whole one, as the target's batch is as large as ever;
and it takes no longer than a whole one. So two parts of different size tell an interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from curate.data.decode import Pixels
from curate.errors import CurateError
from curate.runs.prepare import Job
from curate.training import engine
from curate.types import Ints

#: Whole steps that are timed, after one that warms up; fewer where the time is over before, but never less than two.
STEPS, FEWEST = 5, 2
#: The parts of a step that are timed first, and where whole ones take too long.
EIGHTH, QUARTER = 8, 4


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a whole step.

    Args:
        low, high: between which it lies.
        middle: the likeliest.
        steps: timed.
        how: what was timed, in words.
        trained: images that were trained on.
    """

    low: float
    middle: float
    high: float
    steps: int
    how: str
    trained: int


def time_steps(job: Job, rows: Ints, batch: int, seconds: float) -> StepTimes:
    """Time steps of a run for about ``seconds``; nothing of the job is moved but what its method has drawn.

    Args:
        rows: shape (m,), int64: what the run trains on.

    Raises:
        CurateError: CUDA out of memory, with the batch that may fit.
    """
    deadline = time.perf_counter() + seconds
    eighth, quarter = (max(engine.FEWEST, min(batch, len(rows)) // part) for part in (EIGHTH, QUARTER))
    parts, trained = _seconds(job, rows, eighth, 2, deadline, 1)
    if parts[-1] * min(batch, len(rows)) / eighth * (FEWEST + 1) < deadline - time.perf_counter():
        timed, more = _seconds(job, rows, batch, STEPS + 1, deadline, FEWEST)
        timed = timed[1:] if len(timed) > FEWEST else timed
        how = f"the fastest and slowest of {len(timed)} steps"
        return StepTimes(min(timed), float(np.median(timed)), max(timed), len(timed), how, trained + more)
    one = parts[-1]
    if time.perf_counter() + one > deadline or quarter == eighth:
        how = f"a step of {eighth} images in {one:.3g} s, where a whole one has {batch}"
        return StepTimes(one, one * batch / eighth, one * batch / eighth, 1, how, trained)
    other, more = _seconds(job, rows, quarter, 1, deadline, 1)
    two = max(one, other[0])
    along = two + (two - one) / (quarter - eighth) * (batch - quarter)
    how = f"steps of {eighth} images in {one:.3g} s and of {quarter} in {two:.3g} s, where a whole one has {batch}"
    return StepTimes(along, along, two * batch / quarter, 2, how, trained + more)


def _seconds(job: Job, rows: Ints, size: int, count: int, deadline: float, fewest: int) -> tuple[list[float], int]:
    """Seconds of each of ``count`` steps of ``size`` images, ``fewest`` at least; and the images trained on."""
    job = replace(job, state=engine.begin(job.setup, job.state.method))
    some = job.images.order(rows, job.config.seed, 1)[: size * count]
    visit = torch.zeros(len(some), dtype=torch.int64, device=job.setup.device)
    at = torch.from_numpy(np.sort(some)).to(job.setup.device)
    job.state.method.begin_epoch(at, visit, 1)
    marks: list[float] = []
    warmed = replace(job.config, belief=replace(job.config.belief, warmup=0))
    setup = replace(job.setup, config=warmed)
    batches = _marked(job.images.batches(some, size), marks, setup.device, deadline, fewest)
    try:
        totals, _ = engine.train_epoch(setup, job.state, 1, batches)
    except torch.cuda.OutOfMemoryError as error:
        raise CurateError(f"CUDA out of memory at --batch {size}; try --batch {max(2, size // 2)}") from error
    return np.diff(marks).tolist(), totals.images


def _marked(
    batches: Iterable[Pixels], marks: list[float], device: torch.device, deadline: float, fewest: int
) -> Iterator[Pixels]:
    """The batches, until the deadline but for the first ``fewest``; when each was asked for goes to ``marks``."""
    for batch in batches:
        _mark(marks, device)
        if len(marks) > fewest and marks[-1] > deadline:
            return
        yield batch
    _mark(marks, device)


def _mark(marks: list[float], device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
    marks.append(time.perf_counter())
