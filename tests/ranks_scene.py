"""Several processes that train together, for tests: what a function returns on each rank. Functions only.

They are forked, as to load torch anew takes longer than most tests. (`curate.runs.launch` starts fresh ones.)
"""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from curate import ranks

#: Seconds that a test's ranks have.
PATIENCE_S = 240


def on_each(count: int, place: Path, function, *given) -> list:
    """``function(*given)`` on each of ``count`` ranks, by gloo.

    Args:
        place: an empty folder, where they meet.
    """
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    processes = [
        context.Process(target=_rank, args=(results, f"file://{place}/ranks", number, count, function, given))
        for number in range(count)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(PATIENCE_S)
        codes = [process.exitcode for process in processes]
        assert codes == [0] * count, codes
        found = dict(results.get() for _ in processes)
    finally:
        for process in processes:
            process.kill()
    return [found[number] for number in range(count)]


def _rank(results, where, number, count, function, given):
    import os

    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with ranks.together("cpu", where, number, count):
        found = function(*given)
    results.put((number, found))
