"""Packing folders of images: which files, under which keys, in which split, and what is said of the rest."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_makers import png, write
from shard_makers import indexed, read_set, tree

from shards.errors import Misuse, ShardError
from shards.member_names import split_name
from shards.packing.class_splits import split_by_class, split_counts
from shards.packing.imagefolder import pack_folder, pack_target
from shards.packing.keys import keys_of, plain_key, readable_key
from shards.stream import samples


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Ten cats and five dogs."""
    cats = {f"cat/{n}.png": png(n) for n in range(10)}
    return write(tmp_path / "classes", cats | {f"dog/{n}.png": png(100 + n) for n in range(5)})


def test_images_are_stored_as_they_are_and_sorted_by_path(tmp_path: Path) -> None:
    files = {"b/2.png": png(2), "a.JPG": png(1), "b/10.png": png(3)}
    report = pack_folder(write(tmp_path / "in", files), tmp_path / "out")
    assert read_set(tmp_path / "out") == [(name, files[name]) for name in ("a.JPG", "b/10.png", "b/2.png")]
    assert (report.samples, report.ignored, report.faults) == ({"": 3}, 0, ())


def test_dots_in_a_file_name_do_not_end_the_key_early(tmp_path: Path) -> None:
    files = {"x.1.png": png(1), "x.2.png": png(2), "x_1.png": png(3), "v1.0/y.png": png(4)}
    pack_folder(write(tmp_path / "in", files), tmp_path / "out")
    index = indexed(tmp_path / "out")
    assert index.table["key"].to_pylist() == ["v1.0/y", "x_1", "x_2", "x_1_2"]


def test_two_pictures_of_one_stem_are_two_samples(tmp_path: Path) -> None:
    pack_folder(write(tmp_path / "in", {"x.png": png(1), "x.jpg": png(2)}), tmp_path / "out")
    assert [name for name, _ in read_set(tmp_path / "out")] == ["x.jpg", "x_2.png"]


@given(st.lists(st.text("ab._2", min_size=1, max_size=5).map(lambda name: f"{name}.png"), unique=True))
def test_keys_are_all_different_and_none_has_a_dot(paths: list[str]) -> None:
    keys = keys_of(paths)
    assert len(set(keys)) == len(paths)
    assert not any("." in key for key in keys)


def test_shards_are_packed_already(tmp_path: Path) -> None:
    """What they are is said, in the place of "name a folder of images"."""
    pack_folder(write(tmp_path / "in", {"a.png": png(1)}), tmp_path / "store")
    with pytest.raises(ShardError, match="no readable image in the folder; it holds shards, which need no packing"):
        pack_folder(tmp_path / "store", tmp_path / "again")


def test_what_cannot_be_read_is_left_out_and_said(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"ok.png": png(1), "empty.png": b"", "page.jpg": b"<html>", "cut.png": png(2)[:40]})
    write(source, {"notes.txt": b"x", ".hidden.png": png(3), ".git/a.png": png(4)})
    (source / "gone.png").symlink_to("nowhere.png")
    report = pack_folder(source, tmp_path / "out")
    assert report.samples == {"": 1}
    assert report.ignored == 2  # notes.txt, .hidden.png; hidden folders are not entered
    assert {fault.shard: fault.kind for fault in report.faults} == {
        "empty.png": "empty-member",
        "page.jpg": "not-an-image",
        "gone.png": "missing-image",
        "cut.png": "truncated-image",
    }
    assert "gone.png: cannot be read (No such file or directory)" in {fault.detail for fault in report.faults}


def test_shards_roll_over(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"{n}.png": png(n) for n in range(5)})
    pack_folder(source, tmp_path / "out", shard_size=3 * 1024)  # a header and a small body each, and the end blocks
    assert sorted(path.name for path in (tmp_path / "out").glob("*")) == [
        ".curate",
        *(f"{n:06d}.tar" for n in range(3)),
    ]


def test_packing_twice_gives_the_same_bytes(classes: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        pack_folder(classes, tmp_path / name / "store")
        pack_target(classes, tmp_path / name / "target", seed=3)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    pack_target(classes, tmp_path / "c", seed=4)
    assert tree(tmp_path / "c") != tree(tmp_path / "a" / "target")


def test_a_target_has_splits_labels_and_class_names(classes: Path, tmp_path: Path) -> None:
    report = pack_target(classes, tmp_path / "out", split=(0.4, 0.2, 0.4))
    assert report.samples == {"train": 6, "val": 3, "test": 6}  # 4 + 2, 2 + 1, 4 + 2
    assert report.classes == ("cat", "dog")
    assert (tmp_path / "out" / "classes.txt").read_text() == "cat\ndog\n"
    found = []
    for split, cats in (("train", 4), ("val", 2), ("test", 4)):
        index = indexed(tmp_path / "out" / split)
        held = list(samples(index, np.arange(len(index))))
        assert sum(sample["cls"] == b"0" for sample in held) == cats
        assert all(sample["__key__"].startswith(("cat", "dog")[int(sample["cls"])]) for sample in held)
        assert all(sample["png"] == (classes / f"{sample['__key__']}.png").read_bytes() for sample in held)
        found += [sample["__key__"] for sample in held]
    assert len(found) == len(set(found)) == 15


def test_classes_are_mixed_inside_a_split(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"{name}/{n}.png": png(n) for name in "ab" for n in range(20)})
    pack_target(source, tmp_path / "out", split=(1.0, 0.0, 0.0))
    names = [name[0] for name, _ in read_set(tmp_path / "out") if name.endswith(".png")]
    assert names != sorted(names)
    assert not (tmp_path / "out" / "val").exists()


def test_images_in_no_class_folder_are_ignored(classes: Path, tmp_path: Path) -> None:
    write(classes, {"loose.png": png(1), "dog/broken.png": b"GIF"})
    report = pack_target(classes, tmp_path / "out")
    assert report.ignored == 1
    assert [fault.shard for fault in report.faults] == ["dog/broken.png"]


def test_a_class_too_small_for_the_splits_is_named(classes: Path, tmp_path: Path) -> None:
    write(classes, {"emu/1.png": png(1), "emu/2.png": png(2)})
    with pytest.raises(ShardError, match=r"emu: too few readable images .*expected at least 3, found 2"):
        pack_target(classes, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@given(st.integers(3, 500), st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)))
def test_shares_sum_up_and_stay_near_what_was_asked(count: int, weights: tuple[int, int, int]) -> None:
    split = tuple(weight / sum(weights) for weight in weights)
    counts = split_counts(count, split, "x")
    assert sum(counts) == count
    assert min(counts) >= 1
    assert all(abs(part - share * count) <= 2 for part, share in zip(counts, split, strict=True))


def test_a_division_depends_on_the_seed_and_not_on_other_classes() -> None:
    cats, dogs = ({f"{name}/{n}": name for n in range(20)} for name in ("cat", "dog"))
    alone, _ = split_by_class(cats, ("cat",), (0.5, 0.25, 0.25), 0)
    both, _ = split_by_class(cats | dogs, ("cat", "dog"), (0.5, 0.25, 0.25), 0)
    assert [[path for path in part if path.startswith("cat")] for part in both] == alone
    assert split_by_class(cats, ("cat",), (0.5, 0.25, 0.25), 1)[0] != alone


@pytest.mark.parametrize(
    "split",
    [
        *[(0.5, 0.5, 0.5), (0.0, 0.5, 0.5), (1.2, -0.2, 0.0), (0.5, 0.5), (), (0.25, 0.25, 0.25, 0.25)],
        *[(math.nan, 0.5, 0.5), (0.5, math.nan, 0.5), (math.inf, 0.0, 0.0), (math.inf, -math.inf, 1.0)],
    ],
)
def test_a_split_that_is_none_is_refused(classes: Path, tmp_path: Path, split: tuple[float, ...]) -> None:
    with pytest.raises(Misuse, match=r"this is no split .*for example 0\.4,0\.2,0\.4"):
        pack_target(classes, tmp_path / "out", split=split)  # type: ignore[arg-type]


def test_places_that_cannot_be_are_refused(classes: Path, tmp_path: Path) -> None:
    for out in (classes / "out", classes, classes.parent):
        with pytest.raises(Misuse, match="output and input lie in one another"):
            pack_folder(classes, out)
    write(tmp_path / "full", {"a": b""})
    with pytest.raises(Misuse, match="full: there is something already"):
        pack_folder(classes, tmp_path / "full")
    with pytest.raises(Misuse, match="nowhere: no such folder"):
        pack_folder(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(ShardError, match="no readable image in the folder; name a folder that holds images"):
        pack_folder(write(tmp_path / "texts", {"a.txt": b""}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_failure_while_packing_leaves_no_folder(
    classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses files above 2 kB: nothing stands under the final name, and the next try succeeds."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            pack_folder(classes, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["classes"]
    assert pack_folder(classes, tmp_path / "out").samples == {"": 15}


class TestNothingIsLeftOutInSilence:
    def test_a_linked_folder_is_named_and_the_rest_counted(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", {"a.png": png(1), "b.txt": b"", "c.CR2": b"", "README": b"", ".git/x.png": b""})
        write(tmp_path / "elsewhere", {"y.png": png(2)})
        (source / "link").symlink_to(tmp_path / "elsewhere")
        os.mkfifo(source / "pipe.png")
        found = pack_folder(source, tmp_path / "out").passed_over
        assert (found.linked_folders, found.special_files) == (("link",), ("pipe.png",))
        assert (found.hidden_folders, found.hidden_files) == (1, 0)
        assert found.others == {"": 1, ".cr2": 1, ".txt": 1}

    def test_a_linked_class_is_refused_by_name(self, classes: Path, tmp_path: Path) -> None:
        """A class less is another task, and its folder looked like an empty class."""
        (classes / "emu").symlink_to(classes / "dog")
        with pytest.raises(ShardError, match=r"a class folder is a link.*found emu"):
            pack_target(classes, tmp_path / "out")

    def test_a_folder_that_cannot_be_listed_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = write(tmp_path / "in", {"a.png": png(1), "shut/b.png": png(2)})
        scandir = os.scandir

        def shut(path: str) -> object:
            if str(path).endswith("shut"):
                raise PermissionError(13, "Permission denied", path)
            return scandir(path)

        monkeypatch.setattr("os.scandir", shut)
        assert pack_folder(source, tmp_path / "out").passed_over.unreadable_folders == ("shut",)

    def test_every_image_that_is_packed_is_indexed(self, tmp_path: Path) -> None:
        """Under names that readers pass over, none was."""
        names = ["__m__/y.png", "_m__/y.png", "____/z.png", "v1.0\nb/x.png", "a/__m__/y.png", "n\nn/x.png", "__a.png"]
        names += [b"caf\xe9.png".decode("utf-8", "surrogateescape"), "caf\\xe9.png"]
        source = write(tmp_path / "in", {name: png(place) for place, name in enumerate(names)})
        report = pack_folder(source, tmp_path / "out")
        assert report.samples == {"": len(names)}
        assert len(indexed(tmp_path / "out")) == len(names)
        assert report.renamed == {"__m__/y.png": "_m__/y", "____/z.png": "_/z", "v1.0\nb/x.png": "v1.0_b/x"}

    @given(st.lists(st.text("_a.\n /é", min_size=1, max_size=6), min_size=1, max_size=3))
    def test_a_key_comes_back_from_a_reader(self, parts: list[str]) -> None:
        key = readable_key(plain_key("/".join(["x", *parts, "y.png"]).removeprefix("x/")))
        assert split_name(f"{key}.png") == (key, "png")

    @pytest.mark.parametrize("letter", ["\n", "\r", "\x0b", "\u2028"])
    def test_the_name_of_a_class_is_one_line(self, classes: Path, tmp_path: Path, letter: str) -> None:
        """Three lines of two classes would name the wrong one for every label behind them."""
        (classes / "cat").rename(classes / f"c{letter}at")
        with pytest.raises(ShardError, match=r"the name of a class \(expected a line of text, found 'c.*rename it"):
            pack_target(classes, tmp_path / "out")
        assert not (tmp_path / "out").exists()
