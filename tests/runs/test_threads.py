"""How many threads compute: what is free, what was said, and no more than before once it is over."""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import toyset
from threadpoolctl import threadpool_info

import curate
from curate.runs import threads


@pytest.fixture
def machine(monkeypatch):
    """A machine of four cores, of which torch took all, and its load."""
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    torch.set_num_threads(4)
    yield lambda free: monkeypatch.setattr(threads, "free_cores", lambda: free)
    torch.set_num_threads(before)


def test_what_is_free_is_taken_told_and_given_back(machine):
    """torch, the libraries that are loaded, and those that will be."""
    machine(2)
    told = []
    with threads.computing(tell=told.append) as number:
        assert (number, torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]) == (2, 2, "2")
        assert {pool["num_threads"] for pool in threadpool_info()} <= {1, 2}
    assert torch.get_num_threads() == 4
    assert "OMP_NUM_THREADS" not in os.environ
    assert len(told) == 1
    assert told[0].startswith("computing with 2 threads: 4 cores, load ")
    assert told[0].endswith("--threads says otherwise")


@pytest.mark.parametrize(("asked", "said", "number"), [(3, None, 3), (3, "1", 3), (None, "1", 4)])
def test_what_is_said_is_taken_as_it_is(machine, monkeypatch, asked, said, number):
    """--threads first, then OMP_NUM_THREADS, which torch read when it was loaded; nobody is told what they said."""
    machine(1)
    if said is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    told = []
    with threads.computing(asked, told.append) as found:
        assert found == torch.get_num_threads() == number
    assert not told
    assert os.environ.get("OMP_NUM_THREADS") == said


def test_threads_are_never_raised(machine):
    """A caller that computes with one thread, as each of several trainings at a time does, is left at it."""
    machine(4)
    torch.set_num_threads(1)
    told = []
    with threads.computing(tell=told.append) as number:
        assert number == 1
    assert not told


def test_a_run_goes_on_with_the_threads_it_began_with(machine, tmp_path):
    """So a run that was stopped comes to the bytes of one that was not; what is said wins."""
    (tmp_path / "run.json").write_text(
        json.dumps(
            {
                "format": "run",
                "version": 1,
                "run_id": "x",
                "configuration": {},
                "store": "",
                "target": "",
                "machine": {"threads": 3},
            }
        )
    )
    machine(1)
    with threads.computing(out=tmp_path) as number:
        assert number == 3
    with threads.computing(2, out=tmp_path) as number:
        assert number == 2
    with threads.computing(out=tmp_path / "new") as number:
        assert number == 1


@pytest.mark.parametrize(("began", "number"), [({"ranks": 2}, 3), ({"ranks": 4}, 1), ({}, 1)])
def test_a_run_of_several_ranks_goes_on_with_theirs_if_they_are_as_many(machine, tmp_path, monkeypatch, began, number):
    """With another number of them sums are others in any case, and what is free is shared."""
    record = {"run_id": "x", "configuration": {}, "store": "", "target": "", "machine": {"threads": 3, **began}}
    (tmp_path / "run.json").write_text(json.dumps({"format": "run", "version": 1, **record}))
    monkeypatch.setattr(threads.ranks, "world", lambda: 2)
    machine(2)
    with threads.computing(out=tmp_path) as found:
        assert found == number


def test_they_are_given_back_after_an_error(machine):
    """Whatever ends the block."""
    machine(1)
    with pytest.raises(ValueError), threads.computing():
        raise ValueError
    assert torch.get_num_threads() == 4


def test_threads_are_no_part_of_a_run(tmp_path):
    """With one or two: the same id, and the same kept images of so small a network."""
    toyset.make_store(tmp_path / "store", 48)
    toyset.make_target(tmp_path / "target", 30)
    runs = [
        curate.run(tmp_path / "store", tmp_path / "target", out=tmp_path / f"{n}", **toyset.FAST, threads=n)
        for n in (1, 2)
    ]
    assert runs[0].run_id == runs[1].run_id
    assert [run.record["machine"]["threads"] for run in runs] == [1, 2]
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
    means = [pq.read_table(run.path / "weights.parquet")["mean"].to_numpy() for run in runs]
    np.testing.assert_allclose(means[0], means[1], rtol=1e-3)


@pytest.mark.parametrize("number", [0, -1, 4096])
def test_numbers_of_threads_that_cannot_be_meant(number, tmp_path):
    """One line."""
    with pytest.raises(curate.Misuse, match=rf"--threads {number}: must be in 1\.\.1024"):
        curate.configuration("store", "target", threads=number)
