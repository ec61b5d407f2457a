"""Ctrl-C and SIGTERM while an epoch trains: heard at once, obeyed when the step is done and all is on disk.

A second one is obeyed where it comes. Obeyed means: given to whoever would have had it without us.

A scheduler tells every process of a job at once, and the process that started the ranks passes on to the first what it
was told: a rank that is told again within a moment has heard the same thing twice.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from curate import ranks

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds after which somebody who waits for a step to end is told so; until then one of several ranks may hear the
#: same thing by two ways.
PATIENCE_S = 1.0


@dataclass
class Stop:
    """What was heard.

    Args:
        number: of the signal, 0 before one came.
        came: when it came, on the monotonic clock.
        before: who had the signals before.
        waiting: tells whoever waits why.
    """

    number: int = 0
    came: float = 0.0
    before: dict[signal.Signals, Any] = field(default_factory=dict)
    waiting: threading.Timer | None = None

    def obey(self, where: str = "") -> None:
        """Give the signal, if one came, to whoever had it before.

        Args:
            where: the work stopped, and goes on; what Ctrl-C raises says so.
        """
        self.listen_no_more()
        if number := self.number:
            self.number = 0
            try:
                signal.raise_signal(number)
            except KeyboardInterrupt as stopped:
                raise KeyboardInterrupt(where) from stopped

    def listen_no_more(self) -> None:
        """Put back who had the signals before."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}
        if self.waiting is not None:
            self.waiting.cancel()


@contextmanager
def postponed(tell: Callable[[], None]) -> Iterator[Stop]:
    """A block in which a first Ctrl-C or SIGTERM is only noted; what is yielded says so, and obeys it.

    Signals that the process ignores stay ignored. In another thread than the main one, which alone is given signals,
    nothing is changed.

    Args:
        tell: called, in a thread of its own, where a signal has waited for `PATIENCE_S`.
    """
    stop = Stop()

    def hear(number: int, frame: FrameType | None) -> None:
        if stop.number:
            if ranks.world() == 1 or time.monotonic() - stop.came > PATIENCE_S:
                stop.obey()
            return
        stop.number, stop.came, stop.waiting = number, time.monotonic(), threading.Timer(PATIENCE_S, tell)
        stop.waiting.daemon = True
        stop.waiting.start()

    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                stop.before[number] = handler
                signal.signal(number, hear)
    try:
        yield stop
    finally:
        stop.listen_no_more()
    stop.obey()
