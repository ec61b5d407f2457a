"""What ranks are told when they start, and what is made of what they say at their end."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from curate import ranks
from curate.config.schema import MachineConfig
from curate.errors import Misuse, NothingLeft
from curate.runs import launch, stopping
from shards.io.storage import clients

TWO = MachineConfig(devices=2, device="cpu")


def refused():
    """The first has something to say, and the other loses it."""
    if ranks.is_first():
        raise NothingLeft("nothing is left")
    ranks.told(None)


def out_of_memory():
    """In torch's words on the CPU."""
    if ranks.is_first():
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory")
    ranks.told(None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "error", "line"),
    [(refused, NothingLeft, "^nothing is left$"), (out_of_memory, RuntimeError, "DefaultCPUAllocator")],
)
def test_an_error_of_the_first_rank_is_the_jobs(work, error, line, capfd):
    """Not that the others have lost it; no rank prints a traceback."""
    with pytest.raises(error, match=line):
        launch._spawned(work, TWO)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_ranks_know_the_settings_of_object_stores():
    """Which are in no environment."""
    clients.configure({"region": "nowhere"})
    try:
        assert launch._spawned(clients.configured, TWO) == {"region": "nowhere"}
    finally:
        clients.configure({})


@pytest.mark.slow
def test_ranks_that_cannot_meet_say_so(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere")
    with pytest.raises(Misuse, match=r"the processes of this job cannot meet .*nowhere"):
        launch._spawned(clients.configured, TWO)


def test_a_signal_before_there_is_a_rank_is_passed_on_later(monkeypatch):
    """It waits until the first has been started."""
    told = []

    class Process:
        pid = os.getpid()

        def is_alive(self):
            return True

    monkeypatch.setattr(signal, "getsignal", lambda number: signal.default_int_handler)
    with launch._passing_signals(members := []) as heard, launch._signals_wait():
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        assert heard == []
        members.append(launch._Member(0, Process(), None))
        monkeypatch.setattr(os, "kill", lambda pid, number: told.append((pid, number)))
    assert (heard, told) == ([signal.SIGINT], [(os.getpid(), signal.SIGINT)])


@pytest.mark.parametrize(("world", "stopped"), [(1, True), (2, False)])
def test_one_of_several_ranks_hears_the_same_signal_twice(monkeypatch, world, stopped):
    """From a scheduler, which tells every process, and from the process that started it: it is one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(stopping.ranks, "world", lambda: world)
    monkeypatch.setattr(stopping, "PATIENCE_S", 600.0)  # whatever else the machine does
    try:
        with pytest.raises(KeyboardInterrupt), stopping.postponed(lambda: None) as stop:  # noqa: PT012
            os.kill(os.getpid(), signal.SIGINT)
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                assert stopped
                raise
            assert (stop.number, stopped) == (signal.SIGINT, False)
            stop.came -= 601  # what comes later is another one
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("not stopped")
    finally:
        signal.signal(signal.SIGINT, before)
    assert threading.current_thread() is threading.main_thread()
