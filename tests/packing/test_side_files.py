"""What goes along with an image: files of its name, and what a table in the folder says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_makers import png, write
from shard_makers import read_set

from shards.errors import ShardError
from shards.packing.captions import members_of
from shards.packing.imagefolder import pack_folder, pack_target


def packed(tmp_path: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    pack_folder(write(tmp_path / "in", files), tmp_path / "out")
    return dict(read_set(tmp_path / "out"))


def test_files_of_an_images_name_are_members_of_its_sample(tmp_path: Path) -> None:
    files = {"a/x.jpg": png(1), "a/x.txt": b"a cat", "a/x.json": b"{}", "b/x.jpg": png(2)}
    assert packed(tmp_path, files) == files


def test_a_name_of_several_dots_is_the_images_key(tmp_path: Path) -> None:
    """x.1.txt says something of x.1.jpg, and x.2.jpg.json of x.2.jpg."""
    files = {"x.1.jpg": png(1), "x.1.txt": b"one", "x.2.jpg": png(2), "x.2.jpg.JSON": b"{}", "x.txt": b"of none"}
    assert packed(tmp_path, files) == {"x_1.jpg": png(1), "x_1.txt": b"one", "x_2.jpg": png(2), "x_2.JSON": b"{}"}


def test_two_pictures_of_one_name_share_what_is_said_of_it(tmp_path: Path) -> None:
    found = packed(tmp_path, {"x.jpg": png(1), "x.png": png(2), "x.txt": b"both"})
    assert {name: found[name] for name in ("x.txt", "x_2.txt")} == {"x.txt": b"both", "x_2.txt": b"both"}


def test_what_goes_along_with_none_is_named(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"x.jpg": png(1), "y.txt": b"", "x.mov": b"", "z/readme.md": b"", "x.txt": b"x"})
    report = pack_folder(source, tmp_path / "out")
    assert (report.ignored, report.others) == (3, ("x.mov", "y.txt", "z/readme.md"))
    assert report.text().splitlines() == [
        "packed 1 images; left out 0, ignored 3 other files (x.mov, y.txt, z/readme.md)",
        "passed over: 1 .md, 1 .mov, 1 .txt",
    ]


def test_many_others_are_named_by_the_first(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"x.jpg": png(1), **{f"{n}.md": b"" for n in range(9)}, "a\nb.md": b""})
    report = pack_folder(source, tmp_path / "out")
    assert "ignored 10 other files (0.md, 1.md, 2.md, 3.md, 4.md, ...)" in report.text()


def test_a_side_file_that_cannot_be_read_is_left_out_and_the_image_packed(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"x.jpg": png(1)})
    (source / "x.txt").symlink_to("nowhere")
    report = pack_folder(source, tmp_path / "out")
    assert [(fault.kind, fault.shard) for fault in report.faults] == [("bad-sidecar", "x.txt")]
    assert read_set(tmp_path / "out") == [("x.jpg", png(1))]


def test_what_a_mac_leaves_in_an_archive_is_not_packed(tmp_path: Path) -> None:
    files = {"x.jpg": png(1), "__MACOSX/x.jpg": png(2), "a/@eaDir/x.jpg/THUMB.jpg": png(3)}
    report = pack_folder(write(tmp_path / "in", files), tmp_path / "out")
    assert read_set(tmp_path / "out") == [("x.jpg", png(1))]
    assert report.notes == ("passed over 2 files in @eaDir, __MACOSX, which systems leave beside pictures",)
    assert report.ignored == 2


def test_nor_is_it_a_class(tmp_path: Path) -> None:
    files = {f"{name}/{n}.png": png(n) for name in ("cat", "dog", "__MACOSX") for n in range(4)}
    assert pack_target(write(tmp_path / "in", files), tmp_path / "out").classes == ("cat", "dog")


def test_a_label_beside_an_image_gives_way_to_the_targets(tmp_path: Path) -> None:
    files = {
        f"{name}/{n}.{end}": body for name in "ab" for n in range(3) for end, body in (("png", png(n)), ("cls", b"7"))
    }
    pack_target(write(tmp_path / "in", files), tmp_path / "out")
    members = read_set(tmp_path / "out")
    assert len(members) == 12
    assert {body for name, body in members if name.endswith(".cls")} == {b"0", b"1"}


class TestTables:
    """Hugging Face's metadata files."""

    def test_a_csv(self, tmp_path: Path) -> None:
        """Values stay text; a caption is a member of its own, too."""
        table = b'file_name,text,n\na.png,"a cat, asleep",007\nsub/b.png,,\n'
        found = packed(tmp_path, {"metadata.csv": table, "a.png": png(1), "sub/b.png": png(2)})
        assert json.loads(found.pop("a.json")) == {"text": "a cat, asleep", "n": "007"}
        assert found == {"a.png": png(1), "a.txt": b"a cat, asleep", "sub/b.png": png(2)}

    def test_json_lines_and_parquet_in_folders_of_their_own(self, tmp_path: Path) -> None:
        lines = b'{"file_name": "a.png", "objects": {"boxes": [[1, 2]]}}\n\n'
        source = write(tmp_path / "in", {"one/metadata.jsonl": lines, "one/a.png": png(1), "two/b.png": png(2)})
        table = {"file_name": ["b.png"], "caption": ["é"], "raw": [b"\xff"], "score": [float("nan")]}
        pq.write_table(pa.table(table), source / "two" / "metadata.parquet")
        report = pack_folder(source, tmp_path / "out")
        found = dict(read_set(tmp_path / "out"))
        assert json.loads(found["one/a.json"]) == {"objects": {"boxes": [[1, 2]]}}
        assert json.loads(found["two/b.json"]) == {"caption": "é"}
        assert found["two/b.txt"].decode() == "é"
        assert report.others == ()

    def test_the_nearer_table_counts(self, tmp_path: Path) -> None:
        tables = {"metadata.csv": b"file_name,text\nd/a.png,far\n", "d/metadata.csv": b"file_name,text\na.png,near\n"}
        assert packed(tmp_path, {**tables, "d/a.png": png(1)})["d/a.txt"] == b"near"

    def test_a_file_of_its_own_comes_first(self, tmp_path: Path) -> None:
        files = {"metadata.csv": b"file_name,text\na.png,table\n", "a.png": png(1), "a.txt": b"file"}
        report = pack_folder(write(tmp_path / "in", files), tmp_path / "out")
        assert dict(read_set(tmp_path / "out"))["a.txt"] == b"file"
        assert report.notes == ("of 1 image both a table and a file of its own say something; the file is taken",)

    def test_rows_of_no_image_are_told(self, tmp_path: Path) -> None:
        files = {"metadata.csv": b"file_name,text\na.png,x\ngone.png,y\n", "a.png": png(1)}
        report = pack_folder(write(tmp_path / "in", files), tmp_path / "out")
        assert report.notes == ("1 of 2 rows of metadata.csv name no image that is there, such as gone.png",)

    def test_another_table_of_that_name_is_an_other_file(self, tmp_path: Path) -> None:
        report = pack_folder(write(tmp_path / "in", {"metadata.csv": b"a,b\n1,2\n", "a.png": png(1)}), tmp_path / "out")
        assert report.others == ("metadata.csv",)

    @pytest.mark.parametrize(
        ("name", "table", "said"),
        [
            ("metadata.csv", b"file_name,text\na.png,x,y\n", r"line 2 has 3 values, not 2"),
            ("metadata.csv", b"file_name,text\na.png,\xff\n", "no table"),
            ("metadata.csv", b'file_name,text\na.png,"x\n', "no table"),
            ("metadata.jsonl", b'{"file_name": "a.png"}\n{', "no table"),
            ("metadata.jsonl", b'{"file_name": "a.png"}\n[1]\n', "line 2 is no object"),
            ("metadata.parquet", b"PAR1", "no table"),
        ],
    )
    def test_one_that_is_broken_is_one_line(self, tmp_path: Path, name: str, table: bytes, said: str) -> None:
        with pytest.raises(ShardError, match=said) as caught:
            pack_folder(write(tmp_path / "in", {name: table, "a.png": png(1)}), tmp_path / "out")
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(str(tmp_path / "in" / name))


def test_a_row_that_says_nothing_is_no_member() -> None:
    assert members_of({"file": "a.png", "text": None}, "file") == ()
