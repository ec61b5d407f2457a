"""The rewrite: what is kept is there byte for byte, everything adds up, and nothing foreign is touched."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from shard_makers import indexed, make_store, manifest_of, numbered, read_set, samples_of, tree, write_tar

from shards.errors import Misuse, NoSpace, ShardError, ShardsChanged, Unfinished
from shards.indexing.index import Index
from shards.rewriting.copy import CopyTask
from shards.rewriting.finalize import RewritePlan, finalize
from shards.rewriting.marker import load_curated, refuse_unfinished
from shards.rewriting.plan import KEPT, NewShard
from shards.rewriting.rewrite import RewriteOptions, _plan_of, check_space, rewrite, source_slices
from shards.rewriting.verify import verify


@pytest.fixture
def store(tmp_path: Path) -> Index:
    """Three shards of 20 samples."""
    shards = {f"part/{n:05d}.tar": numbered(20 * n, 20) for n in range(3)}
    return make_store(tmp_path / "store", shards)


def test_what_is_kept_is_there_byte_for_byte_and_in_order(store: Index, tmp_path: Path) -> None:
    rows = [0, 1, 5, 19, 20, 21, 40, 58, 59]
    summary = rewrite(store, manifest_of(store, rows), tmp_path / "out")
    assert read_set(tmp_path / "out") == samples_of(store, rows)
    assert summary.counts == {"in": 60, "kept": 9, "pruned": 51, "undecodable": 0, "imageless": 0, "unsafe": 0}
    assert verify(tmp_path / "out", store) == []


def test_keeping_all_gives_the_same_blocks(store: Index, tmp_path: Path) -> None:
    """Shards of the store's own sizes: every new tar is the old one, but for the end blocks that `tarfile` adds."""
    size = max(shard.size for shard in store.shards)
    out = tmp_path / "out"
    rewrite(store, manifest_of(store, range(60)), out, options=RewriteOptions(shard_size=10 * size))
    (path,) = out.glob("*.tar")
    parts = [Path(store.path(number)).read_bytes()[: _end(store, number)] for number in range(3)]
    assert path.read_bytes() == b"".join(parts) + bytes(1024)


def _end(store: Index, number: int) -> int:
    last = store.rows(number)[-1]
    return int(store.table["offset"][last].as_py() + store.table["size"][last].as_py())


def test_the_curated_index_is_what_indexing_the_folder_gives(store: Index, tmp_path: Path) -> None:
    out = tmp_path / "out"
    rewrite(store, manifest_of(store, range(0, 60, 2)), out, options=RewriteOptions(shard_size=9000))
    made, found = load_curated(out), indexed(out)
    assert made.shards == found.shards
    assert len(made.shards) > 3
    for name in found.table.column_names:
        assert made.table[name].to_pylist() == found.table[name].to_pylist(), name
    table = pq.read_table(out / "index.parquet")
    assert table["source_key"].to_pylist() == store.table["key"].take(pa.array(range(0, 60, 2))).to_pylist()
    assert table["source_shard"][0].as_py() == "part/00000.tar" or table["source_shard"][0].as_py() == "00000.tar"


def test_one_and_two_workers_and_a_second_run_write_the_same_tree(store: Index, tmp_path: Path) -> None:
    manifest = manifest_of(store, range(0, 60, 3))
    for name, workers in (("a", 1), ("b", 2), ("c", 1)):
        rewrite(store, manifest, tmp_path / name, options=RewriteOptions(shard_size=9000, workers=workers))
    assert tree(tmp_path / "a") == tree(tmp_path / "b") == tree(tmp_path / "c")


def test_a_finished_folder_is_left_as_it_is(store: Index, tmp_path: Path) -> None:
    manifest, out = manifest_of(store, [1, 2]), tmp_path / "out"
    first = rewrite(store, manifest, out)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert rewrite(store, manifest, out) == first
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_another_plan_into_a_finished_folder_is_refused(store: Index, tmp_path: Path) -> None:
    rewrite(store, manifest_of(store, [1, 2]), tmp_path / "out")
    with pytest.raises(Misuse, match="holds another finished curated set; choose another --out"):
        rewrite(store, manifest_of(store, [1]), tmp_path / "out")


def test_leftovers_of_a_larger_plan_do_not_survive(store: Index, tmp_path: Path) -> None:
    out = tmp_path / "out"
    rewrite(store, manifest_of(store, range(60)), out, options=RewriteOptions(shard_size=5000))
    (out / "curated.json").rename(out / "unfinished.json")  # as if killed just before the marker
    (out / ".000002.tar.partial").write_bytes(b"cut")
    rewrite(store, manifest_of(store, [3]), out, options=RewriteOptions(shard_size=5000))
    rewrite(store, manifest_of(store, [3]), tmp_path / "fresh", options=RewriteOptions(shard_size=5000))
    assert tree(out) == tree(tmp_path / "fresh")


@pytest.mark.parametrize("name", ["notes.txt", "000000.tar", "index.parquet"])
def test_a_foreign_folder_is_refused_and_untouched(store: Index, tmp_path: Path, name: str) -> None:
    """A folder of tars with an index might be a store: without our mark it is not ours."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    with pytest.raises(Misuse, match=f"holds something else \\({name}\\)"):
        rewrite(store, manifest_of(store, [1]), tmp_path / "out")
    assert tree(tmp_path / "out") == {name: b"mine"}


@pytest.mark.parametrize("place", ["store/part/out", "store/part", "."])
def test_output_inside_input_and_input_inside_output_are_refused(store: Index, tmp_path: Path, place: str) -> None:
    with pytest.raises(Misuse, match="output and store lie in one another"):
        rewrite(store, manifest_of(store, [1]), tmp_path / place)


def test_output_inside_input_behind_a_link_is_refused(store: Index, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store.root)
    with pytest.raises(Misuse, match="lie in one another"):
        rewrite(store, manifest_of(store, [1]), tmp_path / "link" / "out")


def test_a_changed_store_is_refused_before_anything_is_written(store: Index, tmp_path: Path) -> None:
    path = Path(store.path(1))
    data = bytearray(path.read_bytes())
    data[0:1] = b"9"  # the first name
    data[148:156] = b"%06o\0 " % (sum(data[:148]) + 8 * 32 + sum(data[156:512]))
    path.write_bytes(data)
    with pytest.raises(ShardsChanged, match=r"00001\.tar: headers changed since it was indexed \(expected checksum"):
        rewrite(store, manifest_of(store, range(60)), tmp_path / "out")
    path.write_bytes(bytes(data) + b"more")
    with pytest.raises(ShardsChanged, match=f"size changed .*expected {len(data)} bytes, found {len(data) + 4} bytes"):
        rewrite(store, manifest_of(store, range(60)), tmp_path / "out")
    path.unlink()
    with pytest.raises(ShardsChanged, match="found no file"):
        rewrite(store, manifest_of(store, range(60)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_kept_is_an_error(store: Index, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="nothing is kept"):
        rewrite(store, manifest_of(store, []), tmp_path / "out")


def test_a_place_that_cannot_be_written_is_named(store: Index, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ShardError, match=r"out: cannot write \(Not a directory\); mend that and run the same"):
        rewrite(store, manifest_of(store, [1]), tmp_path / "file" / "out")


def test_a_set_that_does_not_add_up_is_never_finished(store: Index, tmp_path: Path) -> None:
    """As if one sample that was planned had not been written."""
    out, outcome = tmp_path / "out", np.full(60, KEPT, dtype=np.uint8)
    work = _plan_of(store, outcome, RewriteOptions())
    work, shard = replace(work, kept=work.kept[:-1]), NewShard(0, np.arange(59))
    copied = [CopyTask(store.root, str(out))((0, source_slices(store, work, shard)))]
    with pytest.raises(ShardError, match=r"00002\.tar: samples do not add up \(expected 20, found 19 = kept"):
        finalize(store, manifest_of(store, range(60)), out, work, [shard], copied)
    assert not (out / "curated.json").exists()


def test_too_small_a_disk_is_told_with_both_numbers(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(NoSpace, match=rf"disk is too small \(expected {2 * free} bytes, found \d+\)"):
        check_space(tmp_path / "not" / "there", 2 * free)
    check_space(tmp_path, 1)


def test_undecodable_imageless_and_unsafe_samples_are_told_apart(tmp_path: Path) -> None:
    members = [("a.jpg", b"good"), ("b.jpg", b"bad"), ("c.json", b"{}"), ("../d.jpg", b"out"), ("e.jpg", b"pruned")]
    store = make_store(tmp_path / "store", {"0.tar": members, "1.tar": [("f.jpg", b"good")]})
    manifest, broken = manifest_of(store, [0, 1, 2, 3, 5]), np.array([1])
    drop = rewrite(store, manifest, tmp_path / "drop", undecodable=broken)
    assert drop.counts == {"in": 6, "kept": 2, "pruned": 1, "undecodable": 1, "imageless": 1, "unsafe": 1}
    assert [name for name, _ in read_set(tmp_path / "drop")] == ["a.jpg", "f.jpg"]
    keep = rewrite(store, manifest, tmp_path / "keep", undecodable=broken, options=RewriteOptions(undecodable="keep"))
    assert keep.counts == {"in": 6, "kept": 4, "pruned": 1, "undecodable": 0, "imageless": 0, "unsafe": 1}
    assert [name for name, _ in read_set(tmp_path / "keep")] == ["a.jpg", "b.jpg", "c.json", "f.jpg"]
    marker = json.loads((tmp_path / "drop" / "curated.json").read_text())
    assert marker["source"]["counts"]["0.tar"] == {
        "in": 5, "kept": 1, "pruned": 1, "undecodable": 1, "imageless": 1, "unsafe": 1
    }  # fmt: skip
    assert verify(tmp_path / "drop", store) == verify(tmp_path / "keep", store) == []


def test_webdataset_and_hugging_face_read_the_curated_set(
    store: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import warnings

    rewrite(store, manifest_of(store, range(0, 60, 2)), tmp_path / "out", options=RewriteOptions(shard_size=9000))
    paths = [str(path) for path in sorted((tmp_path / "out").glob("*.tar"))]
    expected = {name: body for name, body in read_set(tmp_path / "out") if name.endswith(".txt")}
    for name, value in (("HF_HUB_OFFLINE", "1"), ("HF_HOME", str(tmp_path / "hf"))):
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of these readers: files left open
        import datasets
        import webdataset

        found = list(webdataset.WebDataset(paths, shardshuffle=False))
        stream = datasets.load_dataset(
            "webdataset", data_files={"train": paths}, split="train", streaming=True, cache_dir=str(tmp_path / "cache")
        ).decode(False)
        theirs = {line["__key__"]: line["txt"] for line in stream}
    assert {f"{sample['__key__']}.txt": sample["txt"] for sample in found} == expected
    assert {f"{key}.txt": text.encode() if isinstance(text, str) else text for key, text in theirs.items()} == expected


def test_a_folder_without_its_marker_is_refused_by_readers(store: Index, tmp_path: Path) -> None:
    out = tmp_path / "out"
    rewrite(store, manifest_of(store, [1]), out)
    refuse_unfinished(out)
    refuse_unfinished(tmp_path)
    (out / "curated.json").rename(out / "unfinished.json")
    for reader in (load_curated, refuse_unfinished, verify):
        with pytest.raises(Unfinished, match=r"no curated\.json"):
            reader(out)


def test_the_pieces_of_a_plan_travel_small(store: Index) -> None:
    """A task for another process takes its own samples along and not the whole index."""
    import pickle

    large = replace(store, table=pa.concat_tables([store.table] * 500).combine_chunks())
    work = RewritePlan("", np.zeros(0, np.uint8), np.arange(60), None, 1)
    draws = source_slices(large, work, NewShard(0, np.arange(10)))
    assert len(pickle.dumps(draws)) < 10_000


keys = st.text("ab.é/_-", min_size=1, max_size=12).filter(lambda key: not key.startswith("/"))
member = st.tuples(keys, st.sampled_from(["jpg", "json", "PNG", "left.jpg"]), st.binary(max_size=1200))


@settings(max_examples=25, deadline=None)
@given(shards=st.lists(st.lists(member, min_size=1, max_size=8), min_size=1, max_size=3), data=st.data())
def test_any_store_and_any_choice_add_up_and_verify(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[tuple[str, str, bytes]]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for number, members in enumerate(shards):
        named = [(f"{key}.{extension}", body) for key, extension, body in members]
        write_tar(folder / "store" / f"{number}.tar", named, tarfile.PAX_FORMAT)
    store = indexed(folder / "store")
    assume(len(store) > 0)
    safe = [row for row, key in enumerate(store.table["key"].to_pylist()) if ".." not in key.split("/")]
    assume(safe)
    chosen = data.draw(st.sets(st.integers(0, len(store) - 1))) | {data.draw(st.sampled_from(safe))}
    shard_size = data.draw(st.integers(1, 8000))
    options = RewriteOptions(shard_size=shard_size, undecodable="keep")
    summary = rewrite(store, manifest_of(store, chosen), folder / "out", options=options)
    assert summary.counts["in"] == len(store) == sum(summary.counts.values()) - summary.counts["in"]
    assert verify(folder / "out", store) == []
    assert os.listdir(folder / "out").count("unfinished.json") == 0
    made = load_curated(folder / "out")
    assert pc.count_distinct(made.table["key"]).as_py() == len(made) - summary.shared_keys
    found = indexed(folder / "out")
    assert made.shards == found.shards
    assert made.table.to_pydict() == found.table.to_pydict()
