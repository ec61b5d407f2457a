"""The one way in which a stage does its work shard by shard: a pure task, mapped over shards, results in order.

Owns how tasks are spread over processes. What a task does, and how its results are joined, belongs to the stages.
A cluster (Slurm array, Ray) comes in here and nowhere else.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from shards.errors import Misuse

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_shards(task: Callable[[Item], Result], items: Sequence[Item], workers: int = 1) -> Iterator[Result]:
    """Yield ``task(item)`` for every item, in the order of ``items``, whatever the number of workers.

    Args:
        task: a function of a module (or a `functools.partial` of one), so that another process can find it.
        items: what the task is done for, usually one a shard.
        workers: processes; 1 works in this process. More than there are items are not started.

    Raises:
        Misuse: ``workers`` is below 1.
        Whatever the first failing task (in the order of ``items``) raises; tasks not yet begun are dropped then.
    """
    if workers < 1:
        raise Misuse("the number of workers is too small", expected="at least 1", found=workers)
    n_processes = min(workers, len(items))
    if n_processes <= 1:
        yield from map(task, items)
        return
    # Fresh processes: a fork of a process that has threads (torch, pyarrow) may hang.
    pool = ProcessPoolExecutor(n_processes, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield from pool.map(task, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
