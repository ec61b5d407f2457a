"""What belongs to no sample is told by kind, and index, stream, rewrite and webdataset agree on what is left."""

from __future__ import annotations

import tarfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_makers import indexed, kinds, picture, put, rows
from shard_makers import manifest_of, read_set
from strategies import tar_of
from tar_makers import END, header, member

from curate.data.decode import Decoder
from curate.data.target import load_split, open_target
from shards.indexing.index import Index
from shards.member_names import RESERVED
from shards.rewriting.marker import load_curated
from shards.rewriting.rewrite import RewriteOptions, rewrite
from shards.rewriting.verify import verify
from shards.stream import image_batches, samples
from shards.tar.blocks import blocks_of
from shards.tar.header_chain import may_have_duplicates


def webdataset_samples(folder: Path) -> list[dict[str, Any]]:
    """What webdataset's own reader, with its default handler, makes of the tars of a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # webdataset leaves files open
        import webdataset

        paths = [str(path) for path in sorted(folder.glob("*.tar"))]
        return [dict(sample) for sample in webdataset.WebDataset(paths, shardshuffle=False)]


def curated(index: Index, out: Path) -> list[dict[str, Any]]:
    """Everything kept, rewritten, proved, and read by webdataset."""
    rewrite(index, manifest_of(index, range(len(index))), out, options=RewriteOptions(undecodable="keep"))
    assert verify(out, index) == []
    return webdataset_samples(out)


def test_the_hidden_files_of_a_macs_tar_make_no_sample(tmp_path: Path) -> None:
    """40 pictures of a folder are 40 samples; webdataset's reader makes a 41st of the 80 hidden files."""
    names = [f"photos/{number:02d}.{ext}" for number in range(40) for ext in ("jpg", "txt")]
    members = [(one, one.encode()) for name in names for one in (name.replace("/", "/._"), name)]
    index, report = indexed(put(tmp_path / "store", "0.tar", members))
    keys = [f"photos/{number:02d}" for number in range(40)]
    assert [row["key"] for row in rows(index)] == keys
    assert Counter(kinds(report)) == {"hidden-member": 80}
    assert report.images == {"jpg": 40}
    assert [sorted(set(sample) - RESERVED) for sample in samples(index, np.arange(40))] == [["jpg", "txt"]] * 40
    (found,) = image_batches(index, [np.arange(40)], bodies_of, workers=0)
    assert found == [f"{key}.jpg".encode() for key in keys]
    assert [sample["__key__"] for sample in curated(index, tmp_path / "out")] == keys
    assert [name for name, _ in read_set(tmp_path / "out")] == names
    assert len(webdataset_samples(tmp_path / "store")) > 40


def bodies_of(batch: list[dict[str, Any]]) -> list[bytes]:
    return [sample["jpg"] for sample in batch]


@pytest.mark.parametrize("extension", sorted(RESERVED))
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_member_under_a_reserved_name_is_told_and_its_sample_is_used_without_it(
    extension: str, place: int, tmp_path: Path
) -> None:
    members = [("0.jpg", b"image"), ("0.txt", b"text")]
    members.insert(place, (f"0.{extension.upper()}", b"mine"))
    index, report = indexed(put(tmp_path / "store", "0.tar", [*members, ("1.jpg", b"next")]))
    assert [(row["key"], row["members"]) for row in rows(index)] == [("0", 2), ("1", 1)]
    assert kinds(report) == ["reserved-name"]
    assert report.faults[0].detail.startswith(f"0.{extension.upper()} has an extension that readers keep")
    whole = [(sample["__key__"], sample["__row__"], sample["jpg"]) for sample in samples(index, np.arange(2))]
    assert whole == [("0", 0, b"image"), ("1", 1, b"next")]
    assert [sample["__key__"] for sample in curated(index, tmp_path / "out")] == ["0", "1"]
    assert read_set(tmp_path / "out") == [("0.jpg", b"image"), ("0.txt", b"text"), ("1.jpg", b"next")]


def test_a_target_with_a_reserved_name_is_read(tmp_path: Path) -> None:
    """It ended in a traceback: the row of a sample was looked for in the member."""
    members = [("0.png", picture()), ("0.cls", b"1"), ("0.__row__", b"x"), ("1.__x.png", picture()), ("1.cls", b"0")]
    put(tmp_path, "train/0.tar", members)
    split = load_split(open_target(tmp_path), "train", Decoder(4, "rgb"))
    assert len(split.pixels) == 2
    assert split.left_out == {}


def test_an_image_whose_extension_begins_like_a_reserved_one_is_decoded(tmp_path: Path) -> None:
    index, _ = indexed(put(tmp_path, "0.tar", [("1.__x.png", picture())]))
    (pixels,) = image_batches(index, [np.arange(1)], Decoder(4, "rgb"), workers=0)
    assert (pixels.rows.tolist(), pixels.bad) == ([0], ())


def test_devices_fifos_and_members_of_unknown_type_are_told_by_what_they_are(tmp_path: Path) -> None:
    odd = [(b"0.dev", b"3"), (b"disk", b"4"), (b"0.pipe", b"6"), (b"label", b"V")]
    tar = member(b"0.jpg", b"x") + b"".join(header(name, 0, kind) for name, kind in odd) + member(b"0.cls", b"1") + END
    (tmp_path / "0.tar").write_bytes(tar)
    index, report = indexed(tmp_path)
    assert [(row["key"], row["members"]) for row in rows(index)] == [("0", 2)]
    assert [(fault.kind, fault.key, fault.detail) for fault in report.faults] == [
        ("other-member", "0", "0.dev is a device: belongs to no sample"),
        ("other-member", None, "disk is a device: belongs to no sample"),
        ("other-member", "0", "0.pipe is a fifo: belongs to no sample"),
        ("other-member", None, "label is of an unknown type: belongs to no sample"),
    ]
    # Nothing else is odd about this one: the fast half of a scan tells it, too.
    (tmp_path / "0.tar").write_bytes(member(b"0.jpg", b"x") + header(b"disk", 0, b"4") + END)
    assert kinds(indexed(tmp_path)[1]) == ["other-member"]


def test_folders_are_what_a_tar_is_made_of_and_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(header(b"d/", 0, b"5") + member(b"d/0.jpg", b"x") + END)
    assert kinds(indexed(tmp_path)[1]) == []


def test_shards_of_a_folder_that_are_not_read_are_told_by_name(tmp_path: Path) -> None:
    put(tmp_path, "0.tar", [("0.jpg", b"x")])
    put(tmp_path, "1.TAR", [("1.jpg", b"x")])
    for name in ("2.tar.zst", "a/3.tar.bz2", "4.tar.xz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    index, report = indexed(tmp_path)
    assert [row["key"] for row in rows(index)] == ["0", "1"]
    assert [(fault.kind, fault.shard) for fault in report.faults] == [
        ("unread-shard", "2.tar.zst"),
        ("unread-shard", "4.tar.xz"),
        ("unread-shard", "a/3.tar.bz2"),
    ]
    assert "2.tar.zst is not read: unpack it, or compress it with gzip" in report.faults[0].detail


@pytest.mark.parametrize("rename", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_of_an_extension_twice_a_curated_shard_has_the_one_that_counts(
    rename: bool, apart: bool, tmp_path: Path
) -> None:
    """webdataset refuses to read a sample with both."""
    members = [("0.jpg", b"first"), ("0.txt", b"text"), ("0.JPG", b"second"), ("1.jpg", b"1"), ("2.jpg", b"2")]
    if apart:
        members[2:] = [members[3], members[2], members[4]]
    index, report = indexed(put(tmp_path / "store", "0.tar", members))
    assert "duplicate-member" in kinds(report)
    out = tmp_path / "out"
    rewrite(index, manifest_of(index, range(3)), out, options=RewriteOptions(rename=rename))
    assert verify(out, index) == []
    theirs = webdataset_samples(out)
    keys = ["0/0", "0/1", "0/2"] if rename else ["0", "1", "2"]
    assert [sample["__key__"] for sample in theirs] == keys
    assert [sample["jpg"] for sample in theirs] == [b"second", b"1", b"2"]
    assert theirs[0]["txt"] == b"text"
    made = load_curated(out)
    assert made.table["members"].to_pylist() == [2, 1, 1]
    (found,) = image_batches(made, [np.arange(3)], bodies_of, workers=0)
    assert found == [b"second", b"1", b"2"]


def test_a_copy_without_the_earlier_of_two_members_is_held_against_the_store_byte_by_byte(tmp_path: Path) -> None:
    members = [("0.jpg", b"first"), ("0.jpg", b"second"), ("0.txt", b"text")]
    index, _ = indexed(put(tmp_path / "store", "0.tar", members))
    rewrite(index, manifest_of(index, [0]), tmp_path / "out")
    assert verify(tmp_path / "out", index) == []
    tar = tmp_path / "store" / "0.tar"
    tar.write_bytes(tar.read_bytes().replace(b"second", b"SECOND"))
    assert verify(tmp_path / "out", index) == ["0.tar, 0: bytes differ from the store's"]


def test_a_link_beside_a_member_of_its_extension_replaces_nothing(tmp_path: Path) -> None:
    tar = member(b"0.jpg", b"image") + header(b"0.JPG", 0, b"2", b"gone.jpg") + header(b"0.cls", 0, b"1", b"gone") + END
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "0.tar").write_bytes(tar)
    index, _ = indexed(tmp_path / "store")
    assert [sample["jpg"] for sample in curated(index, tmp_path / "out")] == [b"image"]
    assert load_curated(tmp_path / "out").table["members"].to_pylist() == [3]


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_members_may_repeat_only_where_a_name_does(tar_format: int) -> None:
    def repeats(names: list[str]) -> bool:
        tar = tar_of([(name, b"x") for name in names], tar_format, 0)
        return may_have_duplicates(blocks_of(tar), np.array([0]), np.array([len(tar.rstrip(b"\0")) // 512 + 1]))

    assert not repeats(["a.jpg", "a.cls", "b/a.jpg", "ab.jpg"])
    assert repeats(["a.jpg", "a.cls", "A.JPG"])
    assert repeats(["é.jpg", "a.cls", "É.jpg"])
    long = "n" * 60 + "/" + "m" * 60
    assert repeats([f"{long}.jpg", f"{long}.JPG"])
    if tar_format == tarfile.USTAR_FORMAT:
        assert not repeats([f"{long}.jpg", f"{long[1:]}.jpg"])
