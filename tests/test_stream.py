"""Streaming: the order given, for any number of workers, from what the index holds; early ends leave nothing behind."""

from __future__ import annotations

import gzip
import io
import multiprocessing
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_makers import indexed, make_store, numbered, read_set, write_tar

from shards.errors import Misuse, ShardError, ShardsChanged
from shards.indexing import index as indexes
from shards.indexing.index import Index
from shards.io import shard_set
from shards.io.byte_ranges import OpenShards, read_ranges
from shards.shuffle import epoch_order
from shards.stream import image_batches, is_streamed, samples, streamed_order

MEMBERS = {f"{n}.tar": numbered(20 * n, 20) for n in range(3)}
IMAGES = [body for members in MEMBERS.values() for name, body in members if name.endswith(".jpg")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return make_store(tmp_path_factory.mktemp("store"), MEMBERS)


def brief(batch: list[dict[str, Any]]) -> list[tuple[int, str, bytes]]:
    """What tests look at; defined here so that a worker process finds it."""
    return [(sample["__row__"], sample["__key__"], sample["jpg"]) for sample in batch]


def batches_of(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def expected(batches: list[np.ndarray]) -> list[list[tuple[int, str, bytes]]]:
    return [[(row, f"{row:06d}", IMAGES[row]) for row in batch.tolist()] for batch in batches]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_come_in_the_order_given_for_any_number_of_workers(store: Index, workers: int) -> None:
    batches = batches_of(epoch_order(np.arange(60), 3, 1), 7)  # nine batches, the last of 4
    assert list(image_batches(store, batches, brief, workers=workers)) == expected(batches)


def test_a_sample_has_its_image_and_no_other_member(store: Index) -> None:
    (batch,) = image_batches(store, [np.array([21])], lambda batch: batch, workers=0)
    (sample,) = batch
    assert sample == {"__key__": "000021", "__url__": store.path(1), "__row__": 21, "jpg": IMAGES[21]}


def test_empty_batches_and_no_batches(store: Index) -> None:
    assert list(image_batches(store, [], brief, workers=0)) == []
    empty, some = np.zeros(0, np.int64), np.array([5])
    assert list(image_batches(store, [empty, some, empty], brief, workers=0)) == expected([empty, some, empty])


def test_rows_may_come_twice(store: Index) -> None:
    batches = [np.array([3, 3]), np.array([3])]
    assert list(image_batches(store, batches, brief, workers=0)) == expected(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_closing_early_ends_the_workers_and_closes_the_files(store: Index, workers: int) -> None:
    before = set(os.listdir("/proc/self/fd"))
    children = set(multiprocessing.active_children())
    stream = image_batches(store, batches_of(np.arange(60), 2), brief, workers=workers)
    assert next(stream) == expected([np.array([0, 1])])[0]
    stream.close()
    assert set(multiprocessing.active_children()) == children
    shards = {
        fd for fd in set(os.listdir("/proc/self/fd")) - before if "tar" in os.path.realpath(f"/proc/self/fd/{fd}")
    }
    assert shards == set()


def test_negative_workers_are_refused(store: Index) -> None:
    with pytest.raises(Misuse, match="expected at least 0, found -1"):
        next(image_batches(store, [np.array([1])], brief, workers=-1))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_cut_since_it_was_indexed_is_named_in_one_line(tmp_path: Path, workers: int) -> None:
    store = make_store(tmp_path, {"0.tar": numbered(0, 4)})
    os.truncate(tmp_path / "0.tar", 1000)
    with pytest.raises(
        ShardsChanged, match=r"0\.tar: ends before its index says \(expected at least \d+ bytes, found 1000\)"
    ) as error:
        list(image_batches(store, [np.arange(4)], brief, workers=workers))
    assert "\n" not in str(error.value)


def test_a_shard_that_is_gone_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"0.tar": numbered(0, 1)})
    (tmp_path / "0.tar").unlink()
    with pytest.raises(ShardsChanged, match=r"0\.tar: the shard is gone"):
        list(image_batches(store, [np.arange(1)], brief, workers=0))


def test_a_sample_without_an_image_has_none(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"0.tar": [("a.json", b"{}"), ("b.JPG", b"image")]})
    (batch,) = image_batches(store, [np.arange(2)], lambda batch: batch, workers=0)
    assert [sorted(set(sample) - {"__key__", "__url__", "__row__"}) for sample in batch] == [[], ["jpg"]]


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"x%d" % number)
    with OpenShards(max_open=2) as files:
        for number in (0, 1, 2, 3, 4, 0):
            assert files.read(str(tmp_path / str(number)), 0, 2) == b"x%d" % number
            assert (
                sum(str(tmp_path) in os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")) <= 2
            )


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300), draw=st.data())
def test_ranges_of_a_stream_are_those_of_the_bytes(data: bytes, draw: st.DataObject) -> None:
    ranges = draw.draw(st.lists(st.tuples(st.integers(0, len(data)), st.integers(0, 300)), max_size=8))
    ranges = sorted((offset, min(size, len(data) - offset)) for offset, size in ranges)
    found = read_ranges(io.BytesIO(data), "s", [offset for offset, _ in ranges], [size for _, size in ranges])
    assert list(found) == [data[offset : offset + size] for offset, size in ranges]


def test_a_stream_that_ends_early_is_named() -> None:
    with pytest.raises(
        ShardsChanged, match=r"s\.tar: ends before its index says \(expected at least 9 bytes, found 5\)"
    ):
        list(read_ranges(io.BytesIO(b"12345"), "s.tar", [2], [7]))


@pytest.fixture
def piped(store: Index, tmp_path: Path) -> tuple[Index, Path]:
    """The store behind pipes that note, in a file, each time they are opened."""
    log = tmp_path / "log"
    spec = f"pipe:echo >> {log}; cat {store.root}/{{0..2}}.tar"
    index, _ = indexes.build(shard_set.resolve(spec, allow_pipe=True))
    log.unlink()
    return index, log


def test_remote_shards_are_opened_once_in_their_order_and_only_where_something_is_kept(
    piped: tuple[Index, Path],
) -> None:
    index, log = piped
    rows = np.concatenate([np.arange(0, 20, 3), np.arange(41, 60)])  # nothing of the second shard
    order = streamed_order(index, rows, 5, 1)
    assert np.array_equal(np.sort(order), rows)
    batches = batches_of(order, 4)
    assert list(image_batches(index, batches, brief, workers=1)) == expected(batches)
    assert len(log.read_text()) == 2
    assert is_streamed(index)


def test_remote_shards_come_right_in_any_order(piped: tuple[Index, Path]) -> None:
    batches = [np.array([59, 0]), np.array([30, 1])]
    assert list(image_batches(piped[0], batches, brief, workers=2)) == expected(batches)


def test_a_remote_store_that_fails_is_named_in_one_line(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", MEMBERS["0.tar"])
    index, _ = indexes.build(shard_set.resolve(f"pipe:cat {tmp_path}/{{0..0}}.tar 2>/dev/null", allow_pipe=True))
    (tmp_path / "0.tar").unlink()
    with pytest.raises(ShardError, match=r"0\.tar 2>/dev/null: (cannot be read|ends before)") as error:
        list(image_batches(index, [np.arange(3)], brief, workers=0))
    assert "\n" not in str(error.value)


def test_a_remote_store_may_be_left_early(piped: tuple[Index, Path]) -> None:
    stream = image_batches(piped[0], [np.array([0]), np.array([1])], brief, workers=1)
    assert next(stream) == expected([np.array([0])])[0]
    stream.close()


def test_a_file_url_is_the_local_store(store: Index) -> None:
    index, _ = indexes.build(shard_set.resolve(f"file://{store.root}/{{0..2}}.tar"))
    assert list(image_batches(index, [np.array([50])], brief, workers=0)) == expected([np.array([50])])


def test_a_remote_whole_sample_has_all_members(piped: tuple[Index, Path]) -> None:
    (sample,) = samples(piped[0], np.array([30]))
    assert (sample["jpg"], sample["txt"]) == (IMAGES[30], b"caption 30")


def test_gzip_shards_are_streamed(tmp_path: Path) -> None:
    write_tar(tmp_path / "plain", MEMBERS["1.tar"])
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "1.tgz").write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
    index = indexed(tmp_path / "store")
    order = streamed_order(index, np.arange(20), 1, 1)
    found = list(image_batches(index, [order], brief, workers=0))
    assert found == [[(row, f"{row + 20:06d}", IMAGES[row + 20]) for row in order.tolist()]]
    assert [sample["txt"] for sample in samples(index, np.array([3, 1]))] == [b"caption 23", b"caption 21"]
    assert is_streamed(index)


def test_a_cut_gzip_gives_what_its_index_has_and_then_ends(tmp_path: Path) -> None:
    write_tar(tmp_path / "plain", MEMBERS["1.tar"])
    (tmp_path / "store").mkdir()
    packed = gzip.compress((tmp_path / "plain").read_bytes())
    (tmp_path / "store" / "1.tgz").write_bytes(packed[: len(packed) // 2])
    index = indexed(tmp_path / "store")
    assert 0 < len(index) < 20
    (found,) = image_batches(index, [np.arange(len(index))], brief, workers=0)
    assert [image for _, _, image in found] == IMAGES[20 : 20 + len(index)]
    (tmp_path / "store" / "1.tgz").write_bytes(packed[:100])
    with pytest.raises(ShardsChanged, match=r"1\.tgz: ends before its index says"):
        list(image_batches(index, [np.arange(len(index))], brief, workers=0))


def test_whole_samples_come_with_all_members(store: Index) -> None:
    assert not is_streamed(store)
    found = {f"{s['__key__']}.{e}": s[e] for s in samples(store, np.arange(60)) for e in ("jpg", "txt")}
    assert found == dict(read_set(Path(store.root)))


def test_whole_samples_follow_webdataset_where_it_is_right(store: Index) -> None:
    """Same keys, same bytes as webdataset's own reader on a healthy store."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # webdataset leaves files open
        import webdataset

        paths = [store.path(number) for number in range(3)]
        theirs = [dict(sample) for sample in webdataset.WebDataset(paths, shardshuffle=False)]
        ours = list(samples(store, np.arange(60)))
    names_of = ("__key__", "jpg", "txt")
    assert [[s[n] for n in names_of] for s in ours] == [[s[n] for n in names_of] for s in theirs]


def test_members_apart_links_and_twins_of_a_sample_are_read(tmp_path: Path) -> None:
    """Apart: regrouped. A hard link: its target's bytes. An extension twice: the last. A symbolic link: not there."""
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        lines = [
            ("0.jpg", b"a", ""),
            ("1.jpg", b"b", ""),
            ("0.txt", b"c", ""),
            ("1.txt", b"d", ""),
            ("1.txt", b"e", ""),
        ]
        for name, body, link in [*lines, ("2.jpg", b"", "0.jpg"), ("2.png", b"", "->1.jpg")]:
            member = tarfile.TarInfo(name)
            member.size = len(body)
            if link:
                member.type = tarfile.SYMTYPE if link.startswith("->") else tarfile.LNKTYPE
                member.linkname = link.removeprefix("->")
            tar.addfile(member, io.BytesIO(body))
    found = list(samples(indexed(tmp_path), np.arange(3)))
    bodies = [{name: body for name, body in sample.items() if not name.startswith("__")} for sample in found]
    assert bodies == [{"jpg": b"a", "txt": b"c"}, {"jpg": b"b", "txt": b"e"}, {"jpg": b"a"}]


def test_the_index_is_not_copied_for_a_row(store: Index) -> None:
    """Taking rows costs by the rows: 200 batches of a store of 300,000 rows; a copy each would be 200 * 20 MB."""
    table = pa.concat_tables([store.table] * 5000).combine_chunks()
    large = Index(store.root, store.shards, table)
    rows = np.arange(0, 1000)
    assert sum(len(batch) for batch in image_batches(large, batches_of(rows, 5), brief, workers=0)) == 1000


def test_nothing_of_shards_imports_torch() -> None:
    """So that shards can be pruned and rewritten without it; webdataset, which needs it, is imported on call."""
    import subprocess
    import sys

    parts = "from shards import stream, store; from shards.rewriting import rewrite, verify, exports, manifest"
    told = "print('torch' in sys.modules, 'webdataset' in sys.modules)"
    code = f"import sys; {parts}; from shards.packing import imagefolder; {told}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False False\n"
