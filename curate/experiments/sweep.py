"""An experiment as independent cells: each computed once, its result a JSON file, several at a time in processes.

A cell is a frozen dataclass of plain values, and its result holds it, so that a folder of cells of another experiment
is refused, and what an earlier call finished is never computed again.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits

from curate.errors import CurateError, Misuse
from curate.progress import counting
from shards.io.json_files import convert, json_bytes, parse_json, said_in, write_json
from shards.io.processes import awaiting_workers, exit_with_parent, starting_workers
from shards.io.regular_files import read_regular

Result = dict[str, Any]
C = TypeVar("C")


def run_cells(
    work: Callable[[C], Result],
    cells: Mapping[str, C],
    out: Path,
    label: str,
    processes: int = 1,
    kind: type = dict,
) -> dict[str, Result]:
    """The result of every cell, by name, in the order of ``cells``.

    Args:
        work: a function of a module, so that another process finds it; computes one cell.
        cells: name -> cell, a frozen dataclass of JSON's values.
        out: ``NAME.json`` of each finished cell; names may hold slashes.
        label: before the bar.
        processes: cells at a time, each on one thread.
        kind: a TypedDict, what a result that lies there must hold.

    Raises:
        Misuse: ``out`` holds a cell of that name with other settings.
        CurateError: a file there is damaged.
        ShardError: a process cannot be started, or was killed.
    """
    found = {name: earlier(out, name, cell, kind) for name, cell in cells.items()}
    todo = {name: cells[name] for name, result in found.items() if result is None}
    with counting(label, "cell", len(cells), len(cells) - len(todo)) as tell:
        for name, result in computed(work, todo, processes):
            write_json(place(out, name), {"cell": plain(cells[name]), "result": result})
            found[name] = result
            tell(name)
    return {name: parse_json(read_regular(place(out, name)))["result"] for name in cells}


def earlier(out: Path, name: str, cell: Any, kind: type = dict) -> Result | None:
    """What an earlier call found of this very cell; None where it did not come to it.

    Args:
        kind: as of `run_cells`.

    Raises:
        Misuse: the file is of other settings; they are named.
        CurateError: the file is damaged.
    """
    path = place(out, name)
    if not path.exists():
        return None
    try:
        held = parse_json(read_regular(path))
        settings, result = {**held["cell"]}, {**held["result"]}
        convert(result, kind)
    except (ValueError, KeyError, TypeError) as error:
        raise CurateError(f"{path}: is damaged ({error!r:.80}); remove it, and its cell is computed again") from error
    wanted = plain(cell)
    if settings != wanted:
        other = [key for key in wanted if settings.get(key) != wanted[key]]
        raise Misuse(f"{path}: holds another experiment ({', '.join(other)} differ); name a new --out")
    return result


def computed(work: Callable[[C], Result], cells: Mapping[str, C], processes: int) -> Iterator[tuple[str, Result]]:
    """Each cell's result as it is done; the first failure ends the others that have not begun."""
    if processes <= 1 or len(cells) <= 1:
        one_thread()
        for name, cell in cells.items():
            yield name, work(cell)
        return
    # Started afresh: a forked process would inherit torch's threads in the middle of things.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        with starting_workers(fresh=True, option="--processes"):
            pool = ProcessPoolExecutor(processes, mp_context=context, initializer=begin_process)
            stack.callback(pool.shutdown, cancel_futures=True)
            names: dict[Future[Result], str] = {pool.submit(work, cell): name for name, cell in cells.items()}
        for future in as_completed(names):
            with awaiting_workers("--processes"):
                result = future.result()
            yield names[future], result


def claim(out: Path, cells: Mapping[str, Any]) -> None:
    """Take ``out`` for exactly these cells, so that what is written beside them is always of one experiment.

    Raises:
        Misuse: it was taken for others, or cannot be read any more.
    """
    path, record = out.parent / f"{out.name}.json", {name: plain(cell) for name, cell in cells.items()}
    if not path.exists():
        write_json(path, record)
    elif said_in(path) != record:
        raise Misuse(f"--out {out.parent}: holds an experiment with other settings; name a new --out")


def begin_process() -> None:
    """One thread, a quiet end at Ctrl-C, and no longer a life than the process that asked for it."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # it was born deaf
    one_thread()
    exit_with_parent()


def one_thread() -> None:
    """Networks this small gain nothing from threads, and threads that wait for one another are slow.

    For the rest of this process and of those that it starts: scipy and scikit-learn bring thread pools of their own,
    which read the variable when they are loaded, at the first fit.
    """
    torch.set_num_threads(1)
    threadpool_limits(1)
    os.environ["OMP_NUM_THREADS"] = "1"


def place(out: Path, name: str) -> Path:
    """Where a cell's result lies."""
    return out / f"{name}.json"


def plain(cell: Any) -> Any:
    """A cell as JSON gives it back."""
    return parse_json(json_bytes(dataclasses.asdict(cell)))
