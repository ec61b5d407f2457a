"""Tasks in this process and in others of this machine, which are started only where that pays."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from multiprocessing.connection import Connection
from typing import TypeVar

from shards.errors import ShardError
from shards.io import bus_error, processes
from shards.io.engines.load import Load
from shards.io.storage import clients

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


def results(task: Callable[[Item], Result], items: Iterator[Item], load: Load) -> Iterator[Result]:
    """As `shards.io.parallel.map_shards`: here, and once `SERIAL_S` seconds of work are done, in other processes, too.

    None are started unless `WORTH` times as many seem to be left, and no more than there are items.

    Raises:
        ShardError: processes cannot be started, or one was killed.
    """
    started = time.monotonic()
    for position, item in enumerate(items):
        n_processes, spent = min(load.workers, load.items - position), time.monotonic() - started
        to_come = spent / max(1, position) * (load.items - position)
        if n_processes > 1 and spent >= SERIAL_S and to_come >= WORTH * SERIAL_S:
            yield from _in_processes(task, chain((item,), items), n_processes, load.items - position)
            return
        yield task(item)


def elsewhere(task: Callable[[Item], Result], item: Item) -> Result:
    """One result, by a process of its own: a task that kills its process leaves this one alone. Raises as `results`."""
    with _pool(1, task) as (pool, _):
        return pool.submit(task, item).result()


def _in_processes(
    task: Callable[[Item], Result], left: Iterator[Item], n_processes: int, n_left: int
) -> Iterator[Result]:
    """The results in order, by so many processes, this one included."""
    with _pool(n_processes - 1, task) as (pool, ready):
        alone_until = time.monotonic() + ALONE_S
        while not ready.done() and time.monotonic() < alone_until:
            own = list(islice(left, 1))
            if not own:
                return
            n_left -= 1
            yield task(own[0])
        ready.result()
        yield from _together(pool, task, left, n_processes, n_left)


@contextmanager
def _pool(n_others: int, task: Callable[[Item], Result]) -> Iterator[tuple[ProcessPoolExecutor, Future[None]]]:
    """Other processes, and when the first of them is ready; one that is lost is an error, by its own report if any."""
    # Fresh processes: a fork of a process that has threads (torch, pyarrow) may hang.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        with processes.starting_workers(fresh=True):
            received, reports = context.Pipe(duplex=False)
            stack.enter_context(received)
            stack.enter_context(reports)
            told = reports, clients.configured()
            pool = ProcessPoolExecutor(n_others, mp_context=context, initializer=init_worker, initargs=told)
            stack.callback(pool.shutdown, cancel_futures=True)
            ready = pool.submit(_ready, task)
        try:
            with processes.awaiting_workers():
                yield pool, ready
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


def init_worker(reports: Connection, options: Mapping[str, str]) -> None:
    """Initializer of a pool process.

    Args:
        reports: pipe on which it reports a shard that was truncated while it was read, before it exits.
        options: of object stores (`shards.io.storage.clients.configure`).
    """
    processes.init_worker()
    clients.configure(options)
    bus_error.install_handler(reports.send)
