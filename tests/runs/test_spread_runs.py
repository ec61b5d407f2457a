"""A run over several ranks keeps what a run of one process keeps; goes on with any number of them; ends as one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import ranks_scene
import torch
import toyset

import curate
from curate import api, ranks
from curate.api.runs import configured
from curate.config.schema import from_options
from curate.errors import Misuse
from curate.progress import NullProgress
from curate.runs import checkpoint, follow, launch
from curate.runs.epoch import train_on
from curate.runs.run import run

pytestmark = pytest.mark.slow

#: Two images that do not decode; batches of 16 of them fall on ranks, and the last of an epoch is short.
COUNT, BROKEN = 90, {9: b"no picture", 50: b"none"}
OPTIONS = {**toyset.FAST, "workers": 0, "threads": 1, "momentum": 0.5, "rewrite": "always", "checkpoint_every": "never"}
#: A network with batch norm, on the digits.
CONVOLUTIONS = {
    **{"pretext": "rotation", "network": "small", "width": 4, "colour": "grey", "size": 10, "crop": 8, "epochs": 2},
    **{
        "norm": "batch",
        "lr": 0.05,
        "batch": 16,
        "target_batch": 16,
        "prior": "uniform",
        "meta_loss": "self-supervised",
    },
    **{"eta": 2.0, "expected_gradient": True, "reference": "batch", "lam": 0.45, "stem_stride": 1, "lr_drops": ()},
    **{"workers": 0, "threads": 1, "device": "cpu", "checkpoint_every": "never", "meta_average": 0.0},
}
METHODS = {
    "bdw": {},
    "batch norm": CONVOLUTIONS,
    "prototypical": {**CONVOLUTIONS, "meta_loss": "prototypical", "ways": 4, "shots": 2},
    "shared, momentum off": {"share": "clusters:4", "encoder": "pixels", "rewrite": "end"},
    "l2rw": {"method": "l2rw"},
    "dw": {"method": "dw", "lam": 0.0, "reference": "none"},
    "contrast": {**CONVOLUTIONS, "pretext": "simclr", "norm": "group"},
}


_PLAIN = {"pretext", "size", "crop", "hidden", "epochs", "batch", "target_batch", "lr", "meta_loss", "momentum"}
_PLAIN |= {"method", "workers", "threads", "device", "rewrite", "checkpoint_every"}
#: What says something to a method that takes not all options.
KNOWN = {"l2rw": _PLAIN, "dw": _PLAIN | {"eta", "eta_scale", "reference", "lam", "prior"}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    toyset.make_store(folder / "store", COUNT, BROKEN)
    toyset.make_target(folder / "target")
    return folder


def go(data, out, devices, **changes):
    """A run on so many ranks, which are forked here; returns it, opened."""
    base = changes if "pretext" in changes else OPTIONS | changes
    given = {name: value for name, value in base.items() if name in KNOWN.get(base.get("method"), base)}
    # As the command takes it, with what is usual where nothing is said.
    config = configured(data / "store", data / "target", None, False, given | {"devices": devices}, None)
    work = partial(launch._lead_or_follow, partial(run, config, out), config.machine, out, None)
    if devices == 1:
        work()
    else:
        with tempfile.TemporaryDirectory() as place:
            ranks_scene.on_each(devices, Path(place), work)
    return curate.open_run(out)


@pytest.mark.parametrize("name", METHODS)
def test_two_ranks_keep_what_one_process_keeps(data, tmp_path, name):
    """In float32, where sums over ranks round otherwise; curated shards byte for byte, beliefs to 1e-4."""
    runs = [go(data, tmp_path / str(devices), devices, **METHODS[name]) for devices in (1, 2)]
    one, two = (each.weights() for each in runs)
    assert one.select(["row", "visits", "kept", "error"]).equals(two.select(["row", "visits", "kept", "error"]))
    np.testing.assert_allclose(two["mean"].to_numpy(), one["mean"].to_numpy(), rtol=2e-3, atol=1e-4)
    assert runs[0].run_id == runs[1].run_id
    assert shards_of(tmp_path / "1") == shards_of(tmp_path / "2")
    for first, second in zip(*(each.metrics() for each in runs)):
        assert first["images"] == second["images"]
        assert second["pretext_loss"] == pytest.approx(first["pretext_loss"], rel=1e-3)
        assert second["meta_loss"] == pytest.approx(first["meta_loss"], rel=1e-3)


def shards_of(out):
    return {path.name: path.read_bytes() for path in sorted((out / "curated").glob("*.tar"))}


@pytest.fixture(scope="module")
def four(data, tmp_path_factory):
    """A run of four ranks that was never stopped."""
    out = tmp_path_factory.mktemp("four") / "run"
    go(data, out, 4)
    return out


def test_four_ranks_keep_what_one_process_keeps(data, four, tmp_path):
    go(data, tmp_path / "one", 1)
    assert toyset.manifest(four, 3) == toyset.manifest(tmp_path / "one", 3)
    assert shards_of(four) == shards_of(tmp_path / "one")
    machine = curate.open_run(four).record["machine"]
    assert (machine["ranks"], machine["batch_norm"]) == (4, "all ranks")


def test_going_on_with_another_number_of_ranks(data, four, tmp_path):
    """An epoch on four, one on one, one on two; the end is that of four throughout."""
    out = tmp_path / "run"
    for epochs, devices in ((1, 4), (2, 1), (3, 2)):
        go(data, out, devices, epochs=epochs)
    assert checkpoint.finished(out) == [1, 2, 3]
    for epoch in (1, 2, 3):
        assert toyset.manifest(out, epoch) == toyset.manifest(four, epoch)
    assert shards_of(out) == shards_of(four)


def threads_of(config, out):
    """Of each epoch on this rank, where each is told another number."""
    found = []

    def watched(*given):
        found.append(torch.get_num_threads())
        return train_on(*given)

    machine = replace(config.machine, threads=1 + ranks.rank())
    with mock.patch.object(follow, "train_on", watched):
        launch._lead_or_follow(partial(run, config, out), machine, out, None)
    return found


def test_all_ranks_compute_with_the_threads_of_the_first(data, tmp_path):
    """By whose number the run goes on: sums are taken in another order by another one."""
    inputs = {"store": str(data / "store"), "target": str(data / "target"), "devices": 2}
    config = from_options(inputs | OPTIONS | {"epochs": 2})
    (tmp_path / "place").mkdir()
    assert ranks_scene.on_each(2, tmp_path / "place", threads_of, config, tmp_path / "run")[1] == [1, 1]


def test_pretraining(data, tmp_path):
    """So many steps, the last epoch a part of one: the loss and the network of one process."""
    options = {name: CONVOLUTIONS[name] for name in ("network", "width", "colour", "size", "crop", "lr", "batch")}
    options |= {"workers": 0, "threads": 1, "device": "cpu"}
    one, two = (api.pretrain(data / "store", out=tmp_path / str(n), steps=8, devices=n, **options) for n in (1, 2))
    assert (two.summary.steps, two.summary.images) == (one.summary.steps, one.summary.images) == (8, COUNT - 2)
    assert two.summary.loss == pytest.approx(one.summary.loss, rel=1e-4)
    theirs = one.network().state_dict()
    for name, x in two.network().state_dict().items():
        np.testing.assert_allclose(x.numpy(), theirs[name].numpy(), rtol=1e-2, atol=1e-4, err_msg=name)


def command(data, out, **changes):
    options = OPTIONS | {"checkpoint_every": 1, "devices": 4} | changes
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    inputs = ["--store", str(data / "store"), "--target", str(data / "target"), "--out", str(out)]
    return [*inputs, *words]


def start(*words):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def children(process):
    """The ranks, in the order in which they were started; not the helper that Python starts before them."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(each) for each in listed if "spawn_main" in Path(f"/proc/{each}/cmdline").read_text()]


def wait_for(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


in_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")


@in_proc
@pytest.mark.parametrize("which", [0, 2])
def test_a_rank_that_is_killed_ends_the_job(data, four, tmp_path, which):
    """Within a minute, with one line; then the same command goes on to the bytes of a run that was never stopped."""
    out = tmp_path / "run"
    words = [sys.executable, "-m", "curate", "run", *command(data, out)]
    process = start(*words)
    wait_for(lambda: checkpoint.midway_in(out) and len(children(process)) == 4)
    ranks = children(process)
    os.kill(ranks[which], signal.SIGKILL)
    killed = time.monotonic()
    _, told = process.communicate(timeout=60)
    assert time.monotonic() - killed < 30
    assert process.returncode == 1
    lines = [line for line in told.splitlines() if line.startswith("Error")]
    assert lines == [
        f"Error: rank {which} of 4 was ended by SIGKILL, perhaps for want of memory; the same command goes on from "
        "the last checkpoint"
    ]
    assert "Traceback" not in told
    wait_for(lambda: not any(Path(f"/proc/{each}").exists() for each in ranks), 5)
    again = start(*words)
    _, told = again.communicate(timeout=240)
    assert again.returncode == 0, told
    assert toyset.same_run(out) == toyset.same_run(four)


@in_proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends_all_ranks(data, tmp_path, number):
    out = tmp_path / "run"
    process = start(sys.executable, "-m", "curate", "run", *command(data, out, epochs=400))
    wait_for(lambda: checkpoint.midway_in(out) and len(children(process)) == 4)  # in the midst of an epoch
    ranks = children(process)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in told
    assert "stopped in epoch" in told
    assert any((at / "state.json").exists() for at in checkpoint.midway_in(out).values())
    wait_for(lambda: not any(Path(f"/proc/{each}").exists() for each in ranks), 5)


#: The command, whose ranks look for one another oftener.
IMPATIENT = "from curate import cli; from curate.runs import heartbeat; heartbeat.EVERY_S = 0.5; cli.main()"


def torchrun(count, words, *python):
    words = [word for pair in zip(words[::2], words[1::2]) if pair[0] != "--devices" for word in pair]
    runner = ["-m", "torch.distributed.run", "--nproc-per-node", str(count), "--standalone", "--no-python"]
    return start(sys.executable, *runner, sys.executable, *python, "run", *words)


@in_proc
@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGKILL, "another process of this job has ended"),
        (signal.SIGSTOP, "nothing has been heard of rank 1 of 2 for 4 s"),  # as of a machine that is gone
    ],
)
def test_a_rank_of_torchruns_that_is_lost_ends_the_job(data, tmp_path, number, line):
    out = tmp_path / "run"
    process = torchrun(2, command(data, out, epochs=400), "-c", IMPATIENT)
    wait_for(lambda: checkpoint.midway_in(out))
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ranks = [each for each in listed if b"RANK=1\0" in Path(f"/proc/{each}/environ").read_bytes()]
    os.kill(int(ranks[0]), number)
    lost = time.monotonic()
    wait_for(lambda: len(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()) < len(listed))
    with suppress(ProcessLookupError):
        os.kill(int(ranks[0]), signal.SIGKILL)  # torchrun waits 30 s for one that does not hear
    _, told = process.communicate(timeout=60)
    assert time.monotonic() - lost < 60
    assert process.returncode == 1
    lines = [each for each in told.splitlines() if each.startswith("Error")]
    assert len(lines) == 1
    assert lines[0].startswith(f"Error: {line}; the same command goes on")


def test_torchrun_starts_it_too(data, tmp_path, four):
    """Its processes are told of one another in the environment; the first alone prints."""
    words = command(data, tmp_path / "run", checkpoint_every="never")
    process = torchrun(4, words, "-m", "curate")
    said, told = process.communicate(timeout=240)
    assert process.returncode == 0, told
    assert said.count("kept ") == 1
    assert toyset.same_run(tmp_path / "run") == toyset.same_run(four)


def test_an_error_of_a_rank_is_the_errors_own(data, tmp_path):
    """Type, text and exit code are as of one process; and what cannot be sent to a process is said before."""

    class Local(NullProgress):
        """Of no module."""

    inputs = {"store": data / "store", "target": data / "target", "out": tmp_path / "run", "devices": 2, **OPTIONS}
    with pytest.raises(Misuse, match="give a progress that can be pickled, or none"):
        api.run(**inputs, progress=Local())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("somebody else's")
    with pytest.raises(Misuse, match="holds files, but no run"):
        api.run(**inputs)
