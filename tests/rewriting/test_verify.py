"""Verification: silent on a sound folder, and for every kind of damage a line that names it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from index_makers import picture
from shard_makers import make_store, manifest_of, numbered

from shards.errors import ShardError, Unfinished
from shards.indexing import index
from shards.indexing.index import Index
from shards.io import shard_set
from shards.rewriting.marker import hash_file, read_marker
from shards.rewriting.rewrite import RewriteOptions, rewrite
from shards.rewriting.verify import verify

PNG = picture()


@pytest.fixture
def store(tmp_path: Path) -> Index:
    return make_store(tmp_path / "store", {f"{n}.tar": numbered(10 * n, 10) for n in range(2)})


@pytest.fixture
def curated(store: Index, tmp_path: Path) -> Path:
    rewrite(store, manifest_of(store, range(0, 20, 2)), tmp_path / "out", options=RewriteOptions(shard_size=6000))
    return tmp_path / "out"


def rehash(folder: Path, name: str) -> None:
    """Make the marker agree with a file that a test changed, so that the next check is reached."""
    marker = unsigned(folder)
    entry = asdict(hash_file(folder / name))
    for shard in marker["shards"]:
        if shard["name"] == name:
            shard.update(entry)
    if name in marker["files"]:
        marker["files"][name] = entry
    (folder / "curated.json").write_text(json.dumps(marker))


def unsigned(folder: Path) -> dict[str, Any]:
    """The marker as it was before it had a checksum."""
    marker: dict[str, Any] = json.loads((folder / "curated.json").read_text())
    marker.pop("checksum", None)
    return marker


def changed(value: Any) -> Iterator[Any]:
    """A JSON value with one of its leaves, each in turn, changed."""
    if isinstance(value, dict | list):
        for place in value if isinstance(value, dict) else range(len(value)):
            for other in changed(value[place]):
                copy = value.copy()
                copy[place] = other
                yield copy
    else:
        yield value + 1 if isinstance(value, int) else value[:-1] + ("0" if value[-1] != "0" else "1")


def edit(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def edit_table(path: Path, change: object) -> None:
    table = pq.read_table(path)
    pq.write_table(change(table), path)  # type: ignore[operator]


def test_a_sound_folder_has_no_fault(curated: Path, store: Index) -> None:
    assert verify(curated) == []
    assert verify(curated, store) == []


def test_two_workers_find_what_one_finds(curated: Path, store: Index) -> None:
    edit(curated / "000000.tar", 512, b"\x00" if (curated / "000000.tar").read_bytes()[512] else b"\x01")
    rehash(curated, "000000.tar")
    assert verify(curated, store, workers=2) == ["0.tar, 000000: bytes differ from the store's"]


def test_a_folder_without_marker_is_refused(curated: Path) -> None:
    (curated / "curated.json").unlink()
    with pytest.raises(Unfinished, match=r"out: no curated\.json, so this is no finished curated set; run the same"):
        verify(curated)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"curated\.json: damaged"),
        ('{"version": 99}', r"unknown format \(expected version 1, found 99\)"),
        ("[]", "damaged"),
    ],
)
def test_a_marker_that_cannot_be_read_is_refused(curated: Path, text: str, message: str) -> None:
    (curated / "curated.json").write_text(text)
    with pytest.raises(ShardError, match=message):
        read_marker(curated)


def test_one_changed_byte_is_found(curated: Path) -> None:
    edit(curated / "000001.tar", 600, b"\xff\xfe")
    (line,) = verify(curated)
    assert line.startswith("000001.tar: bytes differ (expected sha256 ")


def test_a_cut_a_missing_and_a_foreign_file_are_found(curated: Path) -> None:
    with open(curated / "000000.tar", "r+b") as file:
        file.truncate(1024)
    (curated / "000001.tar").unlink()
    (curated / "extra.tar").write_bytes(b"")
    lines = verify(curated)
    assert lines[0] == "extra.tar: is no part of this curated set; move it elsewhere"
    assert lines[1].startswith("000000.tar: size differs (expected ")
    assert lines[1].endswith("found 1024)") or lines[1].endswith("found 1024 bytes)") or "found 1024" in lines[1]
    assert lines[2] == "000001.tar: is missing"


@pytest.mark.parametrize("name", ["manifest.parquet", "index.parquet"])
def test_a_changed_table_is_found(curated: Path, name: str) -> None:
    edit_table(curated / name, lambda table: table.slice(1))
    assert any(line.startswith(name) for line in verify(curated))


def test_a_manifest_row_that_is_not_there_and_one_too_many_are_found(curated: Path) -> None:
    def swap(table: pa.Table) -> pa.Table:
        keys = table["key"].to_pylist()
        return table.set_column(1, "key", pa.array(["unknown", *keys[1:]]))

    edit_table(curated / "manifest.parquet", swap)
    rehash(curated, "manifest.parquet")
    assert verify(curated) == [
        "0.tar, unknown: in the manifest and not in the shards",
        "0.tar, 000000: in the shards and not in the manifest",
    ]


def test_a_manifest_row_that_is_there_twice_is_found(curated: Path) -> None:
    edit_table(curated / "manifest.parquet", lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    rehash(curated, "manifest.parquet")
    assert verify(curated) == ["0.tar, 000000: 2 times in the manifest"]


def test_an_index_that_is_not_the_shards_is_found(curated: Path) -> None:
    def shift(table: pa.Table) -> pa.Table:
        place = table.column_names.index("size")
        return table.set_column(
            place, table.schema.field("size"), pa.array([n + 512 for n in table["size"].to_pylist()])
        )

    edit_table(curated / "index.parquet", shift)
    rehash(curated, "index.parquet")
    (line,) = verify(curated)
    assert line.startswith("index.parquet: row 0 has another size than the shard (expected ")


def test_an_index_that_lacks_a_row_is_found(curated: Path) -> None:
    edit_table(curated / "index.parquet", lambda table: table.slice(0, 9))
    rehash(curated, "index.parquet")
    lines = verify(curated)
    assert "index.parquet: another number of samples than the shards (expected 10, found 9)" in lines
    assert "curated.json: summary.counts.kept is not what it should be (expected 9, found 10)" in lines


def test_bytes_that_are_not_the_stores_are_found_only_against_it(curated: Path, store: Index) -> None:
    """A body is changed and every checksum made to agree: only the store knows better."""
    edit(curated / "000000.tar", 512, b"\x00" if (curated / "000000.tar").read_bytes()[512] else b"\x01")
    rehash(curated, "000000.tar")
    assert verify(curated) == []
    assert verify(curated, store) == ["0.tar, 000000: bytes differ from the store's"]


def test_a_store_without_the_samples_is_told(curated: Path, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other", {"0.tar": numbered(0, 10), "1.tar": numbered(50, 3)})
    (line,) = verify(curated, other)
    assert line.startswith("1.tar, 000010: manifest names 5 samples that the store has not")


@pytest.mark.parametrize("name", ["sizes.json", "__len__", "shards.json"])
def test_counts_for_other_tools_are_checked(curated: Path, name: str) -> None:
    (curated / name).write_text("3")
    assert verify(curated) == [f"{name}: counts differ from the index"]
    (curated / name).write_text("")
    assert verify(curated) == [f"{name}: is missing or damaged"]


class TestMarker:
    """Every value in curated.json is held against something: a checksum, and what set and store say themselves."""

    @pytest.fixture
    def odd_store(self, tmp_path: Path) -> Index:
        """Two shards; images that do not decode, none at all, a hard link, a key that is in both."""
        folder = tmp_path / "odd"
        folder.mkdir()
        for number in range(2):
            with tarfile.open(folder / f"{number}.tar", "w") as file:
                for name, body in (("a.png", PNG), ("b.png", b"junk"), ("c.txt", b"x"), (f"{number}.png", PNG)):
                    member = tarfile.TarInfo(name)
                    member.size = len(body)
                    file.addfile(member, io.BytesIO(body))
                link = tarfile.TarInfo(f"link{number}.png")
                link.type, link.linkname = tarfile.LNKTYPE, "a.png"
                file.addfile(link)
        return index.build(shard_set.resolve(folder))[0]

    @pytest.mark.parametrize("rename", [False, True])
    @pytest.mark.parametrize("signed", [False, True])
    def test_every_changed_value_is_found(self, odd_store: Index, tmp_path: Path, rename: bool, signed: bool) -> None:
        wanted = [row for row, key in enumerate(odd_store.table["key"].to_pylist()) if key not in ("0", "b", "c")]
        options = RewriteOptions(shard_size=4000, rename=rename)
        rewrite(
            odd_store, manifest_of(odd_store, wanted), tmp_path / "out", undecodable=np.array([1, 6]), options=options
        )
        whole = json.loads((tmp_path / "out" / "curated.json").read_text())
        assert whole["summary"]["new_headers"] == (5 if rename else 2)
        assert whole["summary"]["shared_keys"] == (0 if rename else 1)
        assert verify(tmp_path / "out", odd_store) == []
        if not signed:
            del whole["checksum"]
            (tmp_path / "out" / "curated.json").write_text(json.dumps(whole))
            assert verify(tmp_path / "out", odd_store) == []
        others = list(changed(whole))
        assert len(others) > 40
        for marker in others:
            (tmp_path / "out" / "curated.json").write_text(json.dumps(marker))
            try:
                found = verify(tmp_path / "out", odd_store)
            except ShardError as error:
                found = [str(error)]
            assert found, marker
            assert not signed or "curated.json: " in found[0]

    @pytest.mark.parametrize("name", ["../../store/0.tar", "/etc/passwd", "x.tar"])
    def test_a_marker_names_only_files_of_its_set(self, curated: Path, name: str) -> None:
        marker = unsigned(curated)
        marker["shards"][0]["name"] = name
        (curated / "curated.json").write_text(json.dumps(marker))
        with pytest.raises(ShardError, match=r"curated\.json: damaged"):
            verify(curated)
