"""Every verb with every path a URL: the objects are, byte for byte, the files of the same commands on local paths."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import toyset
from object_server import ObjectServer

import shards
from curate import cli, open_run, subset

FAST = {**toyset.FAST, "epochs": 2}
PLAIN = {name: FAST[name] for name in ("size", "crop", "hidden", "batch", "device", "workers", "epochs", "pretext")}
#: Random kills of a remote run; KILLS=50 asks for more than a test can afford.
KILLS = int(os.environ.get("KILLS", "3"))


def words(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def curate(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The entry point, in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["curate", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def commands(photos: Path, at: Callable[[str], str]) -> list[list[str]]:
    """The chain, with outputs where ``at`` says."""
    store, labelled, run = at("store"), ["--target", at("target")], at("run")
    return [
        ["pack", "imagefolder", str(photos), "--out", store, "--shard-size", "20000"],
        ["pack", "imagefolder", str(photos), "--target", "--out", at("target"), "--shard-size", "20000"],
        ["index", f"{store}/"],
        ["run", "--store", f"{store}/", *labelled, "--out", run, *words(FAST)],
        ["ledger", run, "--final"],
        ["prune", run, "--keep", "40%", "--out", at("kept.parquet")],
        ["rewrite", "--store", f"{store}/", "--manifest", at("kept.parquet"), "--out", at("kept")],
        ["verify", at("kept"), "--against", f"{store}/"],
        ["export", f"{run}/curated", "--dali"],
        ["report", run, *labelled],
        ["pretrain", "--store", f"{run}/curated/", "--out", at("net"), *words(PLAIN)],
        ["evaluate", at("net"), *labelled, "--epoch", "2"],
        ["dedup", f"{store}/", "--out", at("copies")],
        ["audit", "--store", f"{store}/", *labelled, "--out", at("leaks"), "--drop"],
        ["features", f"{store}/", "--out", at("features"), "--nets", "1", "--device", "cpu"],
    ]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 digits in class folders."""
    folder = tmp_path_factory.mktemp("photos")
    pictures, labels = toyset.digits()
    for number in range(120):
        place = folder / f"class{labels[number]}" / f"{number:04d}.png"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(toyset.png(pictures[number]))
    return folder


def fetched(url: str, folder: Path) -> Path:
    """All objects of a folder as files."""
    from shards.io.storage import objects

    for info in objects.list_objects(url):
        place = folder / info.url.removeprefix(f"{url}/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(objects.read_range(info.url, 0, info.size))
    return folder


def compared(folder: Path) -> dict[str, Any]:
    """Every file but those that name a place, a time or an ETag; and hashes, which only a local store has beside it."""
    found = toyset.same_run(folder)
    if "run.json" in found:
        found["run.json"]["configuration"] |= {"store": "", "target": ""}
    told = ("report.html", "asked.json", "index.report.json", ".curate/index.parquet")
    return {name: value for name, value in found.items() if not name.endswith(told) and "hashes-" not in name}


@pytest.mark.slow
def test_the_chain_with_every_path_a_url(
    objects: ObjectServer, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = objects.place()
    monkeypatch.setenv("CURATE_MIRROR", str(tmp_path / "copies"))
    here, there = tmp_path / "here", tmp_path / "there"
    for words_here in commands(photos, lambda name: str(here / name)):
        assert curate(monkeypatch, *words_here) == 0, words_here
    for words_there in commands(photos, lambda name: f"{bucket}/chain/{name}"):
        assert curate(monkeypatch, *words_there) == 0, words_there
    fetched(f"{bucket}/chain", there)
    for folder in sorted(place.name for place in here.iterdir() if place.is_dir()):
        near, far = compared(here / folder), compared(there / folder)
        assert near.keys() == far.keys(), folder
        assert [name for name in near if near[name] != far[name]] == [], folder
    assert (here / "kept.parquet").read_bytes() == (there / "kept.parquet").read_bytes()
    near, far = (samples_of(f"{place}/store/", f"{place}/run") for place in (here, f"{bucket}/chain"))
    assert len(near) == 2 * 48
    assert near == far


def samples_of(store: str, run: str) -> list[tuple[str, bytes]]:
    """Key and image of a subset's samples, of two epochs in their order."""
    whole = subset(shards.open_index(store), open_run(run), seed=1)
    found = []
    for epoch in range(2):
        whole.set_epoch(epoch)
        found += [(sample["__key__"], sample["png"]) for sample in whole]
    return found


def start(words: list[str], copies: Path) -> subprocess.Popen[bytes]:
    """A command in a process and a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "curate", *words],
        env=os.environ | {"CURATE_MIRROR": str(copies)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.fixture
def far_run(objects: ObjectServer, tmp_path: Path) -> tuple[str, list[str]]:
    """A folder for objects, and the words of a run whose store and target are here, but for ``--out``."""
    toyset.make_data(tmp_path / "data", 96)
    data = ["--store", str(tmp_path / "data" / "store"), "--target", str(tmp_path / "data" / "target")]
    return objects.place(), ["run", *data, *words({**toyset.FAST, "rewrite": "always"})]


@pytest.mark.slow
def test_killed_at_any_moment_and_given_again(far_run: tuple[str, list[str]], tmp_path: Path) -> None:
    """The same objects as of a run that was not killed, on the same machine or, its claim being stale, on another."""
    place, command = far_run
    begun = time.monotonic()
    with start([*command, "--out", f"{place}/whole"], tmp_path / "copies") as process:
        assert process.wait() == 0
    seconds, whole = time.monotonic() - begun, compared(fetched(f"{place}/whole", tmp_path / "whole"))
    moments = random.Random(5)
    for number in range(KILLS):
        url, copies = f"{place}/{number}", tmp_path / f"copies-{number}"
        with start([*command, "--out", url], copies) as process:
            time.sleep(moments.uniform(0.3, 1.0) * seconds)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if number % 2:
            shutil.rmtree(copies, ignore_errors=True)  # another machine has none
            let_time_pass(url)
        with start([*command, "--out", url], copies) as again:
            assert again.wait() == 0, (number, again.stderr and again.stderr.read())
        assert compared(fetched(url, tmp_path / str(number))) == whole, number


def let_time_pass(url: str) -> None:
    """Make the claim on a folder stale, if there is one."""
    from shards.io import claim
    from shards.io.storage import objects

    place = f"{url}/{claim.NAME}"
    if objects.head(place) is not None:
        said = json.loads(objects.read_all(place, 1 << 20))
        objects.put(place, json.dumps({**said, "renewed": said["renewed"] - claim.STALE_S - 1}).encode())


@pytest.mark.slow
def test_credentials_expire_in_the_middle(
    objects: ObjectServer,
    far_run: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One line; the local copy is whole, and the same command goes on from it and uploads what is missing."""
    monkeypatch.setenv("CURATE_MIRROR", str(tmp_path / "copies"))
    place, command = far_run
    assert curate(monkeypatch, *command, "--out", f"{place}/whole") == 0
    whole = compared(fetched(f"{place}/whole", tmp_path / "whole"))
    capfd.readouterr()
    asked = objects.between.asked
    objects.between.fault = lambda _: (403, "ExpiredToken") if any("epoch%3D0002" in a.path for a in asked) else None
    del asked[:]
    assert curate(monkeypatch, *command, "--out", f"{place}/run") == 1
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("Error")]
    assert len(said) == 1, said
    assert "ExpiredToken" in said[0]
    assert "check the credentials in the environment" in said[0]
    objects.between.fault = lambda _: None
    assert curate(monkeypatch, *command, "--out", f"{place}/run") == 0
    assert "going on" in capfd.readouterr().err
    assert compared(fetched(f"{place}/run", tmp_path / "run")) == whole
