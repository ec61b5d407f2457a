"""Work in a process of its own, forked, because what is to be killed is the work and not the import of torch."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable


def killed(work: Callable[[], object], wait_s: float) -> bool:
    """Whether ``work()`` was killed after ``wait_s`` seconds, before it came to its end."""

    def later() -> None:
        timer = threading.Timer(wait_s, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()

    return _killed(work, later)


def killed_before_removal(work: Callable[[], object], number: int) -> bool:
    """Whether ``work()`` was killed when it was to remove its ``number``-th file or folder."""

    def at_removal() -> None:
        left = [number]

        def count(event: str, _: tuple[object, ...]) -> None:
            if event in ("os.remove", "os.rmdir"):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)

    return _killed(work, at_removal)


def _killed(work: Callable[[], object], begin: Callable[[], None]) -> bool:
    if (process := os.fork()) == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        begin()
        code = 70
        try:
            work()
            code = 0
        except BaseException:  # this process must not go on as a second pytest
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert ended in (0, -signal.SIGKILL), f"the process ended with {ended}: see the captured stderr"
    return bool(ended)
