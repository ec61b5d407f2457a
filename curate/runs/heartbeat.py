"""Ends a job of torchrun's when one of its machines vanishes, for which the others would wait without an end.

A process that dies closes its connections, and whoever waits for it sees that at once. A machine that loses its power
or its network closes nothing. So every rank counts up a number of its own in the store where the ranks met, and looks
at that of the next rank, the last one at the first's. Who misses it ends, and with its connections all others do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Protocol

from torch import distributed

from curate import console
from curate.runs import torchrun

#: Seconds between two looks, and so many of them must find nothing new: counted, as a job may be paused as a whole.
EVERY_S, MISSES = 5.0, 9
#: Added to its number by a rank that has ended in good order, and need not be heard of any more.
_ENDED = 1 << 40


class Counts(Protocol):
    """What is used of a store of torch.distributed's."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number, 0 where there is none; what it is then. Raises RuntimeError where the store is gone."""


@contextmanager
def kept(number: int, count: int) -> Iterator[None]:
    """A block in which this process is heard of, and ends with one line and exit code 1 once the next rank is not.

    Args:
        number: of this one of torchrun's ``count`` processes, which have met.
    """
    timeout = timedelta(seconds=EVERY_S)
    place = distributed.TCPStore(*torchrun.meeting_point(), is_master=False, timeout=timeout)  # type: ignore[attr-defined]
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    def end(lost: int) -> None:
        silence = f"nothing has been heard of rank {lost} of {count} for {EVERY_S * MISSES:.0f} s"
        with suppress(OSError):
            console.error(f"Error: {silence}; the same command goes on from the last checkpoint")
        os._exit(1)  # the main thread waits in a sum over ranks, and no signal reaches it there

    store = distributed.PrefixStore(f"curate/alive/{attempt}", place)  # type: ignore[attr-defined]
    with watched(store, number, count, end, EVERY_S):
        yield


@contextmanager
def watched(store: Counts, number: int, count: int, end: Callable[[int], None], every_s: float) -> Iterator[None]:
    """A block in which a thread counts up this rank's number, and another calls ``end(the next rank)`` if that stays.

    They are two, as a store on a machine that has vanished answers as little as its ranks do.
    """
    over, following = threading.Event(), (number + 1) % count
    heard = 0

    def count_up() -> None:
        nonlocal heard
        while not over.wait(every_s):
            with suppress(RuntimeError):  # a store that is gone is silence
                store.add(str(number), 1)
                heard = store.add(str(following), 0)
        with suppress(RuntimeError):
            store.add(str(number), _ENDED)

    def look() -> None:
        before, misses = heard, 0
        while misses < MISSES and not over.wait(every_s):
            misses = misses + 1 if heard == before < _ENDED else 0
            before = heard
        if not over.is_set():
            end(following)

    threads = [threading.Thread(target=each, daemon=True) for each in (count_up, look)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(every_s)
