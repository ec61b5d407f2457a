"""A dry run comes to its end in time: by whole steps where they fit, else by parts of one, and it says which."""

from __future__ import annotations

import time

import numpy as np
import pytest
import toyset

from curate.config.schema import from_options
from curate.runs import step_times
from curate.runs.prepare import prepare, trainable


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steps")
    store, target = toyset.make_store(folder / "store", 64), toyset.make_target(folder / "target")
    made = prepare(from_options({**toyset.FAST, "batch": 32, "store": str(store), "target": str(target)}), folder)
    return made


def timed(job, monkeypatch, a_step, seconds):
    """With a clock on which a step of ``k`` images takes ``a_step(k)`` seconds, and all else nothing."""
    clock = Clock(a_step)
    monkeypatch.setattr(step_times, "time", clock)
    batches = job.images.batches

    def slow(ordered, size, done=0):
        for batch in batches(ordered, size, done):
            yield batch
            clock.now += clock.a_step(len(batch.rows))

    monkeypatch.setattr(job.images, "batches", slow)
    found = step_times.time_steps(job, trainable(job.examples), 32, seconds)
    return found, clock.now


class Clock:
    def __init__(self, a_step):
        self.a_step, self.now = a_step, 0.0

    def perf_counter(self):
        return self.now


def test_whole_steps_where_they_fit(job, monkeypatch):
    found, spent = timed(job, monkeypatch, lambda k: 0.01 * k, 15.0)
    assert (found.low, found.middle, found.high) == pytest.approx((0.32, 0.32, 0.32))
    assert found.how == f"the fastest and slowest of {found.steps} steps"
    assert spent < 15


def test_parts_where_they_do_not(job, monkeypatch):
    """2 s for the target and a quarter of one for each image: 10 s a step. Told by 4 and by 8 images."""
    found, spent = timed(job, monkeypatch, lambda k: 2 + k / 4, 15.0)
    assert found.low == found.middle == pytest.approx(10.0)
    assert found.high == pytest.approx(16.0)  # as if all of it grew with the images
    assert found.how == "steps of 4 images in 3 s and of 8 in 4 s, where a whole one has 32"
    assert spent < 15


def test_one_part_where_even_that_takes_long(job, monkeypatch):
    found, spent = timed(job, monkeypatch, lambda k: 20 + k, 15.0)
    assert (found.low, found.high, found.steps) == (24.0, 192.0, 1)
    assert found.how == "a step of 4 images in 24 s, where a whole one has 32"
    assert spent == 24.0


def test_the_real_clock(job):
    begun = time.perf_counter()
    found = step_times.time_steps(job, trainable(job.examples), 32, 15.0)
    assert 0 < found.low <= found.middle <= found.high < time.perf_counter() - begun
    assert np.isfinite(found.high)
