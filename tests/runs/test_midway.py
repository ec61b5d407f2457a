"""A run that is stopped in the midst of an epoch goes on there, to the bytes of one that never was."""

from __future__ import annotations

import os
import random
import shutil
import signal
from contextlib import suppress
from functools import partial

import forked
import pytest
import toyset
from test_run_resume import OPTIONS, StopAt, Stopped

from curate.data.image_store import ImageStore
from curate.errors import CurateError, Misuse
from curate.runs import checkpoint, midway
from curate.runs.pretrain import pretrain

COUNT = 96
#: Every step is saved, so that a stop anywhere goes on from there.
EVERY = {**OPTIONS, "checkpoint_every": 1, "cache_bytes": None}
METHODS = {
    "bdw": {},
    "averaged": {"reference": "target", "meta_average": 0.9, "meta_momentum": 0.0},
    "dw": {"method": "dw", "lam": 0.0, "meta_momentum": 0.0, "reference": "none"},
    "l2rw": {"method": "l2rw"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    toyset.make_store(folder / "store", COUNT, {9: b"no picture", 50: b"none"})
    toyset.make_target(folder / "target")
    return folder


def go(data, out, progress=None, **changes):
    options = EVERY | changes
    if options.get("method") == "l2rw":
        options = {name: options[name] for name in ("method", "epochs", "momentum", "checkpoint_every")}
    return toyset.run_on(data, out, progress, **options)


@pytest.fixture(scope="module")
def wholes(data, tmp_path_factory):
    """The trees of runs that were never stopped, and never saved in mid-epoch, by method."""
    place = tmp_path_factory.mktemp("whole")
    for name, changes in METHODS.items():
        go(data, place / name, checkpoint_every="never", **changes)
    return {name: toyset.same_run(place / name) for name in METHODS}


class Heard(StopAt):
    """Keeps the notes, and counts the images that were trained on and those that an earlier call had been."""

    def __init__(self, **stop):
        super().__init__(**stop)
        self.notes, self.trained, self.skipped = [], 0, 0

    def note(self, text):
        self.notes.append(text)

    def skip(self, images):
        self.skipped += images

    def step(self, images, numbers):
        self.trained += images
        super().step(images, numbers)


def stopped(data, out, step, **changes):
    with pytest.raises(Stopped):
        go(data, out, StopAt(step=step), **changes)
    return sorted(path.name for path in (out / "checkpoints").iterdir() if (path / "state.json").exists())


@pytest.mark.parametrize("name", METHODS)
def test_stopped_in_the_midst_of_an_epoch(data, wholes, tmp_path, name):
    """Six steps an epoch at first. What was trained on before is neither read nor trained on again."""
    out, changes = tmp_path / "run", METHODS[name]
    assert stopped(data, out, 4, **changes) == ["epoch=0001-step=00000003"]
    again = Heard()
    go(data, out, again, **changes)
    assert again.notes[0] == "going on in epoch 1, after step 3 of the run"
    assert again.skipped == 48
    assert toyset.same_run(out) == wholes[name]


def test_stopped_at_every_step(data, wholes, tmp_path):
    """One step a call, until there is nothing to do: the totals of an epoch are those of many calls."""
    calls = 0
    while True:
        calls += 1
        try:
            go(data, tmp_path / "run", StopAt(step=2))
            break
        except Stopped:
            pass
    assert calls > 10
    assert toyset.same_run(tmp_path / "run") == wholes["bdw"]


def test_only_what_is_left_of_the_epoch_is_read(data, tmp_path, monkeypatch):
    stopped(data, tmp_path / "run", 4, epochs=1)
    asked, read = [], ImageStore.read

    def counted(self, cuts):
        asked.append(sum(map(len, cuts)))
        return read(self, cuts)

    monkeypatch.setattr(ImageStore, "read", counted)
    go(data, tmp_path / "run", epochs=1)
    assert asked[-1] == COUNT - 48


def test_a_run_whose_epochs_are_short_has_none(data, wholes, tmp_path):
    """Ten minutes are the default."""
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        go(data, out, StopAt(step=3), checkpoint_every="10min")
    assert not (out / "checkpoints").exists()
    go(data, out, checkpoint_every="10min")
    assert toyset.same_run(out) == wholes["bdw"]


def test_there_is_one_at_a_time_and_none_at_the_end(data, tmp_path, monkeypatch):
    """The old one goes when the new one counts."""
    held, mark = [], checkpoint.mark

    def marked(at, *args, **rest):
        held.append(sum((path / "state.json").exists() for path in checkpoint.midway_in(tmp_path / "run").values()))
        mark(at, *args, **rest)

    monkeypatch.setattr(checkpoint, "mark", marked)
    go(data, tmp_path / "run", epochs=1)
    assert held == [0, 1, 1, 1, 1, 1]  # five in the epoch, and its own
    assert checkpoint.midway_in(tmp_path / "run") == {}


def test_by_time(data, tmp_path):
    """Where every step takes longer than that."""
    assert stopped(data, tmp_path / "run", 3, checkpoint_every="0.000001s") == ["epoch=0001-step=00000002"]


@pytest.mark.parametrize("value", ["0", "ten", "5 parsecs", "-3", "0min", "", "1e3", "nan"])
def test_an_interval_that_cannot_be_meant(data, tmp_path, value):
    with pytest.raises(Misuse, match=r"--checkpoint-every .*: must be steps \(500\), a time"):
        go(data, tmp_path / "run", checkpoint_every=value)


@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "totals.safetensors", "weights.safetensors"])
def test_a_damaged_one_is_named_and_the_epoch_begins_again_without_it(data, wholes, tmp_path, name):
    out = tmp_path / "run"
    stopped(data, out, 9)  # in the second epoch
    (at,) = checkpoint.midway_in(out).values()
    body = (at / name).read_bytes()
    (at / name).write_bytes(body[:-20] + bytes([body[-20] ^ 1]) + body[-19:])
    with pytest.raises(
        CurateError, match=rf"{at.name}/{name}: is damaged .*; remove its folder to begin the epoch again"
    ):
        go(data, out)
    shutil.rmtree(at)
    heard = Heard()
    go(data, out, heard)
    assert heard.notes[0] == "going on after epoch 1"
    assert toyset.same_run(out) == wholes["bdw"]


def test_one_of_another_order_is_passed_over(data, wholes, tmp_path, monkeypatch):
    """Such as of a store that cannot be read in the same order any more: some images would be seen twice."""
    out, order = tmp_path / "run", ImageStore.order
    with monkeypatch.context() as patch:
        patch.setattr(ImageStore, "order", lambda self, rows, seed, epoch: order(self, rows, seed + 1, epoch))
        stopped(data, out, 4)
    heard = Heard()
    go(data, out, heard)
    assert any("epoch 1 begins again: epoch=0001-step=00000003 is of another order" in note for note in heard.notes)
    assert toyset.same_run(out) == wholes["bdw"]


def test_a_full_disk_costs_the_checkpoint_and_not_the_run(data, wholes, tmp_path, monkeypatch):
    out, heard, write = tmp_path / "run", Heard(), checkpoint.write

    def full(at, *rest):
        write(at, *rest)
        if "step" in at.name:
            raise OSError(28, "No space left on device", str(at))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", full)
        go(data, out, heard)
    assert "no checkpoint in epoch 1 after 1 steps" in heard.notes[0]
    assert toyset.same_run(out) == wholes["bdw"]


class Interrupt(Heard):
    """Sends a signal to the process in a step."""

    def __init__(self, number, step):
        super().__init__()
        self.number, self.at = number, step

    def step(self, images, numbers):
        self.at -= 1
        if self.at == 0:
            os.kill(os.getpid(), self.number)


@pytest.fixture
def interruptible():
    """Ctrl-C as at a terminal: a shell's background command begins deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("every", ["10min", "never"])
def test_ctrl_c_saves_and_stops(data, wholes, tmp_path, every):
    """And the step that was at work is not lost; the handlers are those of before."""
    out, before, heard = tmp_path / "run", signal.getsignal(signal.SIGTERM), Interrupt(signal.SIGINT, 4)
    with pytest.raises(KeyboardInterrupt) as stopped_by:
        go(data, out, heard, checkpoint_every=every)
    saved = "stopped in epoch 1 after 4 of 6 steps; the same command goes on there"
    assert str(stopped_by.value) == (saved if every == "10min" else "")
    assert heard.notes == []  # the command's own line says it
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is before
    go(data, out)
    assert toyset.same_run(out) == wholes["bdw"]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_at_the_last_step_of_an_epoch(data, wholes, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        go(data, out, Interrupt(signal.SIGINT, 6), checkpoint_every="10min")
    heard = Heard()
    go(data, out, heard, checkpoint_every="10min")
    assert (heard.notes[0], heard.skipped) == ("going on in epoch 1, after step 6 of the run", 96)
    assert toyset.same_run(out) == wholes["bdw"]


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_is_obeyed_at_once(data, wholes, tmp_path):
    class Twice(Interrupt):
        def step(self, images, numbers):
            if self.number is not None:
                os.kill(os.getpid(), self.number)
                os.kill(os.getpid(), self.number)
                raise AssertionError("not stopped")

    with pytest.raises(KeyboardInterrupt):
        go(data, tmp_path / "run", Twice(signal.SIGINT, 1), checkpoint_every="10min")
    assert not (tmp_path / "run" / "checkpoints").exists()
    go(data, tmp_path / "run")
    assert toyset.same_run(tmp_path / "run") == wholes["bdw"]


def test_a_pretraining_goes_on_in_mid_epoch(data, tmp_path):
    """With a last epoch that is a part of one, too."""
    options = {name: value for name, value in toyset.FAST.items() if name in ("size", "crop", "hidden", "batch", "lr")}
    options |= {"pretext": "reconstruction", "workers": 0, "device": "cpu", "checkpoint_every": "1"}
    store = str(data / "store")
    pretrain(store, tmp_path / "one", options | {"checkpoint_every": "never"}, 10)
    for step in (3, 2, 4, 2):
        with pytest.raises(Stopped):
            pretrain(store, tmp_path / "two", options, 10, StopAt(step=step))
    assert (tmp_path / "two" / "checkpoints" / "epoch=0002-step=00000007" / "state.json").exists()
    pretrain(store, tmp_path / "two", options, 10)
    assert toyset.same_run(tmp_path / "one") == toyset.same_run(tmp_path / "two")


def test_from_a_prior_whose_shards_were_rewritten(data, tmp_path):
    """Epoch 1 reads the first generation: it is not made again."""
    changes = {"prior": "classifier", "rewrite": "always", "nets": 1, "lam": 0.3, "eta": 0.3}
    go(data, tmp_path / "one", checkpoint_every="never", **changes)
    stopped(data, tmp_path / "two", 2, **changes)
    made = tmp_path / "two" / "shards" / "generation=1"
    before = made.stat().st_ino
    with pytest.raises(Stopped):
        go(data, tmp_path / "two", StopAt(step=1), **changes)
    assert made.stat().st_ino == before
    go(data, tmp_path / "two", **changes)
    assert toyset.same_run(tmp_path / "one") == toyset.same_run(tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_again_and_again(data, wholes, tmp_path, workers):
    """SIGKILL at random moments, until one has met an epoch half-way; KILLS=30 asks for so many, whatever it takes."""
    wanted, moments = int(os.environ.get("KILLS", "3")), random.Random(workers)
    kills, midst, number = 0, 0, 0
    while kills < wanted or (not midst and kills < wanted + 50):
        out, number, longer = tmp_path / f"run-{number}", number + 1, 1.0
        run = partial(go, data, out, workers=workers, checkpoint_every=2)
        while forked.killed(run, moments.uniform(0.05, 0.6 + 0.6 * (workers > 0)) * longer):
            kills, midst = kills + 1, midst + any(map(midway._counts, checkpoint.midway_in(out).values()))
            longer *= 1.1  # a busy machine gets somewhere, too
        assert toyset.same_run(out) == wholes["bdw"], (workers, number)
    print(
        f"{kills} kills of {number} runs with {workers} workers, {midst} of them between two of an epoch's checkpoints"
    )
    assert midst > 0


def test_sigterm_saves_and_ends(data, wholes, tmp_path):
    """The process ends as it would without us."""
    out = tmp_path / "run"
    if (process := os.fork()) == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with suppress(BaseException):
            go(data, out, Interrupt(signal.SIGTERM, 4), checkpoint_every="10min", workers=0)
        os._exit(70)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGTERM
    assert [path.name for path in checkpoint.midway_in(out).values()] == ["epoch=0001-step=00000004"]
    go(data, out)
    assert toyset.same_run(out) == wholes["bdw"]
