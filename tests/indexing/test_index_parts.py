"""Parts of an index, made in any order and joined: the same file as by one call, or one line."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import forked
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_makers import numbered, write_tar

import shards
from shards.errors import Misuse, NotShards, ShardError, ShardsChanged
from shards.indexing import index_parts


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Seven shards of 1 to 7 samples, one key twice, one shard cut short."""
    for number in range(7):
        write_tar(tmp_path / "store" / f"{number:03d}.tar", numbered(10 * number, number + 1))
    write_tar(tmp_path / "store" / "003.tar", numbered(0, 2))
    cut = tmp_path / "store" / "005.tar"
    cut.write_bytes(cut.read_bytes()[:2000])
    return tmp_path / "store"


def files(store: Path) -> dict[str, bytes]:
    """What indexing leaves."""
    return {path.name: path.read_bytes() for path in (store / ".curate").iterdir() if path.is_file()}


def in_parts(store: Path, order: tuple[int, ...] = (3, 1, 4, 2), **options: object) -> None:
    for number in order:
        shards.index_part(store, f"{number}/4", **options)


def part_file(store: Path, name: str) -> Path:
    return store / ".curate" / ".index.parts" / f"{name}.parquet"


class TestJoined:
    """What comes out."""

    @pytest.mark.parametrize("options", [{}, {"check": True}, {"image": "jpg"}])
    def test_the_same_bytes_as_by_one_call(self, store, options):
        """Index and report, faults included; the parts are gone then."""
        shards.index(store, **options)
        whole = files(store)
        shutil.rmtree(store / ".curate")
        in_parts(store, **options)
        _, report = shards.join_index(store)
        assert files(store) == whole
        assert {fault.kind for fault in report.faults} >= {"duplicate-key", "truncated"}
        assert not (store / ".curate" / ".index.parts").exists()

    def test_more_parts_than_shards(self, store, tmp_path):
        shards.index(store, tmp_path / "whole.parquet")
        for number in range(20, 0, -1):
            shards.index_part(store, f"{number}/20", tmp_path / "parts.parquet")
        shards.join_index(store, tmp_path / "parts.parquet")
        assert (tmp_path / "parts.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()

    def test_many_rows_in_groups(self, store, tmp_path, monkeypatch):
        """As a part of millions has them."""
        monkeypatch.setattr(index_parts, "_GROUP_ROWS", 2)
        shards.index(store, tmp_path / "whole.parquet")
        for number in (2, 1):
            shards.index_part(store, f"{number}/2", tmp_path / "parts.parquet")
        assert pq.read_metadata(tmp_path / ".parts.parts" / "2-of-2.parquet").num_row_groups > 5
        shards.join_index(store, tmp_path / "parts.parquet")
        assert (tmp_path / "parts.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()

    def test_a_part_says_what_it_holds(self, store):
        made = shards.index_part(store, "2/4")
        assert (made.part, made.shards, made.samples, made.faults) == ("2/4", 2, 5, 0)
        assert Path(made.file) == part_file(store, "2-of-4")

    def test_a_killed_part_is_made_by_the_same_command(self, store, monkeypatch):
        """What it left is overwritten; the index is the same."""
        shards.index(store)
        whole = files(store)
        shutil.rmtree(store / ".curate")
        in_parts(store, (1, 2, 4))
        partial = part_file(store, ".3-of-4").with_name(".3-of-4.parquet.partial")
        child = multiprocessing.get_context("fork").Process(target=_stuck, args=(store,))
        child.start()
        deadline = time.monotonic() + 20
        while not partial.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert partial.exists()
        with pytest.raises(ShardError, match="part 3/4 is missing"):
            shards.join_index(store)
        shards.index_part(store, "3/4")
        shards.join_index(store)
        assert files(store) == whole
        assert not partial.exists()

    def test_what_a_kill_left_of_another_division_goes_with_the_parts(self, store):
        """What is nobody's stays, and is no reason to fail when the index is there."""
        in_parts(store)
        folder = part_file(store, "1-of-4").parent
        (folder / ".2-of-9.parquet.partial").write_bytes(b"begun")
        shards.join_index(store)
        assert not folder.exists()
        in_parts(store)
        (folder / "notes.txt").write_text("somebody's")
        shards.join_index(store)
        assert [path.name for path in folder.iterdir()] == ["notes.txt"]

    @pytest.mark.parametrize("number", [1, 3, 5])
    def test_killed_while_parts_are_removed(self, store, number):
        """The index is there, and of parts there are all or none; new ones are joined as ever."""
        in_parts(store)
        assert forked.killed_before_removal(lambda: shards.join_index(store), number)
        whole = files(store)
        with pytest.raises(ShardError, match="holds no part of an index"):
            shards.join_index(store)
        assert [path.name for path in (store / ".curate").iterdir() if "parts" in path.name] == []
        in_parts(store)
        shards.join_index(store)
        assert files(store) == whole

    def test_shards_that_are_no_tar_are_named_together_in_the_end(self, store):
        """Of whatever part; and left out where that is asked."""
        for number in (0, 6):
            (store / f"{number:03d}.tar").write_bytes(b"")
        in_parts(store)
        with pytest.raises(NotShards, match=r"2 shards are no tars: 000\.tar: .*, 006\.tar: "):
            shards.join_index(store)
        found, report = shards.join_index(store, skip_bad=True)
        assert [shard.path for shard in found.shards] == [f"{number:03d}.tar" for number in range(1, 6)]
        assert {fault.shard for fault in report.faults} >= {"000.tar", "006.tar"}


def _stuck(store: Path) -> None:
    """Writes a part, and gets no further than its table."""
    index_parts.pq.ParquetWriter.write_table = lambda *_, **__: time.sleep(60)
    shards.index_part(store, "3/4")


class TestRefused:
    """One line, which says what to do."""

    def test_no_part_at_all(self, store):
        with pytest.raises(ShardError, match=r"\.index\.parts: holds no part of an index; make them with `curate in"):
            shards.join_index(store)

    @pytest.mark.parametrize(
        ("there", "line"),
        [((1, 2, 4), r"part 3/4 is missing; run `curate index --part 3/4`"), ((4,), r"parts 1/4, 2/4, 3/4 are mi")],
    )
    def test_a_part_is_missing(self, store, there, line):
        in_parts(store, there)
        with pytest.raises(ShardError, match=line):
            shards.join_index(store)

    def test_very_many_parts_are_missing(self, store):
        shards.index_part(store, "1/5000")
        with pytest.raises(ShardError, match=r"parts 2/5000, .*, 11/5000 and 4989 more are missing; run"):
            shards.join_index(store)

    def test_parts_of_two_divisions(self, store):
        in_parts(store)
        shards.index_part(store, "1/3")
        with pytest.raises(ShardError, match=r"holds parts of 3 and of 4; remove those that are not meant"):
            shards.join_index(store)

    def test_a_part_of_another_store(self, store, tmp_path):
        in_parts(store)
        write_tar(tmp_path / "other" / "000.tar", numbered(0, 3))
        shards.index_part(tmp_path / "other", "2/4")
        shutil.copy(part_file(tmp_path / "other", "2-of-4"), part_file(store, "2-of-4"))
        with pytest.raises(ShardError, match=r"2-of-4\.parquet: is a part of other shards than those of .*; run `cur"):
            shards.join_index(store)

    def test_a_part_under_another_name(self, store):
        in_parts(store)
        shutil.copy(part_file(store, "1-of-4"), part_file(store, "2-of-4"))
        with pytest.raises(ShardError, match=r"2-of-4\.parquet: is not part 2/4 of an index"):
            shards.join_index(store)

    def test_a_part_made_with_other_options(self, store):
        in_parts(store)
        shards.index_part(store, "4/4", check=True)
        with pytest.raises(ShardError, match=r"4-of-4.*another --check than part 1/4 \(expected False, found True\)"):
            shards.join_index(store)

    def test_a_shard_that_came_later(self, store):
        """Parts made before it are of other shards."""
        in_parts(store)
        write_tar(store / "007.tar", numbered(70, 1))
        with pytest.raises(ShardError, match="is a part of other shards"):
            shards.join_index(store)

    @pytest.mark.parametrize("found", ["no file", "size"])
    def test_a_shard_that_changed_since(self, store, found):
        in_parts(store)
        shard = store / "002.tar"
        if found == "size":
            shard.write_bytes(shard.read_bytes() + bytes(512))
            with pytest.raises(ShardsChanged, match=r"002\.tar: changed since it was scanned .*run .* --part 2/4"):
                shards.join_index(store)
        else:
            listed = store.parent / "list.txt"
            listed.write_text("".join(f"{path}\n" for path in sorted(store.glob("*.tar"))))
            for number in range(1, 5):
                shards.index_part(listed, f"{number}/4", store.parent / "x.parquet")
            shard.unlink()
            with pytest.raises(ShardError):
                shards.join_index(listed, store.parent / "x.parquet")

    @pytest.mark.parametrize("harm", ["cut", "empty", "foreign", "footer", "rows"])
    def test_a_damaged_part(self, store, harm):
        """Which, and that it is to be made again."""
        in_parts(store)
        path = part_file(store, "3-of-4")
        table = pq.read_table(path)
        if harm == "cut":
            path.write_bytes(path.read_bytes()[:-9])
        elif harm == "empty":
            path.write_bytes(b"")
        elif harm == "foreign":
            pq.write_table(pa.table({"x": [1]}), path)
        elif harm == "footer":
            text = table.schema.metadata[b"curate.index.part"].replace(b'"faults"', b'"faulty"')
            pq.write_table(table.replace_schema_metadata({b"curate.index.part": text}), path)
        else:
            pq.write_table(table.slice(1), path)
        with pytest.raises(ShardError, match=r"3-of-4\.parquet: .*`curate index --part 3/4` again"):
            shards.join_index(store)

    def test_a_later_format(self, store, monkeypatch):
        monkeypatch.setattr(index_parts, "VERSION", 2)
        in_parts(store)
        monkeypatch.undo()
        with pytest.raises(ShardError, match=r"1-of-4\.parquet: unknown format \(expected 1, found 2\)"):
            shards.join_index(store)

    def test_a_remote_store_needs_a_place(self, monkeypatch):
        monkeypatch.setattr("shards.io.shard_set.resolve", lambda *_, **__: shards_of_a_url())
        with pytest.raises(Misuse, match="is remote; say where the index goes with --index FILE"):
            shards.index_part("http://127.0.0.1/{0..3}.tar", "1/2")


def shards_of_a_url() -> object:
    from shards.io.shard_set import ShardSet

    return ShardSet("http://127.0.0.1/", ("0.tar", "1.tar"))
