"""A grid search that may be stopped at any time: what was trained is a file, and is not trained again.

    OUT/cells/NAME.json   the trace of a cell, as far as it was trained
    OUT/result.json       the picked cell and its score; written when all is trained
    OUT/seconds.json      time spent on each; all else is the same, byte for byte, when it is done again

No network is stored: a cell that a kill leaves half way, and one that goes on to a longer rung after a kill, is trained
again from its start, and repeats itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from curate.data.target import refuse_gaps
from curate.errors import CurateError, NonFinite
from curate.evaluation.finetune import Split, Task, Training, evaluate, final, reproducible
from curate.evaluation.grid import Cell, Epoch, Grid, Positive, Rung, Share, Trace, check_drops, picked, ranked, rungs
from shards.io.json_files import convert, parse_json, version_in, write_json
from shards.io.regular_files import read_regular

T = TypeVar("T")

#: Format and version of the files.
FORMAT, VERSION = "search", 1
_HEAD = {"format": FORMAT, "version": VERSION}
SECONDS = "seconds.json"
#: Told what is trained, the epochs done and those to do in all, as far as is known.
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Found:
    """What a search found.

    Args:
        cell: the best by val accuracy.
        epochs: its best epoch, and the length of the final training.
        drops: the epochs before it after which the rate fell, there and in the final training.
        val_accuracy: at that epoch, trained on train alone, in [0, 1].
        test_accuracy: after the final training on train and val, in [0, 1].
    """

    cell: Cell
    epochs: Epoch
    drops: tuple[Epoch, ...]
    val_accuracy: Share
    test_accuracy: Share

    def __post_init__(self) -> None:
        check_drops(self.drops, self.epochs)


@dataclass(frozen=True)
class Seconds:
    """The content of seconds.json: wall-clock seconds of each part of a search, over all calls."""

    seconds: dict[str, Positive]


class Log:
    """The progress of a search: epochs done, passed on to ``tell``; seconds by part, written to seconds.json."""

    def __init__(self, out: Path, tell: Tell | None, total: int) -> None:
        self.out, self.tell, self.total, self.done = out, tell, total, 0
        self.clock, self.seconds = time.perf_counter(), spent(out)

    def epoch(self, part: str) -> None:
        """Count a finished epoch of ``part``."""
        self.done += 1
        if self.tell is not None:
            self.tell(part, self.done, self.total)

    def spent(self, part: str) -> None:
        """Add the seconds since the last call to ``part``, and write seconds.json."""
        now = time.perf_counter()
        self.seconds[part] = round(self.seconds.get(part, 0.0) + now - self.clock, 3)
        write_json(self.out / SECONDS, {**_HEAD, "seconds": self.seconds})
        self.clock = now


def search(task: Task, test: Split, grid: Grid, out: Path, tell: Tell | None = None) -> Found:
    """Train the cells, pick one, train it on train and val, score test; goes on where an earlier call was stopped.

    Args:
        task: network and data, the same at every call into ``out``.
        test: looked at once, at the end.
        grid: as at the call before, if there was one.
        out: a folder of its own.
        tell: called after each epoch with the part, the epochs done and those in all.

    Raises:
        CurateError: a class that train lacks; all cells failed; a stored file is damaged.
        NonFinite: the final training diverged.
    """
    found = stored(out)
    if found is not None:
        return found
    refuse_gaps(task.train.labels.cpu().numpy(), task.classes)
    log = Log(out, tell, work(grid))
    with reproducible():
        traces, finalists = climb(task, grid, log)
        cell = picked(traces, finalists)
        found = _finish(task, test, cell, traces[cell], log)
    log.spent("final")  # before the result, after which no call comes so far
    write_json(out / "result.json", {**_HEAD, **asdict(found)})
    return found


def stored(out: Path) -> Found | None:
    """The result of a finished search; None where it is not finished.

    Raises:
        CurateError: the file is damaged.
    """
    return _read(out / "result.json", Found)


def spent(out: Path) -> dict[str, float]:
    """Seconds that all calls into ``out`` spent on parts that they finished, by part.

    Raises:
        CurateError: the file is damaged.
    """
    found = _read(out / SECONDS, Seconds)
    return {} if found is None else found.seconds


def total_seconds(out: Path) -> float:
    """Wall-clock seconds of all parts of a search, over all calls."""
    return round(sum(spent(out).values()), 3)


def climb(task: Task, grid: Grid, log: Log) -> tuple[dict[Cell, Trace], list[Cell]]:
    """Train the cells rung by rung. Returns every cell's trace, and the cells of the last rung.

    Cells that are to go on stay in memory with their networks.
    """
    traces: dict[Cell, Trace] = {}
    live: dict[Cell, Training] = {}
    cells = list(grid.cells)
    for rung in rungs(grid):
        if traces:
            best = ranked({cell: traces[cell] for cell in cells})[: rung.keep]
            cells = [cell for cell in cells if cell in best]
            live = {cell: training for cell, training in live.items() if cell in best}
        for cell in cells:
            traces[cell] = _trace(task, cell, rung, live, log)
            if rung.until == grid.epochs:
                live.pop(cell, None)
    return traces, cells


def work(grid: Grid) -> int:
    """Epochs that a search trains at most, the final training included."""
    return sum(rung.keep * (rung.until - rung.since) for rung in rungs(grid)) + grid.epochs


def _trace(task: Task, cell: Cell, rung: Rung, live: dict[Cell, Training], log: Log) -> Trace:
    """The trace of a cell at the end of a rung: as stored, or by taking its training there and storing it."""
    path = log.out / "cells" / f"{cell.name}.json"
    trace = _read(path, Trace) or Trace()
    if trace.covers(rung.until):
        log.total -= rung.until - rung.since
        return trace.until(rung.until)
    if cell not in live:
        live[cell] = Training(task, cell)
        log.total += rung.since  # again, after a kill
    training = live[cell]
    while not training.trace.covers(rung.until):
        training.epoch()
        log.epoch(cell.name)
    write_json(path, {**_HEAD, "cell": asdict(cell), **asdict(training.trace)})
    log.spent(cell.name)
    return training.trace


def _finish(task: Task, test: Split, cell: Cell, trace: Trace, log: Log) -> Found:
    """The final training and the test accuracy."""
    epochs = trace.best_epoch
    drops = tuple(drop for drop in trace.drops if drop < epochs)
    log.total = log.done + epochs
    network = final(task, cell, epochs, drops, lambda: log.epoch("final"))
    if network is None:
        raise NonFinite(f"fine-tuning on train and val with {cell.name}: the loss is not finite; give smaller rates")
    accuracy, _ = evaluate(task, network, test)
    return Found(cell, epochs, drops, trace.val_accuracy[epochs - 1], accuracy)


def _read(path: Path, kind: type[T]) -> T | None:
    """What a file of a search says, None where there is none.

    Raises:
        CurateError: it is damaged, or of another version.
    """
    lost = "remove it; only times are lost" if path.name == SECONDS else "remove it to train that again"
    try:
        record = parse_json(read_regular(path))
        if (version := version_in(record, FORMAT)) not in (None, VERSION):
            raise CurateError(f"{path}: version {version}, this release reads {VERSION}; {lost}")
        return convert(record, kind)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CurateError(f"{path}: is damaged ({error}); {lost}") from error
