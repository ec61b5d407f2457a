"""A packing that was stopped goes on: the same bytes, and what was done is not done again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from image_makers import png, write
from shard_makers import read_set, read_tar, tree

from shards.io import parallel
from shards.packing import checks, journal
from shards.packing.imagefolder import pack_folder, pack_target
from shards.packing.journal import Journal, resumed_folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Forty pictures of two classes with captions, one of them broken."""
    files = {
        f"{'ab'[n % 2]}/{n:02d}.{end}": body for n in range(40) for end, body in (("png", png(n)), ("txt", b"%d" % n))
    }
    return write(tmp_path / "photos", files | {"b/07.png": b"GIF"})


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "IMAGES", 8)


def store(photos: Path, out: Path, workers: int = 1) -> object:
    return pack_folder(photos, out, shard_size=8000, workers=workers)


def target(photos: Path, out: Path, workers: int = 1) -> object:
    return pack_target(photos, out, shard_size=8000, seed=1, workers=workers)


@pytest.mark.parametrize("pack", [store, target])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_stopped_after_any_step_it_goes_on(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: object, error: type[BaseException]
) -> None:
    """A step is a part of images that was checked, or a shard that was written."""
    report = pack(photos, tmp_path / "whole")  # type: ignore[operator]
    whole, step, steps = tree(tmp_path / "whole"), 0, 0
    say = Journal.say
    while step == steps:
        steps, left = steps + 1, steps

        def stopping(self: Journal, line: dict[str, object]) -> None:
            nonlocal step, left
            say(self, line)
            if left == 0:
                step += 1
                raise error(5, "Input/output error")
            left -= 1

        monkeypatch.setattr(Journal, "say", stopping)
        out = tmp_path / f"out-{steps}"
        try:
            assert pack(photos, out) == report  # type: ignore[operator]
        except error:
            assert not out.exists()
            monkeypatch.setattr(Journal, "say", say)
            assert pack(photos, out) == report  # type: ignore[operator]
        assert tree(out) == whole
        assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    assert steps > 10


def test_what_was_checked_and_written_is_not_again(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []
    fault = checks.image_fault
    monkeypatch.setattr(checks, "image_fault", lambda data: (decoded.append(data), fault(data))[1])
    say = Journal.say

    def stopping(self: Journal, line: dict[str, object]) -> None:
        say(self, line)
        if line.get("written") == "000001.tar":
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "say", stopping)
    with pytest.raises(KeyboardInterrupt):
        store(photos, tmp_path / "out")
    first = len(decoded)
    partial = tmp_path / ".out.partial"
    times = {path.name: path.stat().st_mtime_ns for path in partial.glob("*.tar")}
    assert sorted(times) == ["000000.tar", "000001.tar"]
    monkeypatch.setattr(Journal, "say", say)
    store(photos, tmp_path / "out")
    assert len(decoded) == 40
    assert 0 < first < 40
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in times} == times


def test_what_changed_meanwhile_is_packed_anew(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of another size or time, and other options."""

    def stopping(self: Journal, line: dict[str, object], say: object = Journal.say) -> None:
        say(self, line)  # type: ignore[operator]
        if "written" in line:
            raise KeyboardInterrupt

    for change in (
        lambda: (photos / "a" / "00.txt").write_bytes(b"other"),
        lambda: os.utime(photos / "b" / "39.png", ns=(1, 1)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "say", stopping)
            with pytest.raises(KeyboardInterrupt):
                store(photos, tmp_path / "out")
        (tmp_path / ".out.partial" / "stale").touch()
        change()
    store(photos, tmp_path / "out")
    store(photos, tmp_path / "alone")
    assert tree(tmp_path / "out") == tree(tmp_path / "alone")
    assert dict(read_set(tmp_path / "out"))["a/00.txt"] == b"other"


@pytest.mark.parametrize("pack", [store, target])
def test_the_number_of_workers_changes_no_byte(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: object
) -> None:
    told: list[tuple[int, int]] = []
    with parallel.on_progress(lambda done, total: told.append((done, total))):
        one = pack(photos, tmp_path / "one")  # type: ignore[operator]
    assert told == [(n, 5) for n in range(1, 6)]
    monkeypatch.setattr("shards.io.engines.local.SERIAL_S", 0)
    two = pack(photos, tmp_path / "two", workers=2)  # type: ignore[operator]
    assert one == two
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_names_lead_back_to_the_files(tmp_path: Path) -> None:
    """Of keys that are not the files' own; bytes that are no UTF-8 are escaped as in an index."""
    odd = b"caf\xe9.png".decode("utf-8", "surrogateescape")
    source = write(
        tmp_path / "in", {"x.1.png": png(1), "x_1.png": png(2), "__m__/y.png": png(3), odd: png(4), "z.png": b""}
    )
    pack_folder(source, tmp_path / "out", shard_size=5000)
    table = pq.read_table(tmp_path / "out" / ".curate" / "names.parquet")
    assert table.schema.metadata == {b"curate.names": b'{"version": 1}'}
    rows = {row["file"]: (row["shard"], row["key"], row["bytes"]) for row in table.to_pylist()}
    assert rows == {
        "__m__/y.png": ("000000.tar", "_m__/y", len(png(3))),
        r"caf\xe9.png": ("000000.tar", r"caf\xe9", len(png(4))),
        "x.1.png": ("000001.tar", "x_1", len(png(1))),
        "x_1.png": ("000001.tar", "x_1_2", len(png(2))),
    }


def test_names_of_a_target_have_its_splits(photos: Path, tmp_path: Path) -> None:
    target(photos, tmp_path / "out")
    names = pq.read_table(tmp_path / "out" / ".curate" / "names.parquet").to_pylist()
    held = {
        (path.relative_to(tmp_path / "out").as_posix(), name.removesuffix(".png"))
        for path in (tmp_path / "out").rglob("*.tar")
        for name, _ in read_tar(path)
        if name.endswith(".png")
    }
    assert {(row["shard"], row["key"]) for row in names} == held
    assert len(names) == len(held) == 39


class TestJournal:
    def test_a_line_that_was_cut_is_none(self, tmp_path: Path) -> None:
        place = tmp_path / "j"
        for rest in (b'{"a": ', b'{"a": 3}', b"[1]\n", b'x\n{"a": 4}\n'):
            place.write_bytes(b'{"a": 1}\n{"b": 2}\n' + rest)
            with open(place, "a+b", buffering=0) as file:
                read = Journal(file)
                assert read.lines("a") == [{"a": 1}]
                read.say({"a": 5})
            assert place.read_bytes() == b'{"a": 1}\n{"b": 2}\n{"a": 5}\n'

    def test_a_folder_of_another_job_is_emptied(self, tmp_path: Path) -> None:
        found: list[list[str]] = []

        def stopped(identity: str) -> None:
            with resumed_folder(tmp_path / "out", identity) as (folder, _):
                found.append([path.name for path in folder.iterdir() if path.name != journal.FILE_NAME])
                (folder / "f").touch()
                raise KeyboardInterrupt

        for identity in ("one", "one", "two"):
            with pytest.raises(KeyboardInterrupt):
                stopped(identity)
        assert found == [[], ["f"], []]

    def test_an_error_before_anything_was_written_leaves_nothing(self, tmp_path: Path) -> None:
        def failing() -> None:
            with resumed_folder(tmp_path / "out", "x") as (_, said):
                said.say({"faults": []})
                raise ValueError

        with pytest.raises(ValueError):
            failing()
        assert not list(tmp_path.iterdir())

    def test_it_is_gone_at_the_end(self, tmp_path: Path) -> None:
        with resumed_folder(tmp_path / "out", "x") as (folder, said):
            said.say({"written": "f"})
            (folder / "f").write_text(json.dumps({}))
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["f"]
