"""Rewriting members that are not plain: apart, linked, borrowed, long-named, renamed, packed, remote."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from shard_makers import indexed, make_store, manifest_of, numbered, read_set, read_tar, samples_of, write_tar

from shards.errors import ShardError
from shards.indexing import index as indexes
from shards.indexing.index import Index
from shards.rewriting.marker import load_curated
from shards.rewriting.rewrite import RewriteOptions, prefix_of, rewrite
from shards.rewriting.verify import verify


@pytest.fixture
def store(tmp_path: Path) -> Index:
    """Three shards of 20 samples."""
    shards = {f"part/{n:05d}.tar": numbered(20 * n, 20) for n in range(3)}
    return make_store(tmp_path / "store", shards)


def test_members_that_lie_apart_are_made_adjacent(tmp_path: Path) -> None:
    members = [(f"{n}.jpg", bytes([n]) * 600) for n in range(3)] + [(f"{n}.json", b"%d" % n) for n in range(3)]
    store = make_store(tmp_path / "store", {"0.tar": members})
    rewrite(store, manifest_of(store, [0, 2]), tmp_path / "out")
    assert read_set(tmp_path / "out") == [members[0], members[3], members[2], members[5]]
    made = load_curated(tmp_path / "out")
    assert made.table["image_offset"].to_pylist() == [512, 512 + 1024 + 1024 + 512]  # image 512 + 1024, json 1024
    assert verify(tmp_path / "out", store) == []


def test_members_without_key_and_folders_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "store" / "0.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as tar:
        folder = tarfile.TarInfo("cat")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name in ("README", "cat/1.jpg", "LICENSE", "cat/1.cls", "Makefile"):
            member = tarfile.TarInfo(name)
            member.size = 3
            tar.addfile(member, io.BytesIO(b"abc"))
    store = indexed(path.parent)
    rewrite(store, manifest_of(store, [0]), tmp_path / "out")
    assert read_set(tmp_path / "out") == [("cat/1.jpg", b"abc"), ("cat/1.cls", b"abc")]


@pytest.fixture
def linked(tmp_path: Path) -> Index:
    """0.jpg, and 1.jpg and 1.txt as hard links to it and to a member without key."""
    path = tmp_path / "store" / "0.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as tar:
        for name, body, link in (
            ("README", b"read", ""),
            ("0.jpg", b"image", ""),
            ("1.jpg", b"", "0.jpg"),
            ("1.txt", b"", "README"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            if link:
                member.type, member.linkname = tarfile.LNKTYPE, link
            tar.addfile(member, io.BytesIO(body))
    return indexed(path.parent)


def test_a_hard_link_becomes_a_regular_member_with_its_targets_bytes(linked: Index, tmp_path: Path) -> None:
    summary = rewrite(linked, manifest_of(linked, [1]), tmp_path / "out")
    assert read_set(tmp_path / "out") == [("1.jpg", b"image"), ("1.txt", b"read")]
    assert summary.new_headers == 2
    made, found = load_curated(tmp_path / "out"), indexed(tmp_path / "out")
    assert made.shards == found.shards
    assert made.table["image_offset"].to_pylist() == found.table["image_offset"].to_pylist() == [512]
    assert verify(tmp_path / "out", linked) == []


def test_links_that_stand_for_nothing_are_copied_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "store" / "0.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as tar:
        for name, kind, link in (
            ("0.jpg", tarfile.REGTYPE, ""),
            ("0.txt", tarfile.LNKTYPE, "gone.txt"),
            ("0.png", tarfile.SYMTYPE, "/etc/passwd"),
            ("1.jpg", tarfile.REGTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            tar.addfile(member)
    store = indexed(path.parent)
    summary = rewrite(store, manifest_of(store, [0]), tmp_path / "out")
    assert (tmp_path / "out" / "000000.tar").read_bytes() == path.read_bytes()[: 3 * 512] + bytes(1024)
    assert summary.new_headers == 0
    assert load_curated(tmp_path / "out").shards == indexed(tmp_path / "out").shards
    assert verify(tmp_path / "out", store) == []
    with pytest.raises(ShardError, match=r"0\.tar, 0\.txt: only regular members can be renamed .*found hardlink"):
        rewrite(store, manifest_of(store, [0]), tmp_path / "renamed", options=RewriteOptions(rename=True))


def test_a_hard_link_is_resolved_under_a_new_name_too(linked: Index, tmp_path: Path) -> None:
    rewrite(linked, manifest_of(linked, [1]), tmp_path / "out", options=RewriteOptions(rename=True))
    assert read_set(tmp_path / "out") == [("0/1.jpg", b"image"), ("0/1.txt", b"read")]
    assert verify(tmp_path / "out", linked) == []


def test_a_global_header_is_resolved_into_the_member(tmp_path: Path) -> None:
    path = tmp_path / "store" / "0.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={"path": "real.jpg"}) as tar:
        member = tarfile.TarInfo("cut.jpg")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"image"))
    store = indexed(path.parent)
    assert store.table["key"].to_pylist() == ["real"]
    summary = rewrite(store, manifest_of(store, [0]), tmp_path / "out")
    assert read_set(tmp_path / "out") == [("real.jpg", b"image")]
    assert summary.new_headers == 1


def test_pax_headers_of_a_member_are_copied_with_it(tmp_path: Path) -> None:
    name = "ü" * 80 + ".jpg"
    path = tmp_path / "store" / "0.tar"
    write_tar(path, [("a.jpg", b"a"), (name, b"b")], tarfile.PAX_FORMAT)
    store = indexed(path.parent)
    summary = rewrite(store, manifest_of(store, [1]), tmp_path / "out")
    assert read_set(tmp_path / "out") == [(name, b"b")]
    assert summary.new_headers == 0


def test_rename_puts_the_shard_before_every_key(tmp_path: Path) -> None:
    long = "x" * 95  # with a folder and the prefix past the 100 bytes of a header's name field
    shards = {"a/0.tar": [("1.jpg", b"a"), ("1.json", b"{}")], "b/0.tar": [("1.jpg", b"b"), (f"{long}.jpg", b"c")]}
    store = make_store(tmp_path / "store", shards)
    summary = rewrite(store, manifest_of(store, [0, 1, 2]), tmp_path / "out", options=RewriteOptions(rename=True))
    expected = [("a/0/1.jpg", b"a"), ("a/0/1.json", b"{}"), ("b/0/1.jpg", b"b"), (f"b/0/{long}.jpg", b"c")]
    assert read_set(tmp_path / "out") == expected
    assert (summary.shared_keys, summary.new_headers) == (0, 4)
    made, found = load_curated(tmp_path / "out"), indexed(tmp_path / "out")
    assert made.shards == found.shards
    assert [column.to_pylist() for column in made.table] == [column.to_pylist() for column in found.table]
    assert verify(tmp_path / "out", store) == []
    assert prefix_of("x/1.tgz") == "x/1"


def test_a_shared_key_is_reported_and_never_twice_in_one_shard(tmp_path: Path) -> None:
    shards = {f"{n}.tar": [("1.jpg", b"%d" % n), (f"own{n}.jpg", b"x")] for n in range(3)}
    store = make_store(tmp_path / "store", shards)
    summary = rewrite(store, manifest_of(store, range(6)), tmp_path / "out", options=RewriteOptions(shard_size=1 << 20))
    assert (summary.shared_keys, summary.shards) == (2, 3)
    assert [read_tar(tmp_path / "out" / f"{n:06d}.tar")[0] for n in range(3)] == [
        ("1.jpg", b"%d" % n) for n in range(3)
    ]
    assert verify(tmp_path / "out", store) == []


def test_a_gzip_store_becomes_plain_tars(tmp_path: Path) -> None:
    import gzip

    members = numbered(0, 30)
    write_tar(tmp_path / "plain.tar", members)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "0.tar").write_bytes(gzip.compress((tmp_path / "plain.tar").read_bytes()))
    store = indexed(tmp_path / "store")
    rewrite(store, manifest_of(store, range(30)), tmp_path / "out", options=RewriteOptions(shard_size=9000))
    assert read_set(tmp_path / "out") == members
    assert verify(tmp_path / "out", store) == []


def test_a_remote_store_is_rewritten_too(store: Index, tmp_path: Path) -> None:
    from shards.io import shard_set

    remote, _ = indexes.build(shard_set.resolve(f"pipe:cat {store.root}/{{00000..00002}}.tar", allow_pipe=True))
    rewrite(remote, manifest_of(remote, [0, 59]), tmp_path / "out")
    assert read_set(tmp_path / "out") == samples_of(store, [0, 59])
