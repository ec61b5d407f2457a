"""Starts the processes that train together on one machine, and ends them together.

The ranks are spawned here (``--devices N``), or by torchrun, which says so in the environment. Whichever way, a rank
that ends too early ends the job: no other can go on without it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

import torch

from curate import console, ranks
from curate.config.schema import MachineConfig
from curate.errors import Error, LostRank, Misuse, is_want_of_memory
from curate.progress import Progress
from curate.runs import heartbeat, torchrun
from curate.runs.follow import follow
from curate.runs.stopping import SIGNALS, Stop
from curate.runs.threads import computing
from shards.io.processes import exit_with_parent, starting_workers
from shards.io.storage import clients

T = TypeVar("T")

#: Seconds that the others have to end by themselves when one has ended.
GRACE_S = 10.0


def on_ranks(
    work: Callable[[Progress | None], T], machine: MachineConfig, out: Path, progress: Progress | None
) -> T | None:
    """``work(progress)`` on the first rank of a job, which the others follow; in this process, where there is one rank.

    Args:
        work: trains in ``out``; can be pickled, as ``progress`` can, where processes are started here.
        machine: says how many ranks there are (`curate.runs.torchrun.asked`), on what, and with how many threads each.

    Returns:
        What ``work`` returned; None in a process of torchrun's that is not the first.

    Raises:
        Misuse: there are not so many devices.
        LostRank: a rank was killed.
        Error: what a rank raised.
    """
    if machine.devices == 1:
        return _lead_or_follow(work, machine, out, progress)
    if (place := torchrun.place()) is None:
        return _spawned(partial(_lead_or_follow, work, machine, out, progress), machine)
    with _joined(machine.device, "env://", *place), heartbeat.kept(*place[:2]):
        return _lead_or_follow(work, machine, out, progress)


def _lead_or_follow(
    work: Callable[[Progress | None], T], machine: MachineConfig, out: Path, progress: Progress | None
) -> T | None:
    first = ranks.is_first()
    with computing(machine.threads, progress.note if progress and first else None, out):
        if first:
            return work(progress)
        follow(machine, out)
        return None


@contextmanager
def _joined(device: str, where: str, number: int, count: int, local: int) -> Iterator[None]:
    kind = _device_type(device, local)
    if kind == "cuda":
        torch.cuda.set_device(local)
    with ranks.together(kind, where, number, count):
        yield


def _device_type(device: str, local: int) -> str:
    """cpu or cuda, for the rank with the number ``local`` on this machine, and those before it.

    Raises:
        Misuse: it has no device of its own.
    """
    if ":" in device:
        raise Misuse(f"--device {device}: names one device; give {device.partition(':')[0]} where several train")
    has = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind = ("cuda" if has else "cpu") if device == "auto" else device
    if kind == "cuda" and local >= has:
        raise Misuse(f"--devices {local + 1}: this machine has {has} CUDA devices; give as many, or --device cpu")
    return kind


@dataclass(frozen=True)
class _Member:
    """A rank that was started, and where it says at its end what came of it."""

    number: int
    process: BaseProcess
    word: Connection

    def said(self) -> tuple[str, Any]:
        """What it says once: ``done`` with its result, ``failed`` with an error, ``stopped`` by Ctrl-C with where it
        goes on; or ``lost``, without a word."""
        try:
            return self.word.recv() if self.word.poll() else ("lost", None)
        except (EOFError, OSError):
            return "lost", None


def _spawned(work: Callable[[], T | None], machine: MachineConfig) -> T | None:
    members: list[_Member] = []
    _device_type(machine.device, machine.devices - 1)
    with tempfile.TemporaryDirectory() as place, _passing_signals(members) as heard:
        try:
            with _signals_wait():
                for number in range(machine.devices):
                    members.append(_start(work, machine, f"file://{place}/ranks", number))
            for number in heard[:1]:  # while there was nobody to pass it to
                _pass_on(members, number)
            ended = _await(members)
        finally:
            for member in members:
                member.process.kill()
                member.process.join()
    said = [member.said() for member in members]
    what, result = said[0]
    if what == "done":
        return cast(T, result)
    if heard or what == "stopped":
        Stop(heard[0] if heard else signal.SIGINT).obey(result if what == "stopped" else "")
    raise _what_failed([(member, *said[member.number]) for member in ended], len(members))


def _start(work: Callable[[], Any], machine: MachineConfig, where: str, number: int) -> _Member:
    context, count = multiprocessing.get_context("spawn"), machine.devices
    ours, theirs = context.Pipe(duplex=False)
    given = (theirs, work, machine.device, where, number, count, console.settings(), clients.configured())
    process = context.Process(target=_member, args=given)
    with starting_workers(fresh=True, option="--devices"):
        try:
            process.start()
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise Misuse(f"--devices {count}: {error}; give a progress that can be pickled, or none") from error
    theirs.close()
    return _Member(number, process, ours)


def _member(
    word: Connection,
    work: Callable[[], Any],
    device: str,
    where: str,
    number: int,
    count: int,
    told: dict[str, Any],
    storage: dict[str, str],
) -> None:
    """A rank, from its start to its end; with the command's settings of what is told, and of object stores."""
    os.setpgid(0, 0)  # a terminal's Ctrl-C is for the process that started it, which passes it on
    exit_with_parent()
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        console.set_up(**told)
        clients.configure(storage)
        with _joined(device, where, number, count, number):
            result = work()
        word.send(("done", result))
    except KeyboardInterrupt as stopped:
        word.send(("stopped", str(stopped)))
        sys.exit(130)
    except (Error, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_want_of_memory(error):
            raise
        word.send(("failed", error))
        sys.exit(1)


def _await(members: list[_Member]) -> list[_Member]:
    """Wait until all have ended, or one has and the others have had their time; those that have, in their order."""
    running, deadline, ended = list(members), float("inf"), []
    while running and time.monotonic() < deadline:
        wait([member.process.sentinel for member in running], timeout=0.5)
        for member in [member for member in running if not member.process.is_alive()]:
            running.remove(member)
            ended.append(member)
            if member.number == 0 or member.process.exitcode:
                deadline = min(deadline, time.monotonic() + GRACE_S)
    return ended


@contextmanager
def _signals_wait() -> Iterator[None]:
    """A block in which Ctrl-C and SIGTERM wait, as there is no rank yet to pass them to; and the ranks that start in it
    are born so. Where another thread of this process takes one, it is heard at once."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pass_on(members: list[_Member], number: int) -> None:
    if members and members[0].process.pid is not None and members[0].process.is_alive():
        os.kill(members[0].process.pid, number)


@contextmanager
def _passing_signals(members: list[_Member]) -> Iterator[list[int]]:
    """A block in which Ctrl-C and SIGTERM go to the first rank, as it can save; what is yielded says which came."""
    heard: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        _pass_on(members, number)

    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    before = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, pass_on)
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _what_failed(said: list[tuple[_Member, str, Any]], count: int) -> Exception:
    """The one thing to tell: what a rank said for itself, else which rank was lost first.

    Args:
        said: of the ranks that have ended, in that order, what they said.
    """
    errors = [error for _, what, error in said if what == "failed"]
    silent = [_lost(member, count) for member, what, _ in said if what == "lost"]
    told: list[Exception] = [error for error in errors if not isinstance(error, LostRank)] + silent + errors
    return told[0]


def _lost(member: _Member, count: int) -> LostRank:
    code, which = member.process.exitcode or 0, f"rank {member.number} of {count}"
    if code < 0:
        how = f"was ended by {signal.Signals(-code).name}, perhaps for want of memory"
        return LostRank(f"{which} {how}; the same command goes on from the last checkpoint")
    return LostRank(f"{which} failed, as it says above; the same command goes on from the last checkpoint")
