"""What is made before it is packed: in several processes, in order, and from where an earlier attempt stopped."""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import forked
import pytest
from decathlon_makers import change, make_root
from image_makers import png, write
from shard_makers import read_set, tree
from test_idx import make_set
from test_stl10 import make_binaries

from shards.io import parallel
from shards.packing import checks, journal, made
from shards.packing.decathlon.pack import pack_decathlon
from shards.packing.idx import pack_idx
from shards.packing.imagefolder import pack_target
from shards.packing.journal import Journal, identity_of, resumed_folder
from shards.packing.made import Made, Maker, write_made
from shards.packing.stl10 import pack_stl10

Pack = Callable[..., object]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "PART", 3)
    monkeypatch.setattr(checks, "IMAGES", 8)


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pack]:
    """A call of each packer but for its output; shards of a few images."""
    folder = tmp_path_factory.mktemp("data")
    root = make_root(folder / "decathlon-1.0")
    (root / "data" / "imagenet12" / "train" / "0002" / "000004.jpg").write_bytes(b"GIF")
    (root / "data" / "dtd" / "train" / "0001" / "000003.jpg").write_bytes(b"")
    change(root, lambda said: said["images"][0].update(width=1), "svhn_train")
    sets = [make_set(folder / name, 60, 6) for name in ("one", "other")]
    photos = write(folder / "photos", {f"{'ab'[n % 2]}/{n:03d}.png": png(n) for n in range(60)})
    return {
        "idx": functools.partial(pack_idx, sets, "one", shard_size=9000),
        "stl10": functools.partial(pack_stl10, make_binaries(folder / "stl10_binary"), shard_size=70_000),
        "decathlon": functools.partial(pack_decathlon, root, shard_size=9000),
        "imagefolder": functools.partial(pack_target, photos, shard_size=9000, seed=1),
    }


def even(numbers: range) -> list[Made]:
    """A sample of every number that is no multiple of 5; of those of 7 there is something to tell."""
    return [Made([(f"{n:03d}.txt", b"%d" % n)] if n % 5 else None, {"seven": n} if n % 7 == 0 else {}) for n in numbers]


MAKER = Maker(50, lambda numbers: numbers, even)


def written(folder: Path, workers: int = 1) -> list[Any]:
    with resumed_folder(folder, "x") as (partial, said):
        return write_made(partial, "s/", MAKER, 4000, said, workers)


def test_samples_stand_in_order_and_what_is_said_is_returned(tmp_path: Path) -> None:
    said = written(tmp_path / "out")
    assert [body for _, body in read_set(tmp_path / "out" / "s")] == [b"%d" % n for n in range(50) if n % 5]
    assert said == [(n, {"seven": n}) for n in range(0, 50, 7)]


@pytest.mark.parametrize("stop", range(1, 14))
def test_what_is_written_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    """Stopped after any shard: what was said of images before it is known, and is told once."""
    whole = written(tmp_path / "whole")
    say, n_said = Journal.say, 0

    def stopping(self: Journal, line: dict[str, Any]) -> None:
        nonlocal n_said
        say(self, line)
        n_said += "written" in line
        if n_said == stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "say", stopping)
    with suppress(KeyboardInterrupt):
        written(tmp_path / "out")
    assert n_said == stop
    before = [path.name for path in (tmp_path / ".out.partial" / "s").glob("*.tar")]
    assert len(before) == stop
    monkeypatch.setattr(Journal, "say", say)
    made_now: list[int] = []
    monkeypatch.setattr(
        sys.modules[__name__], "MAKER", Maker(50, lambda numbers: made_now.extend(numbers) or numbers, even)
    )
    assert written(tmp_path / "out") == whole
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert 0 not in made_now
    assert len(made_now) < 50


@pytest.mark.parametrize("name", ["idx", "stl10", "decathlon"])
def test_the_number_of_workers_changes_no_byte(
    packs: dict[str, Pack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """And whoever watches hears of every part."""
    told: list[tuple[int, int]] = []
    with parallel.on_progress(lambda done, total: told.append((done, total))):
        one = packs[name](out=tmp_path / "one")
    assert sum(done == total for done, total in told) >= 4  # a store and three splits
    monkeypatch.setattr("shards.io.engines.local.SERIAL_S", 0)
    assert packs[name](out=tmp_path / "two", workers=2) == one
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


@pytest.mark.parametrize("name", ["idx", "stl10", "decathlon"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_stopped_after_any_step_it_goes_on(
    packs: dict[str, Pack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: type[BaseException]
) -> None:
    """One attempt for each shard, all in one folder: each adds a step, and the last comes to the end."""
    report = packs[name](out=tmp_path / "whole")
    whole, say = tree(tmp_path / "whole"), Journal.say

    def stopping(self: Journal, line: dict[str, Any]) -> None:
        say(self, line)
        if "written" in line:
            raise error(5, "Input/output error")

    monkeypatch.setattr(Journal, "say", stopping)
    attempts = 0
    while not (tmp_path / "out").exists():
        attempts += 1
        with suppress(error):
            assert packs[name](out=tmp_path / "out") == report
    assert attempts > 4
    assert tree(tmp_path / "out") == whole
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_other_files_or_options_begin_anew(packs: dict[str, Pack], tmp_path: Path) -> None:
    """The identity is of names, sizes and times."""
    file = write(tmp_path, {"a": b"1"}) / "a"
    first = identity_of([file], 1)
    assert identity_of([file], 1) == first
    assert identity_of([file], 2) != first
    os.utime(file, ns=(1, 1))
    assert identity_of([file], 1) != first
    assert identity_of([tmp_path / "none"], 1) != identity_of([], 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imagefolder", "idx", "stl10", "decathlon"])
def test_killed_twenty_times_it_leaves_the_same_bytes(packs: dict[str, Pack], tmp_path: Path, name: str) -> None:
    """SIGKILL at random moments, and the same call again at once; KILLS asks for another number."""
    packs[name](out=tmp_path / "whole")
    whole, moments = tree(tmp_path / "whole"), random.Random(name)
    kills, number, went_on = 0, 0, 0
    while kills < int(os.environ.get("KILLS", "20")):
        out, number, longer = tmp_path / f"out-{number}", number + 1, 1.0
        while forked.killed(functools.partial(packs[name], out=out), moments.uniform(0.005, 0.06) * longer):
            kills, longer = kills + 1, longer * 1.2
            place = tmp_path / f".{out.name}.partial" / journal.FILE_NAME
            went_on += place.is_file() and b"written" in place.read_bytes()
            if out.exists():  # killed when all was done: it would be refused
                break
        assert tree(out) == whole, number
    assert went_on, "no kill came between two shards"
