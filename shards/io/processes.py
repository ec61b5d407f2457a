"""Worker processes: how they begin, that none outlives the process that started it, and what is said where one is lost.

The one place where what the system, the standard library and torch say of a pool or a loader becomes an error of ours.
What workers do is the business of `tasks` and `stream`.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker

from shards.errors import ShardError

#: Linux's word for "send me this signal when my parent dies" (`man 2 prctl`).
_PR_SET_PDEATHSIG = 1


def init_worker(*_: object) -> None:
    """What a worker does first: it leaves Ctrl-C to the process that started it, and ends when that one does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_with_parent()


def exit_with_parent() -> None:
    """Let this worker be killed as soon as the process that started it is gone, however it went.

    Nobody would read its results, and the same command, given again, must not meet it at work. On Linux the system
    sees to it, from the end of the starting thread on; elsewhere a thread here watches the parent.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if not _killed_by_system():
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()
    if os.getppid() != parent.pid:
        os._exit(1)  # it was gone before the system was asked


def _killed_by_system() -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0)


def _exit_after(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def starting_workers(*, fresh: bool = False, option: str = "--workers") -> Iterator[None]:
    """Around the start of workers: they are born deaf to Ctrl-C, which would end one before it can `init_worker`.

    Args:
        fresh: they are not forked; Python keeps a process beside such ones, and lets Ctrl-C through as it starts it.
        option: how many they are, for the message.

    Raises:
        ShardError: the system has no room for them: processes, open files, semaphores.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        if fresh:
            resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    except (OSError, ImportError, NotImplementedError) as error:
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        todo = f"give fewer {option}, or raise the limits of processes, open files and /dev/shm"
        raise ShardError(f"worker processes cannot be started ({why})", todo=todo) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def awaiting_workers(option: str = "--workers") -> Iterator[None]:
    """Around the wait for a worker's results.

    Args:
        option: how many there are, for the message.

    Raises:
        ShardError: the system ended one. Whatever else the work raises is left as it is.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, BrokenProcessPool) and "DataLoader worker" not in str(error):
            raise
        why = "a worker process was killed, perhaps for want of memory"
        raise ShardError(why, todo=f"give fewer {option}") from error
