"""STL-10: its binary files come back to the pixel; its splits; what is said of files that are not as they should be."""

from __future__ import annotations

import csv
import io
import json
import runpy
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from shard_makers import indexed, tree
from torchvision.datasets import STL10

from curate.cli import curate as command
from curate.data import download
from curate.errors import CurateError
from shards.errors import Misuse, ShardError
from shards.packing import stl10
from shards.packing.stl10 import pack_stl10
from shards.stream import samples

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
TRAIN, TEST, UNLABELLED = 12, 6, 5


def upright(row: int) -> np.ndarray[Any, Any]:
    """A picture (96, 96, 3) whose rows, columns and channels all differ."""
    return np.random.default_rng(row).integers(0, 256, (96, 96, 3), np.uint8)


def stored(picture: np.ndarray[Any, Any]) -> bytes:
    """As STL-10 stores it, written out slowly: red, green, blue, each column by column."""
    return b"".join(picture[:, column, channel].tobytes() for channel in range(3) for column in range(96))


@pytest.fixture
def binaries(tmp_path: Path) -> Path:
    return make_binaries(tmp_path / "stl10_binary")


def make_binaries(folder: Path) -> Path:
    """Twelve train images of three classes, six test images, five without labels, two folds."""
    folder.mkdir()
    for part, first, count in (("train", 0, TRAIN), ("test", 100, TEST), ("unlabeled", 200, UNLABELLED)):
        (folder / f"{part}_X.bin").write_bytes(b"".join(stored(upright(first + row)) for row in range(count)))
    (folder / "train_y.bin").write_bytes(bytes([1, 2, 3] * 4))
    (folder / "test_y.bin").write_bytes(bytes([1, 2, 3] * 2))
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    (folder / "fold_indices.txt").write_text("0 1 2 3 4 5 \n6 7 8 9 10 11 \n")
    return folder


def pictures(split: Path) -> dict[str, tuple[np.ndarray[Any, Any], int | None]]:
    """Pixels and label of every sample by its key, decoded by Pillow."""
    index = indexed(split)
    return {
        sample["__key__"]: (
            np.asarray(Image.open(io.BytesIO(sample["png"]))),
            int(sample["cls"]) if "cls" in sample else None,
        )
        for sample in samples(index, np.arange(len(index)))
    }


def test_every_image_is_read_back_to_the_pixel(binaries: Path, tmp_path: Path) -> None:
    report = pack_stl10(binaries, tmp_path / "out")
    assert (report.store, report.target) == (UNLABELLED, {"train": 6, "val": 6, "test": 6})
    store = pictures(tmp_path / "out" / "store")
    assert list(store) == [f"unlabeled/{row:06d}" for row in range(UNLABELLED)]
    for row, (pixels, label) in enumerate(store.values()):
        np.testing.assert_array_equal(pixels, upright(200 + row))
        assert label is None
    for split, first in (("train", 0), ("val", 0), ("test", 100)):
        for key, (pixels, label) in pictures(tmp_path / "out" / "target" / split).items():
            row = int(key.rpartition("/")[2])
            np.testing.assert_array_equal(pixels, upright(first + row))
            assert label == row % 3


def test_train_and_val_are_halves_of_every_class(binaries: Path, tmp_path: Path) -> None:
    report = pack_stl10(binaries, tmp_path / "out")
    halves = [pictures(tmp_path / "out" / "target" / name) for name in ("train", "val")]
    assert list(halves[0]) != sorted(halves[0])  # in random order, so that neighbours are not of one class
    assert sorted([*halves[0], *halves[1]]) == [f"train/{row:06d}" for row in range(TRAIN)]
    for half in halves:
        assert Counter(label for _, label in half.values()) == {0: 2, 1: 2, 2: 2}
    assert report.classes == ("airplane", "bird", "car")
    assert (tmp_path / "out" / "target" / "classes.txt").read_text() == "airplane\nbird\ncar\n"


def test_the_same_seed_gives_the_same_bytes(binaries: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        pack_stl10(binaries, tmp_path / name, seed=seed)
    assert tree(tmp_path / "a") == tree(tmp_path / "b") != tree(tmp_path / "c")


def test_a_fold_gives_train_and_val_its_own_images_alone(binaries: Path, tmp_path: Path) -> None:
    report = pack_stl10(binaries, tmp_path / "out", fold=1)
    assert report.target == {"train": 3, "val": 3, "test": 6}
    keys = [key for name in ("train", "val") for key in pictures(tmp_path / "out" / "target" / name)]
    assert sorted(keys) == [f"train/{row:06d}" for row in range(6, 12)]


def test_a_fold_of_two_images_is_divided_and_of_one_refused(binaries: Path, tmp_path: Path) -> None:
    """One image is a train without a val."""
    (binaries / "fold_indices.txt").write_text("3\n3 4\n")
    assert pack_stl10(binaries, tmp_path / "two", fold=1).target == {"train": 1, "val": 1, "test": 6}
    message = r"stl10_binary: too few images for train and val \(expected 2 or more, found 1\)"
    with pytest.raises(ShardError, match=message):
        pack_stl10(binaries, tmp_path / "one", fold=0)
    assert not (tmp_path / "one").exists()


def test_without_unlabelled_images_there_is_a_target_alone(binaries: Path, tmp_path: Path) -> None:
    (binaries / "unlabeled_X.bin").unlink()
    report = pack_stl10(binaries, tmp_path / "out")
    assert report.store == 0
    assert report.notes == (f"{binaries}: has no unlabeled_X.bin, so there is no store",)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["target"]


def test_folds_are_needed_only_where_one_is_asked_for(binaries: Path, tmp_path: Path) -> None:
    (binaries / "fold_indices.txt").unlink()
    with pytest.raises(ShardError, match=r"fold_indices\.txt: is missing; unpack stl10_binary\.tar\.gz there"):
        pack_stl10(binaries, tmp_path / "out", fold=0)
    assert pack_stl10(binaries, tmp_path / "out").target["train"] == 6


def test_the_folder_above_may_be_named(binaries: Path, tmp_path: Path) -> None:
    pack_stl10(binaries, tmp_path / "a")
    assert stl10.locate(binaries.parent) == stl10.locate(binaries) == binaries


def test_nothing_is_read_of_an_image_that_nobody_asks_for(binaries: Path) -> None:
    planes = stl10.read_unlabelled(binaries)
    assert isinstance(planes, np.memmap)
    assert planes.shape == (UNLABELLED, 3, 96, 96)


BROKEN = [
    ("train_X.bin", b"", r"train_X\.bin: cut, or no STL-10 images \(expected a multiple of 27648 bytes, found 0\)"),
    ("unlabeled_X.bin", b"x" * 27_647, r"unlabeled_X\.bin: cut, .*expected a multiple of 27648 bytes, found 27647"),
    ("train_X.bin", bytes(27_648), r"train_y\.bin: a label an image \(expected 1 bytes, found 12\)"),
    ("train_y.bin", b"\1\2\3\4" * 3, r"train_y\.bin, byte 3: no class's label \(expected 1 to 3, found 4\)"),
    ("test_y.bin", b"\1\2\3\1\0\3", r"test_y\.bin, byte 4: no class's label \(expected 1 to 3, found 0\)"),
    ("class_names.txt", b" \n", r"class_names\.txt: names no class"),
    ("class_names.txt", b"\xff\xfe", r"class_names\.txt: is no text"),
    ("fold_indices.txt", b"0 1 12\n", r"fold_indices\.txt: line 1 is no fold \(expected different numbers below 12"),
    ("fold_indices.txt", b"0 1 1\n", r"fold_indices\.txt: line 1 is no fold"),
    ("fold_indices.txt", b"0 -1\n", r"fold_indices\.txt: line 1 is no fold"),
    ("fold_indices.txt", b"\n", r"fold_indices\.txt: line 1 is no fold"),
    ("fold_indices.txt", b"9" * 5000, r"fold_indices\.txt: line 1 is no fold"),
]


@pytest.mark.parametrize(("name", "body", "message"), BROKEN)
def test_a_file_that_is_not_as_it_should_be_is_one_line(
    binaries: Path, tmp_path: Path, name: str, body: bytes, message: str
) -> None:
    (binaries / name).write_bytes(body)
    with pytest.raises(ShardError, match=message) as caught:
        pack_stl10(binaries, tmp_path / "out", fold=0)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "class_names.txt"])
def test_a_missing_file_is_named(binaries: Path, tmp_path: Path, name: str) -> None:
    (binaries / name).unlink()
    with pytest.raises(ShardError, match=f"{name}: is missing; unpack stl10_binary.tar.gz there"):
        pack_stl10(binaries, tmp_path / "out")


def test_a_fold_that_is_not_there_is_misuse(binaries: Path, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"no such fold \(expected 0 to 1, found 2\)"):
        pack_stl10(binaries, tmp_path / "out", fold=2)


def test_the_verb_prints_what_was_packed(binaries: Path, tmp_path: Path) -> None:
    asked = ["pack", "stl10", str(binaries), "--out", str(tmp_path / "out"), "--json"]
    result = CliRunner().invoke(command, asked, catch_exceptions=False)
    counts = {"train": 6, "val": 6, "test": 6}
    assert json.loads(result.stdout) == {
        "store": 5,
        "target": counts,
        "classes": ["airplane", "bird", "car"],
        "notes": [],
    }


def test_what_lies_beside_the_files_is_told(binaries: Path, tmp_path: Path) -> None:
    (binaries / "unlabeled_X.bin.gz").write_bytes(b"")
    found = pack_stl10(binaries, tmp_path / "out").notes
    assert len(found) == 1
    assert found[0].endswith(": passed over 1 .gz")


def test_a_download_without_a_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 1 of this machine refuses at once."""
    monkeypatch.setattr(STL10, "url", "http://127.0.0.1:1/stl10_binary.tar.gz")
    with pytest.raises(CurateError, match=r"STL-10 cannot be fetched \(.*\); get http.* and unpack it in ") as caught:
        download.stl10(tmp_path / "data")
    assert "\n" not in str(caught.value)


def test_a_fetched_archive_is_unpacked_and_packed(
    binaries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The archive lies there already; torchvision's check sum, which is the real one's, is set aside."""
    (tmp_path / "data").mkdir()
    with tarfile.open(tmp_path / "data" / "stl10_binary.tar.gz", "w:gz") as tar:
        tar.add(binaries, "stl10_binary")
    monkeypatch.setattr(STL10, "tgz_md5", None)
    download.stl10(tmp_path / "data")
    assert capsys.readouterr().out == ""
    assert pack_stl10(tmp_path / "data", tmp_path / "out").store == UNLABELLED


@pytest.mark.slow
def test_the_shared_photographs_come_back_to_the_pixel(tmp_path: Path) -> None:
    """4,440 photographs through STL-10's layout into shards: the decoded JPEG files are the reference."""
    if not (SHARED / "make_stl10.py").exists():
        pytest.skip("the shared photographs are not here")
    runpy.run_path(str(SHARED / "make_stl10.py"))["main"](SHARED / "imagenette96", tmp_path / "binary")
    report = pack_stl10(tmp_path / "binary", tmp_path / "out")
    # README of the shared data: 800 train images (80 a class), 600 test images, 3,040 without labels
    assert (report.store, report.target) == (3_040, {"train": 400, "val": 400, "test": 600})
    with open(SHARED / "imagenette96" / "origin.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for part, folders in (
        ("unlabeled", ["store"]),
        ("train", ["target/train", "target/val"]),
        ("test", ["target/test"]),
    ):
        found = {key: value for folder in folders for key, value in pictures(tmp_path / "out" / folder).items()}
        files = [row["file"] for row in rows if row["archive"] == f"{part}.zip"]
        assert len(found) == len(files)
        with zipfile.ZipFile(SHARED / "imagenette96" / f"{part}.zip") as archive:
            for row, name in enumerate(files):
                pixels, label = found[f"{part}/{row:06d}"]
                assert np.array_equal(pixels, np.asarray(Image.open(archive.open(name)).convert("RGB")))
                assert label == (None if part == "unlabeled" else int(name[:2]) - 1)
