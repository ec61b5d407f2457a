"""How many threads compute: as many as cores are free, as threads that wait for a busy core slow all others down.

torch adds up in another order with another number of threads, so a run that goes on keeps the number it began with; by
another number of ranks, which changes the order, too, it takes what is free.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from curate import ranks
from curate.runs.provenance import read_run
from shards.io.cores import free_cores, usable_cores

#: What torch, OpenMP and OpenBLAS read when they are loaded; said by a user it is taken as it is.
_VARIABLE = "OMP_NUM_THREADS"


def chosen(asked: int | None, begun: int | None = None) -> tuple[int, str]:
    """How many threads to compute with, and why; the reason is empty where they were asked for.

    Args:
        asked: by --threads; None for what `OMP_NUM_THREADS` says, or else what is free, and never more than torch has.
        begun: what an unfinished run began with, in place of what is free, which the ranks of a machine share.
    """
    if asked is not None:
        return asked, ""
    now = torch.get_num_threads()
    if _VARIABLE in os.environ or now == 1:
        return now, ""
    if begun is not None:
        return begun, ""
    usable = usable_cores()
    number = max(1, min(now, usable, free_cores()) // ranks.here())
    threads, cores = f"{number} thread{'s' * (number > 1)}", f"{usable} core{'s' * (usable > 1)}"
    return number, f"computing with {threads}: {cores}, load {os.getloadavg()[0]:.1f}; --threads says otherwise"


def begun_with(out: Path) -> int | None:
    """What the run in ``out`` began with, by its run.json; None where there is none, it does not say, or was begun by
    another number of ranks."""
    if not (out / "run.json").exists():
        return None
    machine = read_run(out)["machine"]
    if machine.get("ranks", 1) != ranks.world():
        return None
    number = machine.get("threads")
    return number if isinstance(number, int) and number > 0 else None


@contextmanager
def computing(
    asked: int | None = None, tell: Callable[[str], None] | None = None, out: Path | None = None
) -> Iterator[int]:
    """A block that computes with so many threads, the libraries and processes that it loads and starts included.

    Args:
        asked: as `chosen`.
        tell: is told what was chosen where the user said nothing.
        out: the run directory that is worked on; a run in it may have begun with another number.
    """
    number, why = chosen(asked, None if out is None else begun_with(out))
    if why and tell is not None:
        tell(why)
    before, said = torch.get_num_threads(), os.environ.get(_VARIABLE)
    torch.set_num_threads(number)
    os.environ[_VARIABLE] = str(number)
    try:
        with threadpool_limits(number):
            yield number
    finally:
        torch.set_num_threads(before)
        if said is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = said
