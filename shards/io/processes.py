"""The life of worker processes: their start, their end with the parent, and errors about lost ones.

Messages of the system, the standard library and torch about pools and loaders become `ShardError` here and nowhere
else. `shards.io.parallel` and `shards.stream` start the workers.
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
    """First call of a worker: ignore Ctrl-C, which is the parent's to handle, and exit with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_with_parent()


def exit_with_parent() -> None:
    """Have this worker killed as soon as its parent is gone, however that ended.

    Nobody would read its results, and a rerun of the command must not meet it at work. Linux does it itself, when the
    starting thread ends; elsewhere a thread here waits for the parent.
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
    """Context around the start of workers, with Ctrl-C blocked, as it would end one before `init_worker` ran.

    Args:
        fresh: they are spawned, not forked; Python then starts a helper process, which must not see Ctrl-C either.
        option: name of the option that sets their number, for the message.

    Raises:
        ShardError: the system is out of processes, open files or semaphores.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        if fresh:
            _start_helper()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    except (OSError, ImportError, NotImplementedError) as error:
        why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        todo = f"give fewer {option}, or raise the limits of processes, open files and /dev/shm"
        raise ShardError(f"worker processes cannot be started ({why})", todo=todo) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_helper() -> None:
    """Start Python's helper, which removes what killed processes leave, and have it say nothing of that: the error that
    the user sees tells of the kill."""
    before = os.environ.get("PYTHONWARNINGS")
    silent = "ignore:resource_tracker:UserWarning"
    os.environ["PYTHONWARNINGS"] = silent if before is None else f"{before},{silent}"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


@contextmanager
def awaiting_workers(option: str = "--workers") -> Iterator[None]:
    """Context around the wait for a worker's result.

    Args:
        option: name of the option that sets their number, for the message.

    Raises:
        ShardError: a worker was killed. Other exceptions pass.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, BrokenProcessPool) and "DataLoader worker" not in str(error):
            raise
        why = "a worker process was killed, perhaps for want of memory"
        raise ShardError(why, todo=f"give fewer {option}") from error
