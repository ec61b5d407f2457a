"""The class and the split of every image of a target: by folders, by a table, and what is no target at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_makers import png, write
from shard_makers import read_set, tree

from shards.errors import Misuse, ShardError
from shards.packing.imagefolder import pack_target
from shards.packing.labels import by_folders

SPLITS = ("train", "val", "test")


def packed(target: Path) -> dict[str, dict[str, int]]:
    """The label of each key by split, read by `tarfile`."""
    found = {}
    for split in SPLITS:
        members = dict(read_set(target / split)) if (target / split).exists() else {}
        found[split] = {name[:-4]: int(body) for name, body in members.items() if name.endswith(".cls")}
    return {split: labels for split, labels in found.items() if labels}


def pictures(*paths: str) -> dict[str, bytes]:
    return {path: png(place) for place, path in enumerate(paths)}


class TestFolders:
    def test_a_flat_folder_is_no_target(self, tmp_path: Path) -> None:
        """It was packed as an empty one, exit 0."""
        source = write(tmp_path / "in", pictures("1.png", "2.png"))
        with pytest.raises(ShardError) as caught:
            pack_target(source, tmp_path / "out")
        assert str(caught.value) == (
            f"{source}: no class folder (found 2 images stand side by side); put the images of each class into a "
            "folder of its own, or give --labels FILE with columns file, label; a target without labels needs no "
            f"packing: curate run --target {source}"
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]

    def test_images_beside_one_folder_are_no_target(self, tmp_path: Path) -> None:
        """A folder of thumbnails among them made a target of the one class `thumbnails`, exit 0."""
        source = write(tmp_path / "in", pictures("1.png", "2.png", "3.png", "4.png", "thumbnails/1.png", "t/2.png"))
        with pytest.raises(ShardError, match=r"no class folder \(found 4 images stand side by side, 2 in folders\)"):
            pack_target(source, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("files", [("cat/1.png", "cat/2.png", "cat/3.png"), ("train/cat/1.png", "test/cat/2.png")])
    def test_one_class_is_told(self, tmp_path: Path, files: tuple[str, ...]) -> None:
        """It may be meant, of a target that is not scored."""
        notes = pack_target(write(tmp_path / "in", pictures(*files)), tmp_path / "out").notes
        assert "one class alone, cat: an evaluation needs two at least; are these its folders?" in notes

    def test_a_folder_without_images_is_no_target(self, tmp_path: Path) -> None:
        with pytest.raises(ShardError, match="no image"):
            pack_target(write(tmp_path / "in", {"readme.txt": b""}), tmp_path / "out")

    @pytest.mark.parametrize(
        "names", [("train", "val", "test"), ("Training", "valid", "TEST"), ("train", "validation", "testing")]
    )
    def test_splits_above_classes_are_kept(self, tmp_path: Path, names: tuple[str, str, str]) -> None:
        """They were taken for classes."""
        train, val, test = names
        files = [
            f"{train}/cat/1.png",
            f"{train}/dog/2.png",
            f"{train}/dog/deep/3.png",
            f"{val}/dog/4.png",
            f"{test}/cat/5.png",
        ]
        report = pack_target(write(tmp_path / "in", pictures(*files)), tmp_path / "out")
        assert report.classes == ("cat", "dog")
        assert packed(tmp_path / "out") == {
            "train": {f"{train}/cat/1": 0, f"{train}/dog/2": 1, f"{train}/dog/deep/3": 1},
            "val": {f"{val}/dog/4": 1},
            "test": {f"{test}/cat/5": 0},
        }
        assert report.samples == {"train": 3, "val": 1, "test": 1}

    def test_splits_below_classes_are_kept(self, tmp_path: Path) -> None:
        files = ("cat/train/1.png", "cat/test/2.png", "dog/train/3.png", "dog/val/4.png")
        report = pack_target(write(tmp_path / "in", pictures(*files)), tmp_path / "out")
        assert report.classes == ("cat", "dog")
        assert packed(tmp_path / "out") == {
            "train": {"cat/train/1": 0, "dog/train/3": 1},
            "val": {"dog/val/4": 1},
            "test": {"cat/test/2": 0},
        }

    def test_what_is_missing_among_splits_is_said(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", pictures("train/cat/1.png", "train/dog/2.png", "val/dog/3.png"))
        (note,) = pack_target(source, tmp_path / "out").notes
        assert note.startswith("the splits that are there are kept, and no test is among them: a score needs a test; ")
        assert not (tmp_path / "out" / "test").exists()

    def test_a_class_may_be_called_train(self, tmp_path: Path) -> None:
        """Beside a bus, it is one of two classes, as ever."""
        files = [f"{name}/{n}.png" for name in ("train", "bus") for n in range(5)]
        report = pack_target(write(tmp_path / "in", pictures(*files)), tmp_path / "out")
        assert (report.classes, report.samples) == (("bus", "train"), {"train": 6, "val": 2, "test": 2})

    def test_a_folder_of_a_split_in_a_few_classes_is_told(self, tmp_path: Path) -> None:
        files = [f"cat/{n}.png" for n in range(5)] + [f"dog/test/{n}.png" for n in range(5)]
        report = pack_target(write(tmp_path / "in", pictures(*files)), tmp_path / "out")
        assert report.notes[0].startswith("5 of 10 images lie in folders such as dog/test, the others in no split's")
        assert report.samples == {"train": 6, "val": 2, "test": 2}

    @pytest.mark.parametrize(
        ("files", "said"),
        [
            (("train/1.png", "test/2.png"), r"no class folder \(found images stand side by side in test/, train/\)"),
            (("val/cat/1.png", "test/cat/2.png"), r"splits without a train \(found test, val\)"),
            (("train/cat/1.png", "test/dog/2.png"), r"train has no readable image of a class \(found dog\)"),
            (("cat/test/1.png", "cat/val/2.png"), r"splits without a train"),
        ],
    )
    def test_splits_that_make_no_target(self, tmp_path: Path, files: tuple[str, ...], said: str) -> None:
        with pytest.raises(ShardError, match=said):
            pack_target(write(tmp_path / "in", pictures(*files)), tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_a_split_of_broken_images_is_none(self, tmp_path: Path) -> None:
        files = pictures("train/cat/1.png", "train/dog/2.png") | {"test/cat/3.png": b"GIF"}
        with pytest.raises(ShardError, match="no readable image in test"):
            pack_target(write(tmp_path / "in", files), tmp_path / "out")

    def test_shares_beside_splits_are_misuse(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", pictures("train/cat/1.png", "train/dog/2.png"))
        with pytest.raises(Misuse, match="--split: there are splits already"):
            pack_target(source, tmp_path / "out", split=(0.4, 0.2, 0.4))

    def test_a_linked_class_of_a_split_is_refused(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", pictures("train/cat/1.png", "test/cat/2.png"))
        (source / "train" / "dog").symlink_to(source / "train" / "cat")
        with pytest.raises(ShardError, match=r"a class folder is a link.*found dog"):
            pack_target(source, tmp_path / "out")

    def test_groups_on_several_sides_of_splits_are_told(self, tmp_path: Path) -> None:
        """They are on record as they stand."""
        source = write(tmp_path / "in", pictures("train/c/x_1.png", "test/c/x_2.png", "train/c/y_1.png"))
        report = pack_target(source, tmp_path / "out", group_by=r"([xy])_")
        assert (
            "1 group stands in several of the splits that are there, such as x: copies there flatter a score"
            in report.notes
        )
        table = pq.read_table(tmp_path / "out" / "groups.parquet").to_pylist()
        assert {(row["split"], row["group"]) for row in table} == {("train", "x"), ("train", "y"), ("test", "x")}

    def test_images_in_no_class_folder_are_told(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", pictures(*(f"{c}/{n}.png" for c in "ab" for n in range(3)), "x 1.png", "y.png"))
        report = pack_target(source, tmp_path / "out")
        assert "2 images in no class folder, such as x 1.png: of no class, and left out" in report.notes
        assert report.others == ("x 1.png", "y.png")

    def test_every_image_is_of_its_folder(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", pictures("cat/a/1.png", "dog/2.png", "loose.png"))
        told = by_folders(source, ["cat/a/1.png", "dog/2.png", "loose.png"])
        assert (told.label, told.split) == ({"cat/a/1.png": "cat", "dog/2.png": "dog"}, None)


class TestTable:
    def table(self, tmp_path: Path, text: str) -> Path:
        (tmp_path / "labels.csv").write_text(text)
        return tmp_path / "labels.csv"

    def test_labels_and_splits(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", pictures("1.png", "2.png", "d/3.png", "4.png"))
        labels = self.table(
            tmp_path, "file,label,split\n1.png,dog,train\n2.png,cat,train\nd/3.png,cat,Valid\n4.png,dog,test\n"
        )
        report = pack_target(source, tmp_path / "out", labels=labels)
        assert packed(tmp_path / "out") == {"train": {"1": 1, "2": 0}, "val": {"d/3": 0}, "test": {"4": 1}}
        assert (report.classes, report.notes) == (("cat", "dog"), ())

    def test_numbers_are_labels_in_their_order(self, tmp_path: Path) -> None:
        """10 behind 9: where they are 0 to n - 1, the label is the number."""
        rows = [(f"{n}.png", n % 11) for n in range(33)]
        source = write(tmp_path / "in", pictures(*(name for name, _ in rows)))
        pq.write_table(
            pa.table({"file_name": [n for n, _ in rows], "label": [c for _, c in rows]}), tmp_path / "l.parquet"
        )
        report = pack_target(source, tmp_path / "out", labels=tmp_path / "l.parquet")
        assert report.classes == tuple(map(str, range(11)))
        assert report.samples == {"train": 11, "val": 11, "test": 11}
        found = {key: label for labels in packed(tmp_path / "out").values() for key, label in labels.items()}
        assert found == {str(n): n % 11 for n in range(33)}

    @pytest.mark.parametrize(
        ("labels", "classes"),
        [
            (["1.0", "0", "1", "0.0"], ("0", "1")),
            (["1.0", "0.5", "1", "0.5"], ("0.5", "1", "1.0")),
            (["1.0", "cat", "1", "cat"], ("1", "1.0", "cat")),
        ],
    )
    def test_a_whole_number_is_one_however_it_is_written(
        self, tmp_path: Path, labels: list[str], classes: tuple[str, ...]
    ) -> None:
        """1.0 beside 1, as a spreadsheet leaves them, were two classes; among words and fractions they still are."""
        source = write(tmp_path / "in", pictures(*(f"{n}.png" for n in range(len(labels)))))
        rows = "".join(f"{n}.png,{label},train\n" for n, label in enumerate(labels))
        report = pack_target(source, tmp_path / "out", labels=self.table(tmp_path, f"file,label,split\n{rows}"))
        assert report.classes == classes

    def test_a_label_that_is_no_number_is_none(self, tmp_path: Path) -> None:
        """Of a Parquet file of floats."""
        table = pa.table({"file": ["1.png", "2.png"], "label": [1.0, float("nan")]})
        pq.write_table(table, tmp_path / "l.parquet")
        source = write(tmp_path / "in", pictures("1.png", "2.png"))
        with pytest.raises(ShardError, match="a row without a file or a label"):
            pack_target(source, tmp_path / "out", labels=tmp_path / "l.parquet")

    def test_without_splits_they_are_drawn_as_of_folders(self, tmp_path: Path) -> None:
        names = [f"{name}/{n}.png" for name in ("a", "b") for n in range(9)]
        source = write(tmp_path / "in", pictures(*names))
        labels = self.table(tmp_path, "file,label\n" + "".join(f"{name},{name[0]}\n" for name in names))
        pack_target(source, tmp_path / "by-table", labels=labels)
        pack_target(source, tmp_path / "by-folder")
        assert tree(tmp_path / "by-table") == tree(tmp_path / "by-folder")

    def test_folders_of_splits_hold_beside_a_table(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", pictures("train/1.png", "train/2.png", "test/3.png"))
        labels = self.table(tmp_path, "file,label\ntrain/1.png,a\ntrain/2.png,b\ntest/3.png,a\n")
        pack_target(source, tmp_path / "out", labels=labels)
        assert packed(tmp_path / "out") == {"train": {"train/1": 0, "train/2": 1}, "test": {"test/3": 0}}

    def test_what_a_table_lacks_or_has_besides_is_told(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", pictures(*(f"{n}.png" for n in range(8))))
        rows = [*((f"{n}.png", "ab"[n % 2]) for n in range(6)), ("gone.png", "a")]
        labels = self.table(tmp_path, "file,label\n" + "".join(f"{file},{label}\n" for file, label in rows))
        report = pack_target(source, tmp_path / "out", labels=labels)
        assert report.notes[:2] == (
            "1 of 7 files of labels.csv are not there, such as gone.png",
            "labels.csv has no label of 2 images, which are left out: 6.png, ...",
        )
        assert (sum(report.samples.values()), report.ignored, report.others) == (6, 2, ("6.png", "7.png"))

    def test_a_file_may_be_told_from_the_tables_folder(self, tmp_path: Path) -> None:
        """Or by its whole path; and the table may lie among the images."""
        source = write(tmp_path / "in", pictures("1.png", "d/2.png", "3.png", "4.png"))
        rows = f"in/1.png,a\n{source}/d/2.png,a\n./in/3.png,a\n4.png,b\n"
        labels = self.table(tmp_path, "file,label,split\n" + rows.replace("\n", ",train\n"))
        assert pack_target(source, tmp_path / "out", labels=labels).samples["train"] == 4
        inside = write(source, {"l.csv": b"file,label,split\n1.png,a,train\nd/2.png,b,train\n"}) / "l.csv"
        report = pack_target(source, tmp_path / "more", labels=inside)
        assert (report.others, report.passed_over.others) == (("3.png", "4.png"), {})

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", r"no file of labels \(expected file, label, found no row\); write columns file, label"),
            ("file,class\n1.png,a\n", r"no file of labels \(expected file, label, found file, class\)"),
            ("file,label\n1.png,\n", "a row without a file or a label"),
            ("file,label\nx.png,a\n", r"names no image that is there \(expected paths such as 1.png, found x.png\)"),
            ("file,label\n1.png,a\n1.png,b\n", "1.png: a file stands there twice"),
            (
                "file,label,split\n1.png,a,train\n2.png,a,\n",
                r"a split for some files only \(found 1 of 2 files with one\)",
            ),
            ("file,label,split\n1.png,a,dev\n", r"1.png: no such split \(expected train, val, test, found dev\)"),
            ("file,label,split\n1.png,a,test\n2.png,a,test\n", "splits without a train"),
            ("file,file\n1.png,a\n", "two columns of one name"),
        ],
    )
    def test_a_table_that_is_none_is_one_line(self, tmp_path: Path, text: str, said: str) -> None:
        source = write(tmp_path / "in", pictures("1.png", "2.png"))
        with pytest.raises(ShardError, match=said) as caught:
            pack_target(source, tmp_path / "out", labels=self.table(tmp_path, text))
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()

    def test_one_that_is_not_there(self, tmp_path: Path) -> None:
        source = write(tmp_path / "in", pictures("1.png"))
        with pytest.raises(Misuse, match=r"nowhere\.csv: no such file of labels; name one that is there"):
            pack_target(source, tmp_path / "out", labels=tmp_path / "nowhere.csv")
