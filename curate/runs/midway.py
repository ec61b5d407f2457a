"""A checkpoint in the midst of an epoch: where an epoch takes days, a kill costs minutes.

``checkpoints/epoch=0003-step=00001500`` holds what the checkpoint of an epoch holds, and the epoch's sums so far. What
the method drew at the beginning of the epoch is not in it: it is drawn again, by key, from the state that the epoch
began with. There is one at a time; the next one, or the epoch's own checkpoint, takes its place when it is complete.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from curate.config.intervals import Interval
from curate.data.decode import Pixels
from curate.errors import CurateError
from curate.progress import Progress
from curate.runs import checkpoint
from curate.runs.prepare import Job
from curate.runs.stopping import Stop
from curate.training import engine
from curate.types import Ints
from shards.io.atomic import sync_folder
from shards.io.json_files import convert

_TOTALS = "totals.safetensors"
_SUMS = ("sums", "first_bad")
_BEGIN_AGAIN = "remove its folder to begin the epoch again"


@dataclass(frozen=True)
class Pass:
    """One pass over the store, as a checkpoint in its midst needs it.

    Args:
        out: the run directory.
        ordered: shape (m,), int64: the rows in the order in which they are visited.
        totals: the epoch's sums, which the engine goes on with.
        begun: the run's steps before it.
    """

    job: Job
    out: Path
    epoch: int
    ordered: Ints
    totals: engine.Totals
    begun: int

    @property
    def batches(self) -> int:
        """Steps of the whole pass."""
        return -(-len(self.ordered) // self.job.config.train.batch)

    @property
    def done(self) -> int:
        """Steps of it that are done."""
        return self.job.state.step - self.begun

    def key(self, done: int) -> str:
        """A sha256 of what its first ``done`` steps depend on beside the run's id and the state it began with: who is
        visited when, and the learning rate."""
        rates = [engine.learning_rate(self.job.config, self.epoch, self.begun + at) for at in (0, max(0, done - 1))]
        digest = hashlib.sha256(np.ascontiguousarray(self.ordered).data)
        digest.update(np.array(rates).data)
        return digest.hexdigest()


class _Sums(TypedDict):
    """What the marker says beside an epoch's: sums that are no tensors."""

    key: str
    steps: int
    images: int
    cpu_seconds: float
    seconds: dict[str, float]


class _Marker(checkpoint.Marker):
    sums: _Sums


def found(out: Path, epoch: int) -> dict[str, Any] | None:
    """What the marker of the checkpoint in the midst of an epoch says; None where there is none.

    Raises:
        CurateError: it is damaged.
    """
    if (at := _last(out, epoch)) is None:
        return None
    record = checkpoint.read_marker(at, _BEGIN_AGAIN)
    try:
        convert(record, _Marker)
    except ValueError as error:
        raise CurateError(f"{at / checkpoint.MARKER}: is damaged ({error}); {_BEGIN_AGAIN}") from error
    return record


def remove_others(out: Path, epoch: int) -> None:
    """Remove all of them but that of an epoch, such as a kill leaves."""
    _remove(out, _last(out, epoch))


def take_up(one: Pass, progress: Progress) -> int:
    """Go on in the midst of an epoch, where there is a checkpoint of its. Returns the steps that are done.

    Args:
        one: its job in the state that the epoch began with, the method's draws made.

    Raises:
        CurateError: the checkpoint is damaged.
    """
    record = found(one.out, one.epoch)
    at = _last(one.out, one.epoch)
    if record is None or at is None:
        return 0
    sums, done = record["sums"], record["step"] - one.begun
    if sums["key"] != one.key(done):
        progress.note(f"epoch {one.epoch} begins again: {at.name} is of another order of the images, or learning rate")
        return 0
    job, totals = one.job, one.totals
    checkpoint.take_up(at, job.setup.network, job.state, job.examples, _BEGIN_AGAIN)
    tensors = checkpoint.read(at / _TOTALS, _BEGIN_AGAIN)
    for name in _SUMS:
        setattr(totals, name, tensors[name].to(job.setup.device))
    columns = [column.to(job.setup.device) for column in tensors["pending"]]
    totals.pending = [(step, parts.unbind()) for step, parts in zip(tensors["pending_steps"].tolist(), columns)]
    totals.steps, totals.images, totals.cpu_seconds = sums["steps"], sums["images"], sums["cpu_seconds"]
    totals.seconds |= sums["seconds"]
    progress.skip(min(done * job.config.train.batch, len(one.ordered)))
    return int(done)


def saving(one: Pass, batches: Iterator[Pixels], stop: Stop, progress: Progress) -> Iterator[Pixels]:
    """The batches; when the next one is asked for, the step of the one before is done, and now and then is saved.

    Where somebody asked to stop, the last thing that is done is to save.
    """
    every, clock, busy = _interval(one.job), time.monotonic(), time.thread_time() - one.totals.cpu_seconds
    saved = one.done
    for batch in batches:
        yield batch
        over = every.is_over(one.done - saved, time.monotonic() - clock) and one.done < one.batches
        if every != Interval() and (over or stop.number):
            one.totals.cpu_seconds = time.thread_time() - busy
            written = _save_timed(one, progress)
            clock, saved = time.monotonic(), one.done
            if stop.number and written:
                _stop(one, stop, progress)
        if stop.number:
            stop.obey()


def _stop(one: Pass, stop: Stop, progress: Progress) -> None:
    """Obey, and say where the work goes on: whoever ends by Ctrl-C says it last, and SIGTERM leaves no time after."""
    where = f"stopped in epoch {one.epoch} after {one.done} of {one.batches} steps; the same command goes on there"
    if stop.number != signal.SIGINT:
        progress.note(where)
    stop.obey(where)


def _interval(job: Job) -> Interval:
    return Interval.parse(job.config.machine.checkpoint_every)


def _save_timed(one: Pass, progress: Progress) -> bool:
    """Save, and count the time where it belongs; the engine takes it for a wait for data. Whether it was written.

    A disk that is full is no reason to stop: the epoch goes on, and its own checkpoint will say so.
    """
    begun, written = time.perf_counter(), True
    try:
        _save(one)
    except OSError as error:
        progress.note(f"no checkpoint in epoch {one.epoch} after {one.done} steps: {error.filename}: {error.strerror}")
        at = _folder(one.out, one.epoch, one.job.state.step)
        written = _counts(at)  # where it is only the old one that would not go
        if not written:
            shutil.rmtree(at, ignore_errors=True)
    spent, seconds = time.perf_counter() - begun, one.totals.seconds
    seconds["load"] -= spent
    seconds["checkpoint"] = seconds.get("checkpoint", 0.0) + spent
    return written


def _save(one: Pass) -> None:
    job, totals = one.job, one.totals
    at = _folder(one.out, one.epoch, job.state.step)
    checkpoint.write(at, job.setup.network, job.state, job.examples)
    checkpoint.write_tensors(at / _TOTALS, _tensors(totals))
    sums: _Sums = {
        "key": one.key(one.done),
        "steps": totals.steps,
        "images": totals.images,
        "cpu_seconds": totals.cpu_seconds,
        "seconds": totals.seconds,
    }
    checkpoint.mark(at, one.epoch, job.state, job.generation, (_TOTALS,), sums=sums)
    sync_folder(at.parent)
    _remove(one.out, at)


def _tensors(totals: engine.Totals) -> dict[str, Tensor]:
    """The sums, and what is not added up yet: as the order of adding up decides the last digits, it stays so."""
    steps = torch.tensor([step for step, _ in totals.pending], dtype=torch.int64)
    rows = [torch.stack([part.double() for part in parts]) for _, parts in totals.pending]
    pending = torch.stack(rows) if rows else torch.empty((0, 7), dtype=torch.float64)
    return {**{name: getattr(totals, name) for name in _SUMS}, "pending_steps": steps, "pending": pending}


def _folder(out: Path, epoch: int, step: int) -> Path:
    return checkpoint.folder(out, epoch).with_name(f"{checkpoint.folder(out, epoch).name}-step={step:08d}")


def _last(out: Path, epoch: int) -> Path | None:
    """The last complete one of an epoch."""
    complete = {step: path for (of, step), path in checkpoint.midway_in(out).items() if of == epoch and _counts(path)}
    return complete[max(complete)] if complete else None


def _counts(path: Path) -> bool:
    return (path / checkpoint.MARKER).exists()


def _remove(out: Path, but: Path | None) -> None:
    for path in checkpoint.midway_in(out).values():
        if path != but:
            checkpoint.remove(path)
