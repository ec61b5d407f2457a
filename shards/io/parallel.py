"""A parallel map over shards: a pure task for every item, in this process or a pool, results in order.

Owns how tasks are spread over processes, and the progress callback. A cluster (Slurm array, Ray) would come in here.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from itertools import chain, islice
from multiprocessing.connection import Connection
from typing import TypeVar

from shards.errors import Misuse, ShardError
from shards.io import bus_error, processes
from shards.io.cores import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds of work done in this process before others are started, where `WORTH` times as many seem to be left: their
#: start takes about twice as long, and small sets never wait for it.
SERIAL_S = 0.2
WORTH = 5
#: Seconds that this process works alone at most while the others start.
ALONE_S = float("inf")
#: Results that wait for the one that is due, for each process.
_AHEAD = 4
#: Called with the number of tasks done, and of all.
ProgressCallback = Callable[[int, int], None]
_progress: ContextVar[ProgressCallback | None] = ContextVar("watch", default=None)


@contextmanager
def on_progress(by: ProgressCallback) -> Iterator[None]:
    """Call ``by(done, total)`` after every task of any `map_shards` in this block."""
    before = _progress.set(by)
    try:
        yield
    finally:
        _progress.reset(before)


def default_workers() -> int:
    """One process for each core that this process may use, at most 8."""
    return min(8, usable_cores())


def map_shards(
    task: Callable[[Item], Result], items: Iterable[Item], workers: int = 1, total: int | None = None
) -> Iterator[Result]:
    """Yield ``task(item)`` for every item, in the order of ``items``, whatever the number of workers.

    Args:
        task: a module-level function, or a `functools.partial` of one, so that it can be pickled.
        items: usually one a shard; taken as they are needed.
        total: their number, where they do not tell it themselves.
        workers: processes, this one included. No more are started than there are items, and none before `SERIAL_S`
            seconds of work are done here and `WORTH` times as many seem to be left.

    Raises:
        Misuse: ``workers`` is below 1.
        ShardError: processes cannot be started, or one was killed.
        Whatever the first failing task, in the order of ``items``, raises; tasks not yet begun are cancelled.
    """
    if workers < 1:
        raise Misuse("the number of workers is too small", expected="at least 1", found=workers)
    n_items = len(items) if isinstance(items, Sized) else total or 0
    yield from _told(_results(task, iter(items), n_items, workers), n_items)


def map_overlapping(task: Callable[[Item], Result], items: Iterable[Item], total: int) -> Iterator[Result]:
    """As `map_shards` in this process, but each task begins while the one before it still waits for the disk.

    Two of them run in threads: right for tasks that mostly copy, hash and write, and do not hold the interpreter.
    """
    with ThreadPoolExecutor(2) as threads:
        yield from _told(_submitted(threads, task, items), total)


def _submitted(pool: Executor, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in order, with two items handed out at a time."""
    due: deque[Future[Result]] = deque()
    for item in items:
        due.append(pool.submit(task, item))
        if len(due) == 2:
            yield due.popleft().result()
    yield from (one.result() for one in due)


def _told(results: Iterator[Result], total: int) -> Iterator[Result]:
    """The results, each told to the callback of `on_progress`."""
    watch = _progress.get()
    for n_done, result in enumerate(results, start=1):
        if watch is not None:
            watch(n_done, total)
        yield result


def _results(task: Callable[[Item], Result], items: Iterator[Item], n_items: int, workers: int) -> Iterator[Result]:
    started = time.monotonic()
    for position, item in enumerate(items):
        n_processes, spent = min(workers, n_items - position), time.monotonic() - started
        to_come = spent / max(1, position) * (n_items - position)
        if n_processes > 1 and spent >= SERIAL_S and to_come >= WORTH * SERIAL_S:
            yield from _in_processes(task, chain((item,), items), n_processes, n_items - position)
            return
        yield task(item)


def _in_processes(
    task: Callable[[Item], Result], left: Iterator[Item], n_processes: int, n_left: int
) -> Iterator[Result]:
    # Fresh processes: a fork of a process that has threads (torch, pyarrow) may hang.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        with processes.starting_workers(fresh=True):
            received, reports = context.Pipe(duplex=False)
            stack.enter_context(received)
            stack.enter_context(reports)
            others = n_processes - 1
            pool = ProcessPoolExecutor(others, mp_context=context, initializer=init_worker, initargs=(reports,))
            stack.callback(pool.shutdown, cancel_futures=True)
            ready = pool.submit(_ready, task)
        try:
            with processes.awaiting_workers():
                alone_until = time.monotonic() + ALONE_S
                while not ready.done() and time.monotonic() < alone_until:
                    own = list(islice(left, 1))
                    if not own:
                        return
                    n_left -= 1
                    yield task(own[0])
                ready.result()
                yield from _together(pool, task, left, n_processes, n_left)
        except ShardError:
            if received.poll():
                raise received.recv() from None
            raise


def _ready(_: object) -> None:
    """What a new process does first: its argument makes it import what the tasks need."""


def _together(
    pool: ProcessPoolExecutor, task: Callable[[Item], Result], left: Iterator[Item], n_processes: int, n_left: int
) -> Iterator[Result]:
    """The results in order, by the pool and by this process.

    It takes the next item whenever the result that is due is not there yet; the others have an item each, and one to go
    on with, but the last is this one's: else it would wait for two of theirs, one after the other. Few results wait for
    their turn, so that memory does not grow with the number of items.

    Args:
        n_processes: the pool's, and this one.
        n_left: items that are left.
    """
    due: deque[Future[Result]] = deque()
    elsewhere: list[Future[Result]] = []
    while True:
        elsewhere = [one for one in elsewhere if not one.done()]
        room = max(0, min(n_processes - len(elsewhere), n_left - 1))
        new = [pool.submit(task, item) for item in islice(left, room)]
        elsewhere += new
        due += new
        waits = due and (due[0].done() or len(due) > _AHEAD * n_processes)
        own = [] if waits else list(islice(left, 1))
        n_left -= len(new) + len(own)
        due += (_done_here(task, item) for item in own)
        if not due:
            return
        if not own:
            yield due.popleft().result()


def _done_here(task: Callable[[Item], Result], item: Item) -> Future[Result]:
    """A finished future: what the task raises is raised when its turn comes."""
    done: Future[Result] = Future()
    try:
        done.set_result(task(item))
    except Exception as error:
        done.set_exception(error)
    return done


def init_worker(reports: Connection) -> None:
    """Initializer of a pool process.

    Args:
        reports: pipe on which it reports a shard that was truncated while it was read, before it exits.
    """
    processes.init_worker()
    bus_error.install_handler(reports.send)
