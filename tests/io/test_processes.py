"""Worker processes: none is lost in silence, none outlives the process that started it, none is ended by Ctrl-C."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toyset
from shard_makers import make_store, numbered

from curate.data.decode import Decoder, Pixels
from curate.data.image_store import ImageStore, ShardView
from curate.errors import CurateError
from curate.experiments.sweep import computed
from curate.runs import reshard
from shards import stream
from shards.errors import ShardError, ShardsChanged
from shards.io.byte_ranges import OpenShards
from shards.io.engines import local
from shards.io.mapped import open_mapped
from shards.io.parallel import map_overlapping, map_shards
from shards.stream import image_batches

CPU = torch.device("cpu")


@pytest.fixture
def at_once(monkeypatch):
    """Pools start with the first task."""
    monkeypatch.setattr(local, "SERIAL_S", 0)
    monkeypatch.setattr(local, "ALONE_S", 0)


@pytest.fixture
def digits(tmp_path):
    """An image store of 96 digits, read by two workers."""
    store = toyset.make_store(tmp_path / "store")
    return ImageStore(ShardView.whole(toyset.indexed(store)), Decoder(8, "grey"), 2, 0, CPU)


def killed(item: int) -> int:
    """Ends its process as the system does where memory is short, if that is a worker."""
    if parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def shrunk(path: str) -> int:
    """Reads a shard that becomes shorter meanwhile, in a worker."""
    if parent_process() is None:
        return 0
    with open_mapped(path) as source:
        os.truncate(path, 0)
        return source.buffer[-1]


class TestNothingIsLost:
    """What the loader gives back is what it was asked for."""

    def test_batches_need_no_shared_memory(self, digits, monkeypatch):
        """torch's queue drops a tensor that finds no room there, and the epoch goes on without it."""

        def no_room(*_: object) -> None:
            raise RuntimeError("unable to allocate shared memory(shm): No space left on device (28)")

        monkeypatch.setattr(torch.UntypedStorage, "_share_fd_cpu_", no_room)
        assert [len(batch.pixels) for batch in digits.batches(np.arange(96), 16)] == [16] * 6

    def test_pixels_cross_a_pipe_as_they_are(self, digits):
        """Undecodable rows with their codes, too; what arrives can be written to."""
        (there,) = digits.batches(np.arange(5), 8)
        digits.workers = 0
        (here,) = digits.batches(np.arange(5), 8)
        assert torch.equal(there.rows, here.rows)
        assert torch.equal(there.pixels, here.pixels)
        there.pixels.add_(1)

    @pytest.mark.parametrize("found", [[], [(0, "a")], [(1, "b"), (0, "a")]])
    def test_a_batch_that_is_missing_or_out_of_turn(self, digits, monkeypatch, found):
        """Held against the plan by its number."""
        monkeypatch.setattr(stream, "_loader", lambda *_: iter(found))
        with pytest.raises(
            ShardError, match=r"the loader lost a batch \(expected batch [01], found (the end|batch 1)\)"
        ):
            list(image_batches(digits.view.index, [np.arange(2), np.arange(2)], list, workers=0))

    @pytest.mark.parametrize("lost", ["an image", "its row too", "all", "order"])
    def test_an_image_that_is_missing_from_its_batch(self, digits, monkeypatch, lost):
        """Before anything is trained on it, or kept in memory."""
        whole = Decoder.__call__

        def lossy(decoder: Decoder, samples: list[dict[str, Any]]) -> Pixels:
            found = whole(decoder, samples)
            return {
                "an image": Pixels(found.rows, found.pixels[1:]),
                "its row too": Pixels(found.rows[1:], found.pixels[1:]),
                "all": Pixels(found.rows[:0], found.pixels[:0]),
                "order": Pixels(found.rows.flip(0), found.pixels),
            }[lost]

        monkeypatch.setattr(Decoder, "__call__", lossy)
        digits.cache_bytes = 1 << 30
        with pytest.raises(CurateError, match=r"the loader lost images: a batch of 16 came as \d+ images and 0 that"):
            list(digits.batches(np.arange(96), 16))
        assert not digits.cache.holds(np.arange(96))

    def test_an_epoch_without_one_of_its_batches(self, tmp_path, monkeypatch):
        """Wherever it got lost."""
        batches = ImageStore.batches
        monkeypatch.setattr(ImageStore, "batches", lambda *call: list(batches(*call))[1:])
        with pytest.raises(CurateError, match="epoch 1: 80 images came, 96 were to be visited"):
            toyset.run_on(toyset.make_data(tmp_path, 96), tmp_path / "run", epochs=1)


def an_unhurried_item(item: int) -> tuple[int, bool]:
    """The item, and whether a worker had it."""
    return item, parent_process() is not None


def noted(done: list[int], item: int) -> int:
    """The item, noted in the list of the process that had it."""
    done.append(item)
    return item


class TestTogether:
    """This process works beside the others that it has started."""

    def test_results_come_in_order_and_the_first_error_in_its_turn(self, at_once):
        found = []
        with pytest.raises(ValueError, match="5"):
            found.extend(map_shards(a_slow_worker, range(40), workers=2))  # keeps what came before
        assert [item for item, _ in found] == list(range(5))
        assert {at_work for _, at_work in found} == {False, True}

    def test_this_process_works_while_the_others_start(self, at_once, monkeypatch):
        """And hands its results on at once."""
        monkeypatch.setattr(local, "ALONE_S", 60)
        found = list(map_shards(an_unhurried_item, range(3), workers=2))
        assert found == [(0, False), (1, False), (2, False)]

    def test_few_results_are_ahead_of_the_one_that_is_due(self, at_once):
        """While the worker is not there yet, this process does not do everything and keep it."""
        done: list[int] = []
        for item in map_shards(partial(noted, done), range(100), workers=2):
            assert len(done) <= item + 4 * 2 + 2

    def test_a_task_begins_while_the_one_before_still_waits(self):
        """In order, with an item of a generator taken only when its turn has come, and the error in its turn."""
        taken: list[int] = []

        def items() -> Iterator[int]:
            for item in range(9):
                taken.append(item)
                yield item

        both = threading.Barrier(2, timeout=20)
        found = []
        for item in map_overlapping(lambda item: (both.wait(), item)[1] if item < 2 else item, items(), 9):
            found.append(item)
            assert len(taken) <= item + 3
        assert found == list(range(9))
        with pytest.raises(ZeroDivisionError):
            list(map_overlapping(lambda item: 1 // item, range(2), 2))


class TestForeignErrors:
    """Of the pool, of the loader and of the system: one line."""

    def test_a_pool_that_lost_a_process(self, at_once):
        """Python calls it a broken pool."""
        with pytest.raises(ShardError, match=r"a worker process was killed, .*; give fewer --workers"):
            list(map_shards(killed, range(4), workers=2))

    def test_cells_that_lost_a_process(self):
        """With the option that says how many they are."""
        with pytest.raises(ShardError, match=r"a worker process was killed, .*; give fewer --processes"):
            list(computed(killed, {"a": 1, "b": 2}, 2))

    def test_a_loader_that_lost_a_process(self, digits):
        """torch calls it a runtime error."""
        with pytest.raises(ShardError, match="a worker process was killed"):
            list(image_batches(digits.view.index, [np.arange(2)] * 8, killed, workers=2))

    def test_a_shard_that_shrinks_under_a_pool(self, at_once, tmp_path):
        """It is named, though the system only says SIGBUS."""
        paths = []
        for number in range(4):
            paths.append(tmp_path / f"{number}.tar")
            paths[-1].write_bytes(bytes(1 << 16))
        with pytest.raises(ShardsChanged, match=r"\d\.tar: became shorter .*expected 65536 bytes, found 0"):
            list(map_shards(shrunk, [str(path) for path in paths], workers=2))

    def test_a_shard_that_shrinks_under_the_command_line(self, tmp_path):
        """Where no pool stands between."""
        code = f"""
from curate import cli
from shards.io.mapped import open_mapped
def shrunk(**_):
    with open_mapped("{tmp_path}/0.tar") as source:
        open("{tmp_path}/0.tar", "wb")
        return source.buffer[-1]
cli.curate.main = shrunk
cli.main()
"""
        (tmp_path / "0.tar").write_bytes(bytes(1 << 16))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        expected = f"Error: {tmp_path}/0.tar: became shorter while it was read (expected 65536 bytes, found 0); "
        assert (done.returncode, done.stderr) == (1, f"{expected}restore it or index the store again\n")

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of torch's half-made loader
    def test_a_system_without_room_for_workers(self, digits, at_once, monkeypatch):
        """Semaphores live in /dev/shm, and processes and open files have limits."""

        def full(*_: object, **__: object) -> None:
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr("multiprocessing.context.BaseContext.Queue", full)
        monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", full)
        why = r"worker processes cannot be started \(No space left on device\); give fewer --workers, or raise"
        with pytest.raises(ShardError, match=why):
            list(map_shards(abs, range(4), workers=2))
        with pytest.raises(ShardError, match=why):
            list(digits.batches(np.arange(96), 16))

    def test_a_shard_that_may_not_be_read(self, digits):
        """From a worker, whose errors torch would wrap in a text of its own."""

        def refused(_: object) -> None:
            raise PermissionError(13, os.strerror(13), "x.tar")

        with pytest.raises(ShardError, match=r"^x\.tar: cannot be read \(Permission denied\)$"):
            list(image_batches(digits.view.index, [np.arange(2)], refused, workers=1))


@pytest.fixture
def few_files() -> Iterator[int]:
    """As under `ulimit -n 64`."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = len(os.listdir("/proc/self/fd")) + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    yield most
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_store_of_more_shards_than_files_may_be_open(tmp_path, few_files, workers):
    """Readers leave most of them to others."""
    store = make_store(tmp_path / "store", {f"{n:03d}.tar": numbered(n, 1) for n in range(200)})
    assert (
        list(image_batches(store, [np.arange(n, n + 20) for n in range(0, 200, 20)], len, workers=workers)) == [20] * 10
    )
    with OpenShards() as files:
        for number in range(200):
            files.descriptor(str(tmp_path / "store" / f"{number:03d}.tar"))
        assert len(os.listdir("/proc/self/fd")) < few_files - 20


def test_other_names_beside_the_generations_pass(tmp_path):
    """A copy that somebody made is neither read nor removed."""
    data, out = toyset.make_data(tmp_path, 96), tmp_path / "run"
    options: dict[str, Any] = {"rewrite": "always", "keep_generations": False}
    (out / "shards" / "generation=old").mkdir(parents=True)
    (out / "shards" / "generation=old" / "x").write_bytes(b"mine")
    assert reshard._generations(out) == {}
    (out / "shards").rename(tmp_path / "kept")
    toyset.run_on(data, out, epochs=1, **options)
    (tmp_path / "kept").rename(out / "shards")
    toyset.run_on(data, out, epochs=1, **options)
    assert (out / "shards" / "generation=old" / "x").read_bytes() == b"mine"


#: A pool and a loader of two workers each, busy for a minute.
BUSY = """
import os, sys, time
from pathlib import Path
import numpy as np
from shards.indexing import index
from shards.io import parallel, shard_set
from shards.io.engines import local
from shards.stream import image_batches
folder = Path(sys.argv[1])
def sleep(item):
    (folder / str(os.getpid())).touch()
    time.sleep(60)
if __name__ == "__main__":
    local.SERIAL_S = local.ALONE_S = 0
    if sys.argv[2] == "pool":
        list(parallel.map_shards(sleep, range(4), 2))
    else:
        found, _ = index.build(shard_set.resolve(folder / "store"))
        list(image_batches(found, [np.arange(2)] * 8, sleep, workers=2))
"""


@pytest.mark.parametrize("kind", ["pool", "loader"])
def test_workers_end_with_the_process_that_was_killed(tmp_path, kind):
    """At once, and not when what they are at is done."""
    toyset.make_store(tmp_path / "store", 4)
    (tmp_path / "busy.py").write_text(BUSY)
    with subprocess.Popen([sys.executable, str(tmp_path / "busy.py"), str(tmp_path), kind]) as process:
        try:
            workers = wait_for_two(tmp_path)
        finally:
            process.kill()
            process.wait()
    deadline = time.monotonic() + 1
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [worker for worker in workers if alive(worker)]


def wait_for_two(folder: Path) -> list[int]:
    """The processes that are at work."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        if len(found) == 2:
            return found
        time.sleep(0.02)
    raise AssertionError("they never began")


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended and waits to be counted does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def deaf(_: object) -> bool:
    """Whether Ctrl-C cannot reach this process."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def a_deaf_worker(_: object) -> bool:
    """Whether this is a worker that Ctrl-C cannot reach, or no worker."""
    return parent_process() is None or deaf(None)


def a_slow_worker(item: int) -> tuple[int, bool]:
    """The item, and whether a worker had it; a worker takes its time."""
    at_work = parent_process() is not None
    time.sleep(0.2 if at_work else 0.01)
    if item == 5:
        raise ValueError(item)
    return item, at_work


class TestInterrupts:
    """Ctrl-C ends the command, whatever it hits."""

    def test_workers_are_born_deaf(self, digits, at_once):
        """One that is hit before it can say that it will not be would look like one that was killed."""
        assert list(image_batches(digits.view.index, [np.arange(2)] * 2, deaf, workers=2)) == [True, True]
        assert all(map_shards(a_deaf_worker, range(4), workers=2))
        assert not deaf(None)

    def test_one_that_falls_into_a_callback_comes_again(self):
        """Python drops what a callback of a fork raises, and the command would go on."""
        code = """
import os, signal, sys, time
from curate import cli
def work(**_):
    os.register_at_fork(after_in_parent=hit)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(60)
def hit():
    signal.raise_signal(signal.SIGINT)
cli.curate.main = work
signal.signal(signal.SIGINT, signal.default_int_handler)
cli.main()
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, done.stderr) == (130, f"Error: {stopped()}\n")

    @pytest.mark.parametrize("where", ["stopped in epoch 1; the same command goes on there", ""])
    def test_what_knows_where_it_goes_on_says_so_alone(self, where):
        """One line, not two that say different things."""
        code = f"""
import sys
from curate import cli
from curate.cli import demo
def work(**_):
    raise KeyboardInterrupt({where!r})
demo.demo.callback = work
sys.argv = ["curate", "demo", "--out", "x"]
cli.main()
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, done.stderr.strip()) == (130, f"Error: {where or stopped()}")


def stopped() -> str:
    from curate.cli import STOPPED

    return STOPPED


KILLED = """
import multiprocessing, os, signal
from shards.io.processes import starting_workers
with starting_workers(fresh=True):
    lock = multiprocessing.get_context("spawn").Lock()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_pythons_helper_says_nothing_of_what_a_kill_leaves():
    """It would stand below the one line that tells of the kill."""
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
