"""What a store holds of a target, and what stands on two sides of the target: found, shown, dropped, an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import planted_copies as copies
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import curate
import shards
from curate.cli import curate as command
from curate.errors import Misuse
from shards.tar.writer import write_shards


def split(folder: Path, bodies: dict[str, bytes]) -> None:
    """A shard set of images."""
    samples = [[(key + (".jpg" if body[:2] == b"\xff\xd8" else ".png"), body)] for key, body in bodies.items()]
    write_shards(folder, iter(samples))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store, and a target: two images of test and one of val are in the store, one of train is in test."""
    root = tmp_path_factory.mktemp("scene")
    store = copies.make_store(root / "store")
    single = {n: copies.kinds(n) for n in (*range(12), *range(60, 80))}
    split(
        root / "target" / "train",
        {**{f"t{n}": single[n]["original"] for n in range(60, 66)}, "t2": single[2]["original"]},
    )
    split(
        root / "target" / "val",
        {**{f"v{n}": single[n]["original"] for n in range(76, 80)}, "v8": single[8]["mirrored"]},
    )
    test = {f"e{n}": single[n]["original"] for n in range(70, 75)}
    split(
        root / "target" / "test",
        {**test, "e9": single[9]["original"], "e10": single[10]["half"], "e61": single[61]["recompressed"]},
    )
    return store, root / "target"


def test_leaks_are_named_and_sure(scene: tuple[Path, Path], tmp_path: Path) -> None:
    """Train's images in the store are none; each other one is told with its level; the tables say the same."""
    store, target = scene
    found = curate.audit(target, store=store, out=tmp_path / "out", distance=4)
    told = {(line["key"], line["split"], line["target_key"], line["level"]) for line in found.leaks}
    assert told == {
        ("single-09", "test", "e9", "exact"),
        ("single-10", "test", "e10", "perceptual"),
        ("single-08", "val", "v8", "perceptual"),
    }
    assert next(line for line in found.leaks if line["key"] == "single-08")["reason"].endswith("mirrored")
    assert found.leaked == {"val": 1, "test": 2}
    (line,) = found.across
    assert (line["split"], line["key"], line["other_split"], line["other_key"]) == ("test", "e61", "train", "t61")
    assert pq.read_table(tmp_path / "out" / "leaks.parquet").to_pylist() == found.leaks
    assert pq.read_table(tmp_path / "out" / "across.parquet").to_pylist() == found.across
    assert all((tmp_path / "out" / name).stat().st_size for name in ("leaks.png", "across.png"))
    assert "2 of 8 images of test are in the store (2 there, 1 of them exact)" in found.text()
    assert "1 of 8 images of test have a copy in train" in found.text()


def test_what_leaks_is_dropped(scene: tuple[Path, Path], tmp_path: Path) -> None:
    """The manifest goes to rewrite; of what that writes nothing leaks."""
    store, target = scene
    curate.audit(target, store=store, out=tmp_path / "out", drop=True)
    shards.rewrite(shards.open_index(store), tmp_path / "out" / "manifest.parquet", tmp_path / "clean")
    again = curate.audit(target, store=tmp_path / "clean", out=tmp_path / "again")
    assert (again.leaks, again.leaked) == ([], {"val": 0, "test": 0})
    assert not (tmp_path / "again" / "leaks.parquet").exists()
    assert "no image of test is in the store" in again.text()


def test_exit_codes(scene: tuple[Path, Path], tmp_path: Path) -> None:
    """1 where there is a copy of the level asked for; with a store its own leaks count, alone the target's."""
    store, target = map(str, scene)

    def code(*arguments: str) -> int:
        return CliRunner().invoke(command, ["audit", "--target", *arguments], catch_exceptions=False).exit_code

    assert code(target, "--store", store) == 0
    assert code(target, "--store", store, "--fail-on", "exact") == 1
    assert code(target, "--fail-on", "exact") == 0
    assert code(target, "--fail-on", "perceptual") == 1
    split(tmp_path / "other", {"x": copies.kinds(50)["original"], "y": copies.kinds(80)["original"]})
    assert code(target, "--store", str(tmp_path / "other"), "--fail-on", "perceptual") == 0


def test_json_for_programs(scene: tuple[Path, Path], tmp_path: Path) -> None:
    """The fields that are promised, of both verbs."""
    store, target = map(str, scene)
    told = CliRunner().invoke(
        command, ["audit", "--target", target, "--store", store, "--json"], catch_exceptions=False
    )
    leak = json.loads(told.stdout)["leaks"][0]
    assert {"shard", "key", "split", "target_key", "level", "distance"} <= set(leak)
    told = CliRunner().invoke(command, ["dedup", store, "--out", str(tmp_path / "o"), "--json"], catch_exceptions=False)
    assert {"images", "groups", "dropped", "by_level"} <= set(json.loads(told.stdout))


def test_image_files_are_a_target(scene: tuple[Path, Path], tmp_path: Path) -> None:
    """Without splits all of them are looked for; a broken one is like nothing."""
    store, _ = scene
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(copies.kinds(20)["original"])
    (tmp_path / "photos" / "b.png").write_bytes(b"no image")
    (tmp_path / "photos" / "c.jpg").write_bytes(copies.kinds(77)["half"])
    found = curate.audit(tmp_path / "photos", store=store, out=tmp_path / "out")
    assert [(line["key"], line["target_key"], line["split"]) for line in found.leaks] == [
        ("single-20", "a.png", "target")
    ]
    assert found.leaked == {"target": 1}


def test_a_target_is_left_as_it_was(scene: tuple[Path, Path], tmp_path: Path) -> None:
    """But for the hashes beside its shards, which are hidden: what it is called by does not change."""
    from curate.data.target import open_target

    _, target = scene
    before = open_target(target)
    curate.audit(target)
    assert open_target(target) == before


def test_a_manifest_needs_a_store_and_a_place(scene: tuple[Path, Path], tmp_path: Path) -> None:
    """Refused before any work."""
    store, target = scene
    for arguments in ({"out": tmp_path / "o"}, {"store": store}):
        with pytest.raises(Misuse, match="--drop"):
            curate.audit(target, drop=True, **arguments)
