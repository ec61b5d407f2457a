"""One shard becomes the rows that webdataset's reader yields, and better ones where that reader loses something."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from index_makers import THREE, indexed, kinds, picture, put, rows
from strategies import FORMATS, TIMES, Content, contents, tar_bytes
from webdataset.tariterators import group_by_keys, tar_file_iterator

from shards.indexing.lint import MAX_FAULTS_OF_A_KIND
from shards.member_names import IMAGE_SUFFIXES


class TestAgainstWebdataset:
    @settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(contents(), FORMATS, TIMES)
    def test_on_a_healthy_tar_the_index_holds_exactly_what_webdataset_yields(
        self, tmp_path: Path, samples: list[Content], tar_format: int, mtime: float
    ) -> None:
        tar = tar_bytes(samples, tar_format, mtime)
        (tmp_path / "0.tar").write_bytes(tar)
        index, report = indexed(tmp_path)
        members = ({**member, "__url__": ""} for member in tar_file_iterator(io.BytesIO(tar)))
        theirs = list(group_by_keys(members))
        assert [row["key"] for row in rows(index)] == [sample["__key__"] for sample in theirs]
        for row, sample in zip(rows(index), theirs, strict=True):
            bodies = {name: body for name, body in sample.items() if not name.startswith("__")}
            assert row["members"] == len(bodies)
            assert row["extents"] is None
            images = [name for name in bodies if name.rpartition(".")[2] in IMAGE_SUFFIXES]
            assert row["image"] == (images[0] if images else None)
            if images:
                assert tar[row["image_offset"] :][: row["image_size"]] == bodies[images[0]]
        assert set(kinds(report)) <= {"no-image", "several-images", "empty-member", "empty-shard"}

    @settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(contents(), FORMATS, TIMES)
    def test_the_bytes_of_a_row_are_a_tar_of_that_sample(
        self, tmp_path: Path, samples: list[Content], tar_format: int, mtime: float
    ) -> None:
        tar = tar_bytes(samples, tar_format, mtime)
        (tmp_path / "0.tar").write_bytes(tar)
        index, _ = indexed(tmp_path)
        for row, sample in zip(rows(index), samples, strict=True):
            piece = tar[row["offset"] : row["offset"] + row["size"]] + bytes(1024)
            with tarfile.open(fileobj=io.BytesIO(piece)) as archive:
                read = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
            assert read == {f"{sample.key}.{ext}": body for ext, body in sample.bodies.items()}


class TestGrouping:
    def test_members_that_lie_apart_are_joined_by_extents(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3"), ("b.cls", b"4")])
        index, report = indexed(tmp_path)
        # Each member is a header block and a body block, 1,024 bytes.
        assert rows(index)[0]["extents"] == [{"offset": 0, "size": 1024}, {"offset": 2048, "size": 1024}]
        assert (rows(index)[0]["offset"], rows(index)[0]["size"]) == (0, 2048)
        assert [fault.key for fault in report.faults if fault.kind == "non-adjacent"] == ["a", "b"]

    def test_a_member_of_no_sample_lies_outside_and_is_no_separation(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [("a.jpg", b"1"), ("LICENSE", b"2"), ("a.cls", b"3"), (".x", b"4"), ("__m__/5", b"")])
        index, report = indexed(tmp_path)
        assert rows(index)[0]["extents"] == [{"offset": 0, "size": 1024}, {"offset": 2048, "size": 1024}]
        assert kinds(report) == ["no-extension", "hidden-member", "hidden-member"]

    def test_of_an_extension_that_is_there_twice_the_last_counts(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [("a.jpg", b"first"), ("a.cls", b"1"), ("a.JPG", b"second!")])
        index, report = indexed(tmp_path)
        (row,) = rows(index)
        assert (row["image"], row["image_size"], row["members"]) == ("jpg", len(b"second!"), 3)
        assert kinds(report) == ["duplicate-member"]
        assert report.images == {"jpg": 2}

    def test_the_first_image_in_tar_order_counts_unless_an_extension_is_asked_for(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [("a.right.png", b"1"), ("a.left.jpg", b"22"), ("a.depth", b"333"), ("b.png", b"4")])
        assert [row["image"] for row in rows(indexed(tmp_path)[0])] == ["right.png", "png"]
        assert [row["image"] for row in rows(indexed(tmp_path, image="left.jpg")[0])] == ["left.jpg", None]
        # A last suffix is enough, and what is asked for need not look like an image.
        assert [row["image"] for row in rows(indexed(tmp_path, image="PNG")[0])] == ["right.png", "png"]
        assert [row["image"] for row in rows(indexed(tmp_path, image="depth")[0])] == ["depth", None]

    def test_unsafe_samples_stay_in_the_index_and_are_told(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [("../a.jpg", b"1"), ("/b.jpg", b"2"), ("c.jpg", b"3")])
        index, report = indexed(tmp_path)
        assert index.table["key"].to_pylist() == ["../a", "/b", "c"]
        assert [fault.key for fault in report.faults if fault.kind == "unsafe-name"] == ["../a", "/b"]

    def test_names_that_begin_alike_are_kept_apart(self, tmp_path: Path) -> None:
        members = ["a.jpg", "a.b/c.jpg", "a.cls", "__x.jpg", "__x.y__"]
        put(tmp_path, "0.tar", [(name, b"") for name in members])
        assert [(row["key"], row["members"]) for row in rows(indexed(tmp_path)[0])] == [
            ("a", 2),
            ("a.b/c", 1),
            ("__x", 1),
        ]

    def test_a_hard_link_is_the_bytes_of_the_last_member_of_that_name_before_it(self, tmp_path: Path) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, body, link in [
                ("0.jpg", b"one", ""),
                ("0.cls", b"3", ""),
                ("1.jpg", b"", "0.jpg"),
                ("2.jpg", b"", "1.jpg"),
                ("3.jpg", b"", "gone.jpg"),
            ]:
                info = tarfile.TarInfo(name)
                info.size, info.linkname, info.type = len(body), link, tarfile.LNKTYPE if link else tarfile.REGTYPE
                archive.addfile(info, io.BytesIO(body))
        (tmp_path / "0.tar").write_bytes(packed.getvalue())
        index, report = indexed(tmp_path)
        first, *links, lost = rows(index)
        for row in links:
            assert (row["image_offset"], row["image_size"]) == (first["image_offset"], 3)
        assert lost["image"] is None
        assert kinds(report) == ["link-member"] * 3 + ["no-image"]
        assert index.shards[0].borrows

    def test_a_symbolic_link_stays_with_its_sample_and_makes_none(self, tmp_path: Path) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name in ("a.jpg", "b.jpg"):
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(link)
            archive.addfile(tarfile.TarInfo("b.cls"))
        (tmp_path / "0.tar").write_bytes(packed.getvalue())
        index, report = indexed(tmp_path)
        (row,) = rows(index)
        assert (row["key"], row["members"], row["image"]) == ("b", 2, None)
        assert kinds(report) == ["link-member", "link-member", "no-image"]


class TestReport:
    @pytest.mark.parametrize(("n_samples", "keys"), [(1, ["0"]), (2, [None])])
    def test_what_all_samples_of_a_shard_lack_is_said_once(
        self, n_samples: int, keys: list[str | None], tmp_path: Path
    ) -> None:
        put(tmp_path, "0.tar", [(f"{number}.wav", b"x") for number in range(n_samples)])
        assert [fault.key for fault in indexed(tmp_path)[1].faults] == keys

    def test_the_record_has_the_named_fields(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [("a.png", picture()), ("b.png", b"<html>"), ("c.json", b"{")])
        _, report = indexed(tmp_path, check=True)
        record = report.record()
        assert list(record) == ["shards", "samples", "images", "bytes", "faults", "passed_over"]
        assert (record["shards"], record["samples"], record["images"]) == (1, 3, {"png": 1})
        assert record["bytes"] == (tmp_path / "0.tar").stat().st_size
        assert [(fault["kind"], fault["key"]) for fault in record["faults"]] == [
            ("no-image", "c"),
            ("not-an-image", "b"),
            ("bad-sidecar", "c"),
        ]
        json.dumps(record)

    def test_without_a_check_images_are_counted_by_name(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [("a.JPG", b"no picture"), ("b.left.png", b"nor this")])
        assert indexed(tmp_path)[1].images == {"jpg": 1, "png": 1}

    @pytest.mark.parametrize(
        ("name", "body", "kind"),
        [
            ("json", b"[1, NaN]", None),
            ("json", b"[" * 100_000, "bad-sidecar"),
            ("json", b"\xff{}", "bad-sidecar"),
            ("json", b"", "bad-sidecar"),
            ("cls", b" -3\n", None),
            ("cls", b"3.0", "bad-label"),
            ("cls", b"", "bad-label"),
            ("cls", b"1" * 41, "bad-label"),
            ("txt", b"caf\xe9", "bad-sidecar"),
            ("text", b"\xff", "bad-sidecar"),
            ("l.transcript", b"\xff", "bad-sidecar"),
            ("caption", b"\xff", "bad-sidecar"),
            ("txt", "café".encode(), None),
            ("bin", b"\xff", None),
        ],
    )
    def test_a_check_parses_every_sidecar(self, name: str, body: bytes, kind: str | None, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [("a.png", picture()), (f"a.{name}", body)])
        assert kinds(indexed(tmp_path, check=True)[1]) == ([] if kind is None else [kind])

    def test_faults_of_one_kind_are_told_up_to_a_number_and_then_counted(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [("a.jpg", b"1"), *((f"n{number}", b"") for number in range(MAX_FAULTS_OF_A_KIND + 3))])
        _, report = indexed(tmp_path)
        assert kinds(report) == ["no-extension"] * (MAX_FAULTS_OF_A_KIND + 1)
        assert report.faults[-1].detail == "3 more of this kind"

    def test_a_key_in_two_shards_is_told_once(self, tmp_path: Path) -> None:
        put(put(put(tmp_path, "0.tar", THREE), "1.tar", THREE[2:]), "2.tar", THREE[4:])
        _, report = indexed(tmp_path)
        assert [fault.detail for fault in report.faults] == [
            "key '1' occurs in 0.tar and 1.tar",
            "key '2' occurs in 0.tar and 1.tar and 2.tar",
        ]
