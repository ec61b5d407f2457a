"""The Ray engine: two machines of a cluster on this one, with what goes wrong on real ones."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import ray_tasks
from ray_cluster import two_machines

import shards
from shards.errors import Misuse, NotShards, ShardError, ShardsChanged
from shards.io.engines import ray as ray_engine
from shards.io.parallel import is_local, map_overlapping, map_shards, on_progress

ray = pytest.importorskip("ray", reason="needs the extra ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster."""
    with two_machines() as made:
        yield made.address


@pytest.fixture
def by_ray(cluster: str) -> Iterator[None]:
    with shards.engine("ray", ray_address=cluster):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("by_ray")
class TestMap:
    """As by this machine's processes."""

    def test_results_come_in_order_and_are_told_in_one_place(self):
        assert not is_local()
        told: list[tuple[int, int]] = []
        with on_progress(lambda done, total: told.append((done, total))):
            assert list(map_shards(ray_tasks.squared, range(50))) == [item * item for item in range(50)]
            assert list(map_overlapping(ray_tasks.squared, iter(range(3)), 3)) == [0, 1, 4]
        assert told == [(done, 50) for done in range(1, 51)] + [(done, 3) for done in range(1, 4)]

    def test_tasks_run_elsewhere_and_where_the_command_was_given(self, tmp_path, monkeypatch):
        """So that relative paths mean the same."""
        monkeypatch.chdir(tmp_path)
        found = list(map_shards(ray_tasks.where, range(8)))
        assert [item for item, _, _ in found] == list(range(8))
        assert {folder for _, folder, _ in found} == {str(tmp_path)}
        assert os.getpid() not in {process for _, _, process in found}

    def test_items_are_taken_as_they_are_needed(self):
        """Neither this process nor the cluster holds all of them."""
        taken: list[int] = []

        def items() -> Iterator[int]:
            for item in range(60):
                taken.append(item)
                yield item

        for done, _ in enumerate(map_shards(ray_tasks.squared, items(), total=60)):
            assert len(taken) <= done + 1 + ray_engine.AHEAD * 2

    def test_nothing_to_do_is_done_at_once(self):
        assert list(map_shards(ray_tasks.squared, [])) == []

    def test_the_first_error_in_order_is_raised_as_it_was(self):
        found = []
        with pytest.raises(NotShards) as raised:
            found.extend(map_shards(ray_tasks.unhappy, range(40)))
        with pytest.raises(NotShards) as alone:
            ray_tasks.unhappy(5)
        assert found == [0, 1, 2, 3, 4]
        assert str(raised.value) == str(alone.value) == "5.tar: is no tar (expected a tar, found a zip); fetch it again"
        assert (raised.value.shard, raised.value.todo) == ("5.tar", "fetch it again")

    def test_a_mistake_shows_where_it_was_made(self):
        """For whoever mends it: the text of the error stays what it is."""
        with pytest.raises(ZeroDivisionError) as raised:
            list(map_shards(ray_tasks.mistaken, [1, 0]))
        assert "ray_tasks.py" in raised.value.__notes__[0]

    def test_an_error_that_cannot_travel_says_what_it_said(self):
        """Not that machines lack something."""
        with pytest.raises(ShardError) as raised:
            list(map_shards(ray_tasks.stubborn, [3]))
        assert str(raised.value) == "a task failed (Stubborn: 3 and a lock)"
        assert "ray_tasks.py" in raised.value.__notes__[0]

    def test_fewer_tasks_are_handed_out_where_the_cluster_has_shrunk(self, monkeypatch):
        """To fewer than are at work."""
        cores = iter([2, 2])
        monkeypatch.setattr(ray_engine, "_cores", lambda: next(cores, 1))
        assert list(map_shards(ray_tasks.squared, range(20))) == [item * item for item in range(20)]

    def test_the_task_that_is_waited_for_is_cancelled_with_the_others(self, monkeypatch):
        """At Ctrl-C."""
        cancelled = []

        def interrupted(task, sent):
            raise KeyboardInterrupt

        monkeypatch.setattr(ray_engine, "_result", interrupted)
        monkeypatch.setattr(ray_engine, "_cancel", lambda due: cancelled.extend(sent.item for sent in due))
        with pytest.raises(KeyboardInterrupt):
            list(map_shards(ray_tasks.squared, range(5)))
        assert cancelled == [0, 1, 2, 3, 4]

    def test_what_is_begun_has_ended_when_the_error_comes(self, tmp_path):
        """Nobody writes after the command."""
        with pytest.raises(ValueError, match="0"):
            list(map_shards(partial(ray_tasks.noted, tmp_path), range(30)))
        there = {path.name for path in tmp_path.iterdir()}
        time.sleep(0.5)
        assert {path.name for path in tmp_path.iterdir()} == there
        assert len(there) < 30

    def test_a_process_that_dies_costs_its_task_another_try(self, tmp_path):
        assert list(map_shards(partial(ray_tasks.killed_once, tmp_path), range(6))) == list(range(6))

    def test_a_file_that_a_lost_task_still_writes_is_waited_for(self, tmp_path):
        assert list(map_shards(partial(ray_tasks.held_up, tmp_path), range(3))) == [0, 1, 2]

    def test_a_task_that_kills_every_process_has_the_line_that_it_has_here(self):
        """And kills neither the command nor its neighbours."""
        found = map_shards(ray_tasks.deadly, range(3))
        assert next(found) == 0
        with pytest.raises(ShardError, match="a worker process was killed, perhaps for want of memory"):
            next(found)

    def test_a_shard_that_shrinks_is_named(self, tmp_path):
        """Though the system only says SIGBUS."""
        with pytest.raises(ShardsChanged, match=r"0\.tar: became shorter .*expected 65536 bytes, found 0"):
            list(map_shards(ray_tasks.shrunk, [str(tmp_path / "0.tar")]))

    def test_what_cannot_travel_is_refused_as_by_processes(self):
        with pytest.raises((pickle.PicklingError, AttributeError)):
            list(map_shards(lambda item: item, range(2)))


#: Loses a machine, to which the command itself is not connected, when five results of forty are there.
UNLUCKY = """
import ray_tasks
import shards
from ray_cluster import NODE, two_machines
from shards.io.parallel import map_shards
with two_machines() as made, shards.engine("ray", ray_address=made.address):
    assert list(map_shards(ray_tasks.squared, [3])) == [9]
    lost = made.add_node(**NODE)
    for done, found in enumerate(map_shards(ray_tasks.heavy, range(40))):
        assert found == bytes([done]) * (1 << 20)
        if done == 4:
            made.remove_node(lost, allow_graceful=False)
print(done)
"""


@pytest.mark.slow
def test_a_machine_that_is_lost_costs_only_its_tasks():
    """Those at work on it, and results that lay there: all come, in order and right; Ray does not say a word."""
    paths = os.pathsep.join([str(Path(ray_tasks.__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", UNLUCKY],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    # Another cluster of this machine, another test's, is Ray's to speak of at the start; of what is lost it is silent.
    told = [line for line in done.stderr.splitlines() if "Overwriting previous Ray address" not in line]
    assert (done.returncode, done.stdout, told) == (0, "39\n", [])


class TestAskedFor:
    """Before any work."""

    def test_an_engine_that_there_is_not(self):
        with pytest.raises(Misuse, match=r"--engine slurm: no such engine \(expected local or ray\)"):
            shards.engine("slurm").__enter__()

    def test_an_address_of_no_cluster(self):
        with pytest.raises(Misuse, match="--ray-address auto: only with --engine ray"):
            shards.engine("local", ray_address="auto").__enter__()

    def test_without_the_library(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(ShardError, match=r"--engine ray needs the library; pip install 'curate-bdw\[ray\]'"):
            shards.engine("ray").__enter__()

    def test_nothing_starts_before_there_is_something_to_do(self):
        with shards.engine("ray"):
            assert list(map_shards(ray_tasks.squared, [])) == []
            assert not ray.is_initialized()

    def test_an_address_where_nobody_answers(self):
        """At once: Ray itself would go on asking."""
        with (
            pytest.raises(ShardError, match=r"Ray cannot connect to 127\.0\.0\.1:1 \(.*refused\); mend --ray-address"),
            shards.engine("ray", ray_address="127.0.0.1:1"),
        ):
            list(map_shards(ray_tasks.squared, range(2)))


class TestPlaces:
    """What a machine of the cluster must have."""

    def test_the_same_release(self):
        answer = pickle.loads(ray_engine._done(b"", b"", "0.0.1", os.getcwd(), {}))
        assert "another release of curate-bdw (expected 0.0.1, found" in str(answer.error)

    def test_the_same_folders(self, tmp_path):
        release = ray_engine.version("curate-bdw")
        answer = pickle.loads(ray_engine._done(b"", b"", release, str(tmp_path / "nowhere"), {}))
        assert "a machine of the cluster has no such folder" in str(answer.error)


@pytest.mark.slow
def test_the_command_line_says_what_it_says_locally(tmp_path):
    """Ray's own talk stays in its logs; its processes end with the command."""
    from shard_makers import numbered, write_tar

    for number in range(6):
        write_tar(tmp_path / "store" / f"{number}.tar", numbered(10 * number, 5))
    said = {}
    for engine in ("local", "ray"):
        command = [sys.executable, "-m", "curate", "-q", "index", "store", "--engine", engine]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
        said[engine] = done.stdout, done.stderr, (tmp_path / "store/.curate/index.parquet").read_bytes()
    assert said["ray"] == said["local"]
