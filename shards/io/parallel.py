"""The one way in which a stage does its work shard by shard: a pure task, mapped over shards, results in order.

Owns how tasks are spread over processes, and who is told how far they are. What a task does, and how its results are
joined, belongs to the stages. A cluster (Slurm array, Ray) comes in here and nowhere else.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from shards.errors import Misuse

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds of work that are done in this process before others are started: a small set never waits for them.
ALONE_S = 0.5
#: Told how many tasks of how many are done.
Watch = Callable[[int, int], None]
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(by: Watch) -> Iterator[None]:
    """Tell ``by`` how far every `map_shards` in this block is."""
    before = _watch.set(by)
    try:
        yield
    finally:
        _watch.reset(before)


def map_shards(task: Callable[[Item], Result], items: Sequence[Item], workers: int = 1) -> Iterator[Result]:
    """Yield ``task(item)`` for every item, in the order of ``items``, whatever the number of workers.

    Args:
        task: a function of a module (or a `functools.partial` of one), so that another process can find it.
        items: what the task is done for, usually one a shard.
        workers: processes; 1 works in this process. More than there are items are not started, and none before
            `ALONE_S` seconds of work are done.

    Raises:
        Misuse: ``workers`` is below 1.
        Whatever the first failing task (in the order of ``items``) raises; tasks not yet begun are dropped then.
    """
    if workers < 1:
        raise Misuse("the number of workers is too small", expected="at least 1", found=workers)
    watch = _watch.get()
    for n_done, result in enumerate(_results(task, items, workers), start=1):
        if watch is not None:
            watch(n_done, len(items))
        yield result


def _results(task: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    started = time.monotonic()
    for place, item in enumerate(items):
        n_processes = min(workers, len(items) - place)
        if n_processes > 1 and time.monotonic() - started >= ALONE_S:
            yield from _spread(task, items[place:], n_processes)
            return
        yield task(item)


def _spread(task: Callable[[Item], Result], items: Sequence[Item], n_processes: int) -> Iterator[Result]:
    # Fresh processes: a fork of a process that has threads (torch, pyarrow) may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(n_processes, mp_context=context, initializer=ignore_interrupt)
    try:
        yield from pool.map(task, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def ignore_interrupt(*_: object) -> None:
    """For worker processes: Ctrl-C reaches all of them, and it is the process that started them that ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
