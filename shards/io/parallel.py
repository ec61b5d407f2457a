"""A parallel map over shards: a pure task for every item, by whatever engine is chosen, results in order.

Owns which engine that is, and the progress callback. The engines, `shards.io.engines`, all give the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from shards.errors import Misuse
from shards.io.cores import usable_cores
from shards.io.engines import local
from shards.io.engines.load import Load

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Called with the number of tasks done, and of all.
ProgressCallback = Callable[[int, int], None]
_progress: ContextVar[ProgressCallback | None] = ContextVar("watch", default=None)


class Engine(Protocol):
    """What runs tasks: ``task(item)`` for every item, the results in the order of the items."""

    def __call__(self, task: Callable[[Any], Any], items: Iterator[Any], load: Load, /) -> Iterator[Any]: ...


_engine: ContextVar[Engine] = ContextVar("engine", default=local.results)


@contextmanager
def on_progress(by: ProgressCallback) -> Iterator[None]:
    """Call ``by(done, total)`` after every task of any `map_shards` in this block."""
    before = _progress.set(by)
    try:
        yield
    finally:
        _progress.reset(before)


@contextmanager
def run_by(engine: Engine) -> Iterator[None]:
    """Have the tasks of any `map_shards` in this block run by an engine, in place of this machine's processes."""
    before = _engine.set(engine)
    try:
        yield
    finally:
        _engine.reset(before)


def is_local() -> bool:
    """Whether tasks are run by processes of this machine."""
    return _engine.get() is local.results


def default_workers() -> int:
    """One process for each core that this process may use, at most 8."""
    return min(8, usable_cores())


def map_shards(
    task: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int = 1,
    total: int | None = None,
    cards: int = 0,
) -> Iterator[Result]:
    """Yield ``task(item)`` for every item, in the order of ``items``, whatever the engine and the number of workers.

    Args:
        task: a module-level function, or a `functools.partial` of one, so that it can be pickled. It may be done twice,
            where a machine was lost: what it writes appears whole, and is the same each time.
        items: usually one a shard; taken as they are needed.
        workers: processes of this machine, this one included, where they are the engine (`shards.io.engines.local`).
        total: the number of items, where they do not tell it themselves.
        cards: graphics cards that a task keeps busy, for an engine that chooses its machine.

    Raises:
        Misuse: ``workers`` is below 1.
        ShardError: as the engine has it: processes cannot be started, or were killed.
        Whatever the first failing task, in the order of ``items``, raises; tasks not yet begun are cancelled.
    """
    yield from _mapped(_engine.get(), task, items, workers, total, cards)


def map_here(task: Callable[[Item], Result], items: Sequence[Item], workers: int = 1) -> Iterator[Result]:
    """As `map_shards`, by processes of this machine whatever the engine: for tasks that read its temporary files."""
    yield from _mapped(local.results, task, items, workers)


def _mapped(
    engine: Engine,
    task: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    total: int | None = None,
    cards: int = 0,
) -> Iterator[Result]:
    if workers < 1:
        raise Misuse("the number of workers is too small", expected="at least 1", found=workers)
    load = Load(len(items) if isinstance(items, Sized) else total or 0, workers, cards)
    yield from _told(engine(task, iter(items), load), load.items)


def map_overlapping(task: Callable[[Item], Result], items: Iterable[Item], total: int) -> Iterator[Result]:
    """As `map_shards` in this process, but each task begins while the one before it still waits for the disk.

    Two of them run in threads: right for tasks that mostly copy, hash and write, and do not hold the interpreter.
    Another engine than this machine's processes does with them as with any.
    """
    if not is_local():
        yield from map_shards(task, items, total=total)
        return
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
