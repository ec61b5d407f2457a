"""A parallel map over shards: a pure task for every item, in this process or a pool, results in order.

Owns how tasks are spread over processes, and the progress callback. A cluster (Slurm array, Ray) would come in here.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from multiprocessing.connection import Connection
from typing import TypeVar

from shards.errors import Misuse, ShardError
from shards.io import bus_error, processes
from shards.io.cores import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds of work done in this process before others are started: small sets never wait for their start.
SERIAL_S = 0.5
#: Called with the number of tasks done, and of all.
ProgressCallback = Callable[[int, int], None]
_progress: ContextVar[ProgressCallback | None] = ContextVar("watch", default=None)


@contextmanager
def on_progress(by: ProgressCallback) -> Iterator[None]:
    """Call ``by(done, total)`` after every task of any `map_shards`, and every item of any `watched`, in this block."""
    before = _progress.set(by)
    try:
        yield
    finally:
        _progress.reset(before)


def default_workers() -> int:
    """One process for each core that this process may use, at most 8."""
    return min(8, usable_cores())


def map_shards(task: Callable[[Item], Result], items: Sequence[Item], workers: int = 1) -> Iterator[Result]:
    """Yield ``task(item)`` for every item, in the order of ``items``, whatever the number of workers.

    Args:
        task: a module-level function, or a `functools.partial` of one, so that it can be pickled.
        items: usually one a shard.
        workers: processes; 1 works in this process. No more are started than there are items, and none before
            `SERIAL_S` seconds of work are done here.

    Raises:
        Misuse: ``workers`` is below 1.
        ShardError: processes cannot be started, or one was killed.
        Whatever the first failing task, in the order of ``items``, raises; tasks not yet begun are cancelled.
    """
    if workers < 1:
        raise Misuse("the number of workers is too small", expected="at least 1", found=workers)
    watch = _progress.get()
    for n_done, result in enumerate(_results(task, items, workers), start=1):
        if watch is not None:
            watch(n_done, len(items))
        yield result


def watched(items: Sequence[Item]) -> Iterator[Item]:
    """The items, for work of one process: whoever watches hears of each when the next is asked for."""
    watch = _progress.get()
    for n_done, item in enumerate(items, start=1):
        yield item
        if watch is not None:
            watch(n_done, len(items))


def _results(task: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    started = time.monotonic()
    for position, item in enumerate(items):
        n_processes = min(workers, len(items) - position)
        if n_processes > 1 and time.monotonic() - started >= SERIAL_S:
            yield from _in_processes(task, items[position:], n_processes)
            return
        yield task(item)


def _in_processes(task: Callable[[Item], Result], items: Sequence[Item], n_processes: int) -> Iterator[Result]:
    # Fresh processes: a fork of a process that has threads (torch, pyarrow) may hang.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        with processes.starting_workers(fresh=True):
            received, reports = context.Pipe(duplex=False)
            stack.enter_context(received)
            stack.enter_context(reports)
            pool = ProcessPoolExecutor(n_processes, mp_context=context, initializer=init_worker, initargs=(reports,))
            stack.callback(pool.shutdown, cancel_futures=True)
            results = pool.map(task, items)
        try:
            with processes.awaiting_workers():
                yield from results
        except ShardError:
            if received.poll():
                raise received.recv() from None
            raise


def init_worker(reports: Connection) -> None:
    """Initializer of a pool process.

    Args:
        reports: pipe on which it reports a shard that was truncated while it was read, before it exits.
    """
    processes.init_worker()
    bus_error.install_handler(reports.send)
