"""A run that is stopped anywhere and started again leaves the bytes of one that never was."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from functools import partial
from types import SimpleNamespace

import forked
import pytest
import toyset

from curate.errors import CurateError
from curate.progress import NullProgress
from curate.runs import checkpoint
from shards.errors import NoSpace

COUNT, EPOCHS = 64, 3
#: Momentum, averages and a generation an epoch: everything a checkpoint can hold is in play, and shards are read again.
OPTIONS = {
    "epochs": EPOCHS,
    "meta_momentum": 0.9,
    "meta_average": 0.5,
    "momentum": 0.5,
    "eta": 1.0,
    "reference": "batch",
    "lam": 0.35,
    "rewrite": "always",
    "cache_bytes": 0,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    toyset.make_store(folder / "store", COUNT, {9: b"no picture"})
    toyset.make_target(folder / "target")
    return folder


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The tree of a run that was never stopped."""
    out = tmp_path_factory.mktemp("whole") / "run"
    go(data, out)
    return toyset.same_run(out)


def go(data, out, progress=None, **changes):
    return toyset.run_on(data, out, progress, **{**OPTIONS, **changes})


class Stopped(BaseException):
    """What a test stops a run by; nothing of ours may catch it."""


class StopAt(NullProgress):
    """Stops a run at its n-th step, or when an epoch is reported."""

    def __init__(self, step=None, epoch=None):
        self.left, self.last = step, epoch

    def step(self, images, numbers):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise Stopped

    def report(self, report):
        if report.epoch == self.last:
            raise Stopped


class StopIn(NullProgress):
    """Stops a run in an epoch's first step."""

    def __init__(self, epoch):
        self.epoch_now, self.last = 0, epoch

    def epoch(self, epoch, images, examples):
        self.epoch_now = epoch

    def step(self, images, numbers):
        if self.epoch_now == self.last:
            raise Stopped


def test_the_run_prunes_and_rewrites_at_every_epoch(whole):
    """Or these tests would show little."""
    counts = [line["pruned"] for line in whole["metrics.jsonl"]]
    assert len(counts) == EPOCHS
    assert min(counts) > 0
    assert whole["metrics.jsonl"][-1]["kept"] >= 16
    assert b'"generation": 2' in whole[f"checkpoints/epoch={EPOCHS:04d}/state.json"]


@pytest.mark.parametrize(
    "stop", [{"step": 1}, {"step": 3}, {"step": 6}, {"epoch": 1}, {"epoch": 2}, {"epoch": 3}], ids=str
)
def test_stopped_in_or_after_an_epoch(data, whole, tmp_path, stop):
    """In the midst of the first and the second epoch, and after each is done."""
    with pytest.raises(Stopped):
        go(data, tmp_path / "run", StopAt(**stop))
    go(data, tmp_path / "run")
    assert toyset.same_run(tmp_path / "run") == whole


def test_the_worth_of_a_target_image_is_taken_up_again(data, tmp_path):
    """`--reference target` goes by a mean over all steps: stopped after an epoch or not, the beliefs are the same."""
    go(data, tmp_path / "one", reference="target", epochs=2)
    with pytest.raises(Stopped):
        go(data, tmp_path / "two", StopAt(epoch=1), reference="target", epochs=2)
    go(data, tmp_path / "two", reference="target", epochs=2)
    assert toyset.same_run(tmp_path / "one") == toyset.same_run(tmp_path / "two")


def stop_at_rename(monkeypatch, number):
    """Stop at the n-th file or folder that would get its final name; returns how many there were."""
    renames, replace = [0], os.replace

    def counted(source, target, **rest):
        renames[0] += 1
        if renames[0] == number:
            raise Stopped
        replace(source, target, **rest)

    monkeypatch.setattr(os, "replace", counted)
    return renames


def stopped_at_rename_then_finished(monkeypatch, data, out, number):
    with monkeypatch.context() as patch:
        stop_at_rename(patch, number)
        with pytest.raises(Stopped):
            go(data, out)
    go(data, out)
    return toyset.same_run(out)


def renames_of_a_run(monkeypatch, data, out):
    with monkeypatch.context() as patch:
        renames = stop_at_rename(patch, 0)
        go(data, out)
    return renames[0]


def test_stopped_before_some_files_get_their_names(monkeypatch, data, whole, tmp_path):
    """Every seventeenth rename of a run; the slow test has them all."""
    for number in range(3, renames_of_a_run(monkeypatch, data, tmp_path / "counted") + 1, 17):
        assert stopped_at_rename_then_finished(monkeypatch, data, tmp_path / str(number), number) == whole, number


@pytest.mark.slow
def test_stopped_before_any_file_gets_its_name(monkeypatch, data, whole, tmp_path):
    """Ledger, manifest, generation, checkpoint, marker, metrics, weights, curated set: each in turn."""
    total = renames_of_a_run(monkeypatch, data, tmp_path / "counted")
    assert total > 40
    for number in range(1, total + 1):
        out = tmp_path / str(number)
        assert stopped_at_rename_then_finished(monkeypatch, data, out, number) == whole, number
        shutil.rmtree(out)


def test_stopped_again_and_again(data, whole, tmp_path):
    """In the midst of an epoch each time; an epoch has four steps, then three."""
    for step in (2, 5, 3, 4):
        with pytest.raises(Stopped):
            go(data, tmp_path / "run", StopAt(step=step))
    go(data, tmp_path / "run")
    assert toyset.same_run(tmp_path / "run") == whole


def test_a_finished_run_is_left_as_it_is(data, whole, tmp_path):
    """The same command once more trains nothing and changes no byte."""
    go(data, tmp_path / "run")
    go(data, tmp_path / "run", StopAt(step=1))
    assert toyset.same_run(tmp_path / "run") == whole


def test_a_run_goes_on_elsewhere(data, whole, tmp_path):
    """The store, the target and the run may be moved, and other workers and memory be given."""
    with pytest.raises(Stopped):
        go(data, tmp_path / "run", StopAt(epoch=1))
    for name in ("store", "target"):
        shutil.copytree(data / name, tmp_path / "moved" / name)
    shutil.move(tmp_path / "run", tmp_path / "moved_run")
    go(tmp_path / "moved", tmp_path / "moved_run", workers=1)
    found = toyset.same_run(tmp_path / "moved_run")
    paths = ("store", "target")
    for record in (found["run.json"], expected := dict(whole["run.json"])):
        record["configuration"] = {k: v for k, v in record["configuration"].items() if k not in paths}
    assert found == whole | {"run.json": expected}


def test_a_damaged_checkpoint_says_what_to_do_and_that_works(data, whole, tmp_path):
    """The message: remove its folder to go on from an older epoch, of which the last two are held."""
    with pytest.raises(Stopped):
        go(data, tmp_path / "run", StopAt(epoch=2))
    last = checkpoint.folder(tmp_path / "run", 2)
    (last / "optimizer.safetensors").write_bytes(b"cut")
    with pytest.raises(CurateError, match=r"optimizer\.safetensors: is damaged .*; remove its folder"):
        go(data, tmp_path / "run")
    shutil.rmtree(last)
    go(data, tmp_path / "run")
    assert toyset.same_run(tmp_path / "run") == whole


def test_a_disk_that_is_too_small_costs_no_epoch(monkeypatch, data, whole, tmp_path):
    """A rewrite that does not fit is noted while running and an error at the end; the same command finishes later."""
    out, heard = tmp_path / "run", toyset.Notes()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=0, used=0, free=0))
        with pytest.raises(NoSpace):
            go(data, out, heard)
    assert [note.split(":")[0] for note in heard.notes] == [f"shards not rewritten after epoch {e}" for e in (1, 2)]
    assert not (out / "curated" / "curated.json").exists()
    go(data, out)
    found = toyset.same_run(out)
    assert found.keys() == whole.keys()
    # No generation was made, and the checkpoints say so; all else is the same.
    assert {name for name in whole if found[name] != whole[name]} == {
        f"checkpoints/epoch={epoch:04d}/state.json" for epoch in range(1, EPOCHS + 1)
    }


@pytest.mark.slow
@pytest.mark.parametrize("extended", [False, True])
def test_killed_before_any_removal(data, whole, tmp_path, extended):
    """What is gone on with is never half removed, and what was to go goes: generations, and what old epochs hold.

    Extended, the run has come to an end before, and its curated shards go, too.
    """
    begun = tmp_path / "begun"
    if extended:
        go(data, begun, epochs=EPOCHS - 1)
        shutil.copytree(begun, tmp_path / "whole")
        go(data, tmp_path / "whole")
        whole = toyset.same_run(tmp_path / "whole")
    else:
        with pytest.raises(Stopped):
            go(data, begun, StopAt(epoch=1))
    for number in itertools.count(1):
        out = shutil.copytree(begun, tmp_path / f"run-{number}")
        if not forked.killed_before_removal(partial(go, data, out), number):
            break
        go(data, out)
        assert toyset.same_run(out) == whole, number
    assert number > 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_by_the_system(data, whole, tmp_path, seed):
    """SIGKILL at four random moments, then left to finish: no temporary name is left, and the tree is the same."""
    out, moments = tmp_path / "run", random.Random(seed)
    for _ in range(4):
        forked.killed(partial(go, data, out), moments.uniform(0.05, 0.6))
    assert not forked.killed(partial(go, data, out), 600)
    assert toyset.same_run(out) == whole
