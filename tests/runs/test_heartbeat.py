"""A rank whose next one falls silent says so, and no other does."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

from torch import distributed

from curate.runs import heartbeat

EVERY_S = 0.02


def lost_by(store, number, count=3):
    """What one rank of three tells of the next within the time that it takes to tell it, and some more."""
    told, said = [], threading.Event()

    def end(lost):
        told.append(lost)
        said.set()

    with heartbeat.watched(store, number, count, end, EVERY_S):
        said.wait(EVERY_S * heartbeat.MISSES * 4)
    return told


def test_nothing_is_told_while_all_are_there():
    store, told = distributed.HashStore(), []
    with ExitStack() as all_ranks:
        for number in range(3):
            all_ranks.enter_context(heartbeat.watched(store, number, 3, told.append, EVERY_S))
        time.sleep(EVERY_S * heartbeat.MISSES * 4)
    assert told == []


def test_who_misses_the_next_one_tells():
    store = distributed.HashStore()
    with heartbeat.watched(store, 1, 3, lambda lost: None, EVERY_S):  # 2 never was there
        assert lost_by(store, 0) == []
    assert lost_by(distributed.HashStore(), 2) == [0]


def test_one_that_has_ended_is_not_missed():
    store = distributed.HashStore()
    with heartbeat.watched(store, 1, 3, lambda lost: None, EVERY_S):
        time.sleep(EVERY_S * 4)
    assert lost_by(store, 0) == []


def test_a_store_that_is_gone_is_silence():
    class Gone(distributed.HashStore):
        def add(self, key, amount):
            raise RuntimeError("Connection reset by peer")

    assert lost_by(Gone(), 0) == [1]


def test_a_store_that_does_not_answer_is_silence():
    class Mute(distributed.HashStore):
        def add(self, key, amount):
            time.sleep(EVERY_S * heartbeat.MISSES * 8)
            return 0

    assert lost_by(Mute(), 0) == [1]
