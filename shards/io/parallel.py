"""The one way in which a stage does its work shard by shard: a pure task, mapped over shards, results in order.

Owns how tasks are spread over processes, and who is told how far they are. What a task does, and how its results are
joined, belongs to the stages. A cluster (Slurm array, Ray) comes in here and nowhere else.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from multiprocessing.connection import Connection
from typing import TypeVar

from shards.errors import Misuse, ShardError
from shards.io import bus_error, processes

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds of work that are done in this process before others are started: a small set never waits for them.
SERIAL_S = 0.5
#: Told how many tasks of how many are done.
ProgressCallback = Callable[[int, int], None]
_progress: ContextVar[ProgressCallback | None] = ContextVar("watch", default=None)


@contextmanager
def on_progress(by: ProgressCallback) -> Iterator[None]:
    """Tell ``by`` how far every `map_shards` in this block is."""
    before = _progress.set(by)
    try:
        yield
    finally:
        _progress.reset(before)


def default_workers() -> int:
    """One process for each core that this process may use, at most 8."""
    return min(8, len(os.sched_getaffinity(0)))


def map_shards(task: Callable[[Item], Result], items: Sequence[Item], workers: int = 1) -> Iterator[Result]:
    """Yield ``task(item)`` for every item, in the order of ``items``, whatever the number of workers.

    Args:
        task: a function of a module (or a `functools.partial` of one), so that another process can find it.
        items: what the task is done for, usually one a shard.
        workers: processes; 1 works in this process. More than there are items are not started, and none before
            `SERIAL_S` seconds of work are done.

    Raises:
        Misuse: ``workers`` is below 1.
        ShardError: processes cannot be started, or one was killed.
        Whatever the first failing task (in the order of ``items``) raises; tasks not yet begun are dropped then.
    """
    if workers < 1:
        raise Misuse("the number of workers is too small", expected="at least 1", found=workers)
    watch = _progress.get()
    for n_done, result in enumerate(_results(task, items, workers), start=1):
        if watch is not None:
            watch(n_done, len(items))
        yield result


def _results(task: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    started = time.monotonic()
    for place, item in enumerate(items):
        n_processes = min(workers, len(items) - place)
        if n_processes > 1 and time.monotonic() - started >= SERIAL_S:
            yield from _in_processes(task, items[place:], n_processes)
            return
        yield task(item)


def _in_processes(task: Callable[[Item], Result], items: Sequence[Item], n_processes: int) -> Iterator[Result]:
    # Fresh processes: a fork of a process that has threads (torch, pyarrow) may hang.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        with processes.starting_workers(fresh=True):
            heard, told = context.Pipe(duplex=False)
            stack.enter_context(heard)
            stack.enter_context(told)
            pool = ProcessPoolExecutor(n_processes, mp_context=context, initializer=init_worker, initargs=(told,))
            stack.callback(pool.shutdown, cancel_futures=True)
            results = pool.map(task, items)
        try:
            with processes.awaiting_workers():
                yield from results
        except ShardError:
            if heard.poll():
                raise heard.recv() from None
            raise


def init_worker(told: Connection) -> None:
    """What a process of the pool does first.

    Args:
        told: where its last words go, should a shard become shorter while it is read.
    """
    processes.init_worker()
    bus_error.install_handler(told.send)
