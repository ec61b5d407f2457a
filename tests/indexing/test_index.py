"""The index over all shards: the same for any number of workers, saved and loaded, held against the shards now."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_makers import THREE, indexed, kinds, put
from strategies import tar_of

from shards.errors import Misuse, NoSpace, NotShards, RootDiffers, ShardError, ShardsChanged
from shards.indexing.drift import check_unchanged
from shards.indexing.index import SCHEMA, Index
from shards.indexing.index_file import load, save
from shards.io import remote
from shards.io.parallel import map_shards


class TestShards:
    def test_gzip_is_told_by_its_magic_and_offsets_count_uncompressed_bytes(self, tmp_path: Path) -> None:
        put(tmp_path / "plain", "0.tar", THREE)
        tar = (tmp_path / "plain" / "0.tar").read_bytes()
        (tmp_path / "packed").mkdir()
        (tmp_path / "packed" / "0.tar").write_bytes(gzip.compress(tar, mtime=0))
        plain, _ = indexed(tmp_path / "plain")
        packed, _ = indexed(tmp_path / "packed")
        assert packed.table.equals(plain.table)
        assert [packed.shards[0].gzip, plain.shards[0].gzip] == [True, False]
        check_unchanged(packed)

    def test_a_cut_gzip_stream_keeps_what_came_before_and_is_told(self, tmp_path: Path) -> None:
        body = random.Random(7).randbytes(200_000)
        tar = tar_of([("a.jpg", body), ("b.jpg", body)])
        (tmp_path / "0.tgz").write_bytes(gzip.compress(tar, mtime=0)[:300_000])
        index, report = indexed(tmp_path)
        assert index.table["key"].to_pylist() == ["a"]
        assert "truncated" in kinds(report)
        assert any("gzip stream is damaged" in fault.detail for fault in report.faults)

    def test_gzip_members_that_follow_one_another_are_one_stream(self, tmp_path: Path) -> None:
        tar = tar_of(THREE)
        packed = gzip.compress(tar[:2000], mtime=0) + gzip.compress(tar[2000:], mtime=0) + bytes(512)
        (tmp_path / "0.tgz").write_bytes(packed)
        index, report = indexed(tmp_path)
        assert (len(index), kinds(report)) == (3, [])

    def test_a_remote_shard_is_streamed(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", THREE)
        index, _ = indexed(f"pipe:cat {tmp_path}/0.tar", allow_pipe=True)
        assert index.table.equals(indexed(tmp_path)[0].table)
        with pytest.raises(NotShards, match="the command ends with status 1"):
            indexed(f"pipe:cat {tmp_path}/0.tar; exit 1", allow_pipe=True)

    def test_a_pipe_that_is_not_read_to_its_end_is_no_failure(self, tmp_path: Path) -> None:
        (tmp_path / "big").write_bytes(bytes(1 << 20))
        with remote.open_url(f"pipe:cat {tmp_path}/big") as stream:
            assert stream.read(3) == bytes(3)

    def test_the_command_of_a_pipe_ends_with_the_generator_that_reads_it(self) -> None:
        def first_lines() -> Iterator[bytes]:
            with remote.open_url("pipe:echo $$; sleep 1000 & sleep 1000") as stream:
                yield from stream

        lines = first_lines()
        shell = int(next(lines))
        lines.close()  # type: ignore[attr-defined]
        with pytest.raises(ProcessLookupError):
            os.kill(shell, 0)

    def test_a_remote_shard_that_cannot_be_opened_says_so(self) -> None:
        with pytest.raises(NotShards, match=r"0\.tar: cannot be opened \(Protocol not known: nowhere\)"):
            indexed("nowhere://x/0.tar")
        with pytest.raises(NotShards, match=r"cannot be listed .*; name the shards by a pattern"):
            indexed("nowhere://x/")

    def test_what_fsspec_opens_is_indexed_and_listed(self, tmp_path: Path) -> None:
        put(put(tmp_path, "a/0.tar", THREE), "b/1.tar", THREE[2:])
        (tmp_path / "a" / "side.json").write_text("{}")
        index, _ = indexed(f"local://{tmp_path}/")
        assert [shard.path for shard in index.shards] == ["a/0.tar", "b/1.tar"]
        assert len(index) == 5

    def test_shards_that_are_no_tars_are_all_named_and_nothing_comes_of_them(self, tmp_path: Path) -> None:
        put(tmp_path, "1.tar", THREE)
        (tmp_path / "0.tar").write_bytes(b"")
        (tmp_path / "2.tar").write_bytes(b"PK\x03\x04" + bytes(600))
        with pytest.raises(NotShards, match=r"0.tar: 0 bytes.*2.tar: not a tar archive: a zip.*--skip-bad-shards"):
            indexed(tmp_path)
        index, report = indexed(tmp_path, skip_bad=True)
        assert [shard.path for shard in index.shards] == ["1.tar"]
        assert kinds(report)[:2] == ["truncated", "not-a-tar"]

    def test_where_no_shard_is_a_tar_there_is_nothing_to_go_on_with(self, tmp_path: Path) -> None:
        (tmp_path / "0.tar").write_bytes(b"")
        with pytest.raises(NotShards, match=r"0.tar: 0 bytes, not a tar archive"):
            indexed(tmp_path, skip_bad=True)

    def test_an_uncompressed_copy_without_room_says_where_to_make_some(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Every write to this device fails as on a full disk.
        monkeypatch.setattr("tempfile.TemporaryFile", lambda: io.FileIO("/dev/full", "r+"))
        (tmp_path / "0.tgz").write_bytes(gzip.compress(tar_of(THREE), mtime=0))
        with pytest.raises(NoSpace, match=r"0.tgz: no space for an uncompressed copy; make room in"):
            indexed(tmp_path)

    def test_an_empty_shard_keeps_its_place(self, tmp_path: Path) -> None:
        put(put(put(tmp_path, "0.tar", THREE), "1.tar", []), "2.tar", THREE)
        index, report = indexed(tmp_path)
        assert [list(index.rows(number)) for number in range(3)] == [[0, 1, 2], [], [3, 4, 5]]
        assert kinds(report).count("empty-shard") == 1
        assert index.shard_numbers.tolist() == [0, 0, 0, 2, 2, 2]

    def test_the_index_is_the_same_file_for_any_number_of_workers(self, tmp_path: Path) -> None:
        for number in range(5):
            put(tmp_path / "s", f"{number}.tar", THREE[number % 2 :])
        for workers in (1, 2):
            index, report = indexed(tmp_path / "s", workers=workers, check=True)
            save(index, tmp_path / f"{workers}.parquet")
            (tmp_path / f"{workers}.json").write_text(json.dumps(report.record()))
        assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()
        assert (tmp_path / "1.json").read_text() == (tmp_path / "2.json").read_text()

    def test_no_workers_at_all_is_misuse(self) -> None:
        with pytest.raises(Misuse, match=r"number of workers is too small \(expected at least 1, found 0\)"):
            list(map_shards(str, [1], 0))


class TestPassedOver:
    def test_what_a_folder_holds_besides_is_told(self, tmp_path: Path) -> None:
        put(tmp_path / "s", "0.tar", THREE)
        put(tmp_path / "elsewhere", "1.tar", THREE)
        (tmp_path / "s" / "link").symlink_to(tmp_path / "elsewhere")
        unread = ("2.tar.zst", "3.tar.bz2", "4.TAR.XZ", "6.txz")
        for name in (*unread, "0.tar.md5", "0.json", ".x.tar", "more/tar", "more/y.tar.partial"):
            (tmp_path / "s" / name).parent.mkdir(exist_ok=True)
            (tmp_path / "s" / name).write_bytes(b"")
        os.mkfifo(tmp_path / "s" / "pipe.tar")
        put(tmp_path / "s" / ".new.partial", "0.tar", THREE)  # what a killed `pack` leaves
        index, report = indexed(tmp_path / "s")
        assert len(index) == 3
        told = {
            (fault.shard, fault.detail.removesuffix(", so nothing of it is in the index")) for fault in report.faults
        }
        assert told == {
            ("link", "is a linked folder"),
            ("pipe.tar", "is a special file"),
            *((name, f"{name} is not read: unpack it, or compress it with gzip") for name in unread),
        }
        assert report.record()["passed_over"] == {
            "linked_folders": ("link",),
            "unreadable_folders": (),
            "special_files": ("pipe.tar",),
            "unread": unread,
            "hidden_folders": 1,
            "hidden_files": 1,
            "others": {"": 1, ".json": 1, ".tar.md5": 1, ".tar.partial": 1},
        }

    def test_a_folder_without_a_shard_names_what_may_have_been_meant(self, tmp_path: Path) -> None:
        (tmp_path / "0.tar.zst").write_bytes(b"")
        expected = r"found none; passed over 1 unread shard \(0.tar.zst\)"
        with pytest.raises(NotShards, match=expected):
            indexed(tmp_path)

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        """Opening it would wait for a writer."""
        os.mkfifo(tmp_path / "0.tar")
        with pytest.raises(NotShards, match=r"0\.tar: .*no regular file"):
            indexed(tmp_path / "0.tar")


class TestFile:
    def test_an_index_comes_back_as_it_was_saved(self, tmp_path: Path) -> None:
        put(put(tmp_path, "s/0.tar", THREE), "s/1.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3")])
        index, _ = indexed(tmp_path / "s")
        save(index, tmp_path / "elsewhere.parquet")
        back = load(tmp_path / "elsewhere.parquet", index.root)
        assert (back.root, back.shards) == (index.root, index.shards)
        assert back.table.equals(index.table)
        assert back.table.schema.equals(SCHEMA)
        assert back.fingerprint == index.fingerprint
        assert back.shard_numbers.tolist() == index.shard_numbers.tolist()
        assert back.path(1) == str(tmp_path / "s" / "1.tar")

    def test_an_index_without_rows_comes_back(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", [])
        index, _ = indexed(tmp_path)
        save(index, tmp_path / "index.parquet")
        back = load(tmp_path / "index.parquet")
        assert (len(back), back.shards, list(back.rows(0))) == (0, index.shards, [])

    def test_an_index_in_the_folder_of_its_shards_moves_with_it(self, tmp_path: Path) -> None:
        put(tmp_path, "old/0.tar", THREE)
        save(indexed(tmp_path / "old")[0], tmp_path / "old" / "index.parquet")
        (tmp_path / "old").rename(tmp_path / "new")
        check_unchanged(load(tmp_path / "new" / "index.parquet"))
        assert str(tmp_path).encode() not in (tmp_path / "new" / "index.parquet").read_bytes()

    def test_an_index_of_shards_elsewhere_is_refused_with_both_places(self, tmp_path: Path) -> None:
        put(put(tmp_path, "old/0.tar", THREE), "new/0.tar", THREE)
        save(indexed(tmp_path / "old")[0], tmp_path / "index.parquet")
        for root, expected in ((None, tmp_path), (str(tmp_path / "new"), tmp_path / "new")):
            with pytest.raises(RootDiffers, match=rf"expected {expected}, found {tmp_path}/old\); index these shards"):
                load(tmp_path / "index.parquet", root)
        (tmp_path / "link").symlink_to("old")
        check_unchanged(load(tmp_path / "index.parquet", root=str(tmp_path / "link")))

    def test_an_index_in_its_folder_serves_a_copy_of_it_elsewhere(self, tmp_path: Path) -> None:
        """It names no root, and its shards are held against it."""
        put(tmp_path, "s/0.tar", THREE)
        save(indexed(tmp_path / "s")[0], tmp_path / "s" / "index.parquet")
        (tmp_path / "s" / "index.parquet").rename(tmp_path / "index.parquet")
        check_unchanged(load(tmp_path / "index.parquet", root=str(tmp_path / "s")))

    def test_the_fingerprint_knows_neither_place_nor_workers_but_every_header(self, tmp_path: Path) -> None:
        put(put(tmp_path, "a/0.tar", THREE), "b/0.tar", THREE)
        put(tmp_path, "c/0.tar", THREE, mtime=1)
        one, same, other = (indexed(tmp_path / name)[0].fingerprint for name in "abc")
        assert one == same != other
        assert indexed(tmp_path / "a", image="cls")[0].fingerprint != one

    def test_rows_are_plain_columns_that_any_reader_opens(self, tmp_path: Path) -> None:
        save(indexed(put(tmp_path, "0.tar", THREE))[0], tmp_path / "index.parquet")
        table = pq.read_table(tmp_path / "index.parquet")
        assert table.column_names == SCHEMA.names
        # 700 bytes take two blocks, one byte takes one; each header takes one: 5 blocks a sample.
        assert table["offset"].to_pylist() == [0, 2560, 5120]
        assert table["size"].to_pylist() == [2560] * 3
        assert table["image_offset"].to_pylist() == [512, 3072, 5632]

    def test_what_is_no_index_is_an_error_that_says_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(ShardError, match="no such index; make it with 'curate index'"):
            load(tmp_path / "gone.parquet")
        (tmp_path / "cut.parquet").write_bytes(b"PAR1")
        with pytest.raises(ShardError, match=r"cut.parquet: not a whole Parquet file .*; index the shards again"):
            load(tmp_path / "cut.parquet")
        pq.write_table(pa.table({"key": ["a"]}), tmp_path / "other.parquet")
        with pytest.raises(ShardError, match=r"other.parquet: not an index of shards"):
            load(tmp_path / "other.parquet")
        footer = {b"curate.index": b'{"version": 99}'}
        pq.write_table(pa.table({"key": ["a"]}).replace_schema_metadata(footer), tmp_path / "new.parquet")
        with pytest.raises(ShardError, match=r"unknown index format \(expected 1, found 99\)"):
            load(tmp_path / "new.parquet")
        footer = {b"curate.index": b"not json"}
        pq.write_table(pa.table({"key": ["a"]}).replace_schema_metadata(footer), tmp_path / "bad.parquet")
        with pytest.raises(ShardError, match=r"bad.parquet: its footer cannot be read"):
            load(tmp_path / "bad.parquet")


class TestCompare:
    def test_the_same_shards_pass_also_with_workers(self, tmp_path: Path) -> None:
        check_unchanged(indexed(put(put(tmp_path, "0.tar", THREE), "1.tar", THREE))[0], workers=2)

    def test_a_size_that_changed_names_the_shard(self, tmp_path: Path) -> None:
        index, _ = indexed(put(put(tmp_path, "0.tar", THREE), "1.tar", THREE))
        put(tmp_path, "1.tar", THREE * 9)
        with pytest.raises(ShardsChanged, match=r"1.tar: size changed since it was indexed \(expected 10240 bytes"):
            check_unchanged(index)

    def test_a_header_that_changed_names_the_shard(self, tmp_path: Path) -> None:
        index, _ = indexed(put(put(tmp_path, "0.tar", THREE), "1.tar", THREE))
        put(tmp_path, "0.tar", THREE, mtime=1)
        with pytest.raises(ShardsChanged, match=r"0.tar: headers changed .*; index the shards again, or restore"):
            check_unchanged(index)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_every_row_belongs_to_the_shard_whose_range_holds_it(counts: list[int]) -> None:
    """Position arithmetic for every position of uneven shards, without files."""
    from shards.indexing import index as module

    shards = tuple(module.Shard(f"{number}.tar", 0, "", False) for number in range(len(counts)))
    numbers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    column = pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array([shard.path for shard in shards]))
    index = Index("", shards, pa.table({"shard": column}))
    assert [row for number in range(len(counts)) for row in index.rows(number)] == list(range(len(index)))
    assert [len(index.rows(number)) for number in range(len(counts))] == counts
