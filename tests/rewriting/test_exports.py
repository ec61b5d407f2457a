"""The small files for other tools, each held against a reading of the shards that is not ours."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from shard_makers import indexed, make_store, read_tar, write_tar

from shards.errors import ShardError
from shards.indexing.index import Index
from shards.rewriting import exports

UIDS = ["ffffffffffffffff0000000000000001", "0000000000000000ffffffffffffffff", "00000000000000010000000000000000"]


@pytest.fixture
def store(tmp_path: Path) -> Index:
    """Two shards of two and one samples; the last image has an upper-case name in a folder with a dot."""
    bodies = [json.dumps({"uid": uid, "caption": "x" * 600}).encode() for uid in UIDS]
    first = [("0.jpg", b"a" * 700), ("0.json", bodies[0]), ("1.jpg", b"b"), ("1.json", bodies[1])]
    second = [("README", b"no key"), ("v1.0/2.json", bodies[2]), ("v1.0/2.Left.JPG", b"c" * 512)]
    return make_store(tmp_path / "store", {"00000.tar": first, "sub/00001.tar": second})


def test_counts_are_those_open_clip_sums_up(store: Index, tmp_path: Path) -> None:
    """open_clip adds the numbers in sizes.json by shard name, or reads one number from __len__."""
    exports.write_counts(store, tmp_path)
    assert json.loads((tmp_path / "sizes.json").read_text()) == {"00000.tar": 2, "sub/00001.tar": 1}
    assert int((tmp_path / "__len__").read_text()) == 3


def test_the_wids_index_lists_file_samples_and_bytes(store: Index, tmp_path: Path) -> None:
    exports.write_counts(store, tmp_path)
    wids = json.loads((tmp_path / "shards.json").read_text())
    assert (wids["wids_version"], wids["__kind__"]) == (1, "wids-shard-index-v1")
    for shard, samples in zip(wids["shardlist"], (2, 1), strict=True):
        assert shard["nsamples"] == samples
        assert shard["filesize"] == (Path(store.root) / shard["url"]).stat().st_size


def test_dali_lines_point_to_the_bytes(store: Index, tmp_path: Path) -> None:
    """Read as DALI does: every four fields are a member; what lies at its offset is what `tarfile` reads there."""
    paths = exports.write_dali(store, tmp_path / "idx")
    assert [path.relative_to(tmp_path / "idx").as_posix() for path in paths] == ["00000.idx", "sub/00001.idx"]
    for path, shard, n_samples in zip(paths, ("00000.tar", "sub/00001.tar"), (2, 1), strict=True):
        data = (Path(store.root) / shard).read_bytes()
        first, *lines = path.read_text().splitlines()
        assert first == f"v1.2 {n_samples}"
        assert len(lines) == n_samples
        members = dict(read_tar(Path(store.root) / shard))
        fields = [line.split(" ")[k : k + 4] for line in lines for k in range(0, len(line.split(" ")), 4)]
        for extension, offset, size, name in fields:
            assert int(offset) % 512 == 0
            assert data[int(offset) : int(offset) + int(size)] == members[name]
            assert name.rpartition("/")[2].endswith("." + extension)
        assert {name for *_, name in fields} == {name for name in members if "." in name}
    assert "Left.JPG " in paths[1].read_text()


def test_dali_offsets_are_those_of_tarfile_behind_long_names(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", [("d" * 120 + "/" + "n" * 120 + ".jpg", b"x" * 600)], tarfile.PAX_FORMAT)
    _, line = exports.dali_lines(indexed(tmp_path), 0)
    with tarfile.open(tmp_path / "0.tar") as tar:
        assert int(line.split()[1]) == tar.getmembers()[0].offset_data


def test_names_with_white_space_are_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"0.tar": [("a b.jpg", b"x")]})
    with pytest.raises(ShardError, match=r"0\.tar, a b\.jpg: DALI takes no name with white space"):
        list(exports.dali_lines(store, 0))


def test_gzip_shards_are_refused_for_dali(tmp_path: Path) -> None:
    import gzip

    write_tar(tmp_path / "a", [("0.jpg", b"x")])
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "0.tgz").write_bytes(gzip.compress((tmp_path / "a").read_bytes()))
    with pytest.raises(ShardError, match="DALI reads no gzip shards; rewrite the store"):
        exports.write_dali(indexed(tmp_path / "store"), tmp_path / "idx")


def test_datacomp_uids_are_sorted_pairs_of_64_bits(store: Index, tmp_path: Path) -> None:
    """Sorted as 128-bit numbers, by Python's own; DataComp's tools search the array by halving."""
    assert exports.write_datacomp(store, tmp_path / "uids.npy") == 3
    found = np.load(tmp_path / "uids.npy", allow_pickle=False)
    assert found.dtype == np.dtype("u8,u8")
    whole = [int(high) << 64 | int(low) for high, low in found.tolist()]
    assert whole == sorted(int(uid, 16) for uid in UIDS)


@pytest.mark.parametrize(
    "body", [b"{}", b"no json", b'{"uid": 5}', b'{"uid": "12"}', b'{"uid": "' + b"g" * 32 + b'"}', b"[1]"]
)
def test_a_sample_without_a_good_uid_is_named(tmp_path: Path, body: bytes) -> None:
    store = make_store(tmp_path, {"0.tar": [("7.jpg", b"x"), ("7.json", body)]})
    with pytest.raises(ShardError, match=r"0\.tar, 7: no uid \(expected a json member with a uid of 32 hex digits"):
        exports.datacomp_uids(store)


def test_a_sample_without_json_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"0.tar": [("7.jpg", b"x")]})
    with pytest.raises(ShardError, match="7: no uid"):
        exports.datacomp_uids(store)


def test_a_crafted_index_writes_nothing_outside_the_folder(store: Index, tmp_path: Path) -> None:
    shards = tuple(replace(shard, path="../" + shard.path) for shard in store.shards)
    with pytest.raises(ShardError, match=r"\.\./00000\.tar: would be written outside the folder"):
        exports.write_dali(Index(store.root, shards, store.table), tmp_path / "idx")
