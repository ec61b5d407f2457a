"""The ledger: exact columns and bytes, history and last state, damage, age, and what other tools make of it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_files import read_files

from curate.errors import CurateError
from curate.ledger import ledger, table_file
from curate.types import ERRORS, Beliefs, Stamp
from shards.errors import Unfinished, UnknownFormat

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "parquet"


def stamp(epoch: int = 1, method: str = "bdw") -> Stamp:
    return Stamp(run_id="3f9c", method=method, epoch=epoch, seed=7, lam=0.25, rho=0.5, eta=10.0)


def names_of(rows: Any) -> pa.Table:
    shards = pa.array([f"{row // 4:06d}.tar" for row in rows], pa.string()).dictionary_encode()
    return pa.table({"shard": shards, "key": pa.array([f"{row:09d}" for row in rows], pa.string())})


def some_beliefs(rows: Any, a: Any = None, error: Any = None) -> Beliefs:
    n = len(rows)
    a = np.asarray(np.arange(n) + 1 if a is None else a, np.float32)
    b = np.ones(n, np.float32)
    visits = np.full(n, 3, np.int32)
    codes = np.asarray(np.zeros(n) if error is None else error, np.uint8)
    return Beliefs(np.asarray(rows, np.int64), (a / (a + b)).astype(np.float32), visits, codes, a, b)


def write_epoch(run: Path, epoch: int, rows: Any, pruned: Any = (), a: Any = None) -> str:
    rows = np.asarray(rows, np.int64)
    below = np.full(len(rows), 0.25, np.float32)
    kept = ~np.isin(rows, np.asarray(pruned, np.int64))
    beliefs = some_beliefs(rows, a)
    return ledger.write(ledger.path_of(run, epoch), beliefs, below, names_of(rows), kept, stamp(epoch))


class TestPartition:
    def test_columns_and_types_are_the_published_ones(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0, 1, 5])
        file = pq.ParquetFile(tmp_path / "ledger" / "epoch=0001" / "part-0.parquet")
        assert [(field.name, str(field.type)) for field in file.schema_arrow] == [
            ("shard", "string"),
            ("key", "string"),
            ("row", "int64"),
            ("a", "float"),
            ("b", "float"),
            ("mean", "float"),
            ("below", "float"),
            ("visits", "int32"),
            ("kept", "bool"),
            ("error", "string"),
        ]
        assert "RLE_DICTIONARY" in file.metadata.row_group(0).column(0).encodings

    def test_what_was_written_is_what_is_read(self, tmp_path: Path) -> None:
        beliefs = some_beliefs([2, 3, 9], [0.1, 2.5, 1e-6], error=[0, 0, ERRORS.index("truncated-image")])
        below = np.array([0.1, 0.9, 1.0], np.float32)
        kept = np.array([True, True, False])
        ledger.write(ledger.path_of(tmp_path, 4), beliefs, below, names_of([2, 3, 9]), kept, stamp(4))
        table = ledger.read_epoch(tmp_path, 4)
        assert table["shard"].to_pylist() == ["000000.tar", "000000.tar", "000002.tar"]
        assert table["key"].to_pylist() == ["000000002", "000000003", "000000009"]
        assert table["below"].to_numpy().tolist() == below.tolist()
        assert table["kept"].to_pylist() == [True, True, False]
        assert table["error"].to_pylist() == [None, None, "truncated-image"]
        back = ledger.beliefs_of(table)
        for name in ("rows", "mean", "visits", "error", "a", "b"):
            np.testing.assert_array_equal(getattr(back, name), getattr(beliefs, name))
            assert getattr(back, name).dtype == getattr(beliefs, name).dtype

    def test_point_weights_leave_a_b_and_below_null(self, tmp_path: Path) -> None:
        beliefs = Beliefs(np.arange(2), np.array([0, 0.5], np.float32), np.ones(2, np.int32), np.zeros(2, np.uint8))
        mask = np.array([False, True])
        ledger.write(ledger.path_of(tmp_path, 1), beliefs, None, names_of([0, 1]), mask, stamp(1, "dw"))
        table = ledger.read_epoch(tmp_path, 1)
        assert [table[name].null_count for name in ("a", "b", "below", "mean")] == [2, 2, 2, 0]
        assert str(table.schema.field("a").type) == "float"
        back = ledger.beliefs_of(table)
        assert back.a is None
        assert back.b is None
        assert ledger.final(tmp_path)["mean"].to_pylist() == [0, 0.5]

    def test_the_footer_is_one_json_object_that_holds_the_stamp(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 3, [0])
        footer = json.loads(pq.read_metadata(ledger.path_of(tmp_path, 3)).metadata[b"curate"])
        assert footer == {
            "format": "ledger",
            "version": 1,
            "run_id": "3f9c",
            "method": "bdw",
            "epoch": 3,
            "seed": 7,
            "lam": 0.25,
            "rho": 0.5,
            "eta": 10.0,
        }
        assert ledger.stamp_of(tmp_path, 3) == stamp(3)

    def test_the_bytes_do_not_depend_on_how_the_names_lie_in_memory(self, tmp_path: Path) -> None:
        rows = np.arange(12)
        plain = names_of(rows)
        pieces = pa.concat_tables([names_of(np.arange(40))[:5], names_of(np.arange(40))[5:12]])
        sums = set()
        for number, names in enumerate((plain, pieces, plain.set_column(0, "shard", plain["shard"].cast("string")))):
            path = tmp_path / f"{number}.parquet"
            kept = np.ones(12, np.bool_)
            sums.add(ledger.write(path, some_beliefs(rows), None, names, kept, stamp()))
            assert hashlib.sha256(path.read_bytes()).hexdigest() in sums
        assert len(sums) == 1

    def test_the_bytes_do_not_depend_on_where_a_long_column_is_cut(self, tmp_path: Path) -> None:
        numbers = np.random.default_rng(0).random(300_000)  # several pages, which chunks of other lengths would move
        table = pa.table({"mean": numbers})
        pieces = pa.concat_tables([table[start : start + 777] for start in range(0, len(table), 777)])
        sums = {table_file.write(tmp_path / "x", each, {"format": "ledger", "version": 1}) for each in (table, pieces)}
        assert len(sums) == 1

    def test_a_large_partition_has_several_row_groups(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(table_file, "GROUP_ROWS", 4)
        write_epoch(tmp_path, 1, range(10))
        assert pq.read_metadata(ledger.path_of(tmp_path, 1)).num_row_groups == 3
        assert ledger.read_epoch(tmp_path, 1)["row"].to_pylist() == list(range(10))

    def test_nothing_but_the_partition_is_left_in_its_folder(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0])
        write_epoch(tmp_path, 1, [0, 1])  # a resumed epoch replaces its partition
        assert [part.name for part in (tmp_path / "ledger" / "epoch=0001").iterdir()] == ["part-0.parquet"]
        assert len(ledger.read_epoch(tmp_path, 1)) == 2

    def test_a_disk_that_fills_up_leaves_no_file_under_any_name(self, tmp_path: Path) -> None:
        # The limit on the size of a file stands in for the end of the disk; it holds for the child process alone.
        code = """
import pathlib, resource, sys, numpy, pyarrow
from curate.ledger import table_file
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
table = pyarrow.table({"mean": numpy.random.default_rng(0).random(100_000)})
try:
    table_file.write(pathlib.Path(sys.argv[1]) / "part-0.parquet", table, {"format": "ledger", "version": 1})
except OSError as error:
    sys.exit(40 if "File too large" in str(error) else 41)
"""
        assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 40
        assert list(tmp_path.iterdir()) == []

    def test_columns_of_different_length_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CurateError, match=r"differ in length \[1, 2\]; align them$"):
            ledger.write(tmp_path / "x", some_beliefs([0, 1]), None, names_of([0]), np.ones(2, np.bool_), stamp())

    def test_rows_that_do_not_rise_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(CurateError, match=r"rows must rise strictly; sort the beliefs by row$"):
            ledger.write(tmp_path / "x", some_beliefs([1, 1]), None, names_of([1, 1]), np.ones(2, np.bool_), stamp())
        assert list(tmp_path.iterdir()) == []


class TestHistory:
    def test_all_epochs_come_together_with_their_number(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0, 1, 2], pruned=[1])
        write_epoch(tmp_path, 2, [0, 2])
        table, faults = ledger.read(tmp_path)
        assert ledger.epochs(tmp_path) == [1, 2]
        assert faults == []
        assert list(zip(table["epoch"].to_pylist(), table["row"].to_pylist())) == [
            (1, 0),
            (1, 1),
            (1, 2),
            (2, 0),
            (2, 2),
        ]
        assert str(table.schema.field("epoch").type) == "int32"

    @pytest.mark.parametrize("damage", ["cut", "zero"])
    def test_a_damaged_partition_is_named_and_the_rest_stays_usable(self, tmp_path: Path, damage: str) -> None:
        for epoch in (1, 2, 3):
            write_epoch(tmp_path, epoch, [0, 1])
        broken = ledger.path_of(tmp_path, 2)
        broken.write_bytes(broken.read_bytes()[:-10] if damage == "cut" else b"")
        table, faults = ledger.read(tmp_path)
        assert table["epoch"].to_pylist() == [1, 1, 3, 3]
        assert len(faults) == 1
        assert faults[0].startswith(f"{broken}: unfinished or damaged Parquet file (")
        with pytest.raises(
            Unfinished,
            match=r"epoch=0002/part-0\.parquet: unfinished or damaged .*; restore it from a copy, or run again",
        ):
            ledger.final(tmp_path)

    def test_whatever_bit_of_the_data_flips_it_is_noticed_or_without_effect(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, range(64), a=np.random.default_rng(0).uniform(1, 2, 64))
        path = ledger.path_of(tmp_path, 1)
        whole, table = path.read_bytes(), ledger.read_epoch(tmp_path, 1)
        column = pq.read_metadata(path).row_group(0).column(3)
        start = column.dictionary_page_offset
        noticed = 0
        for place in range(start, start + column.total_compressed_size):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            try:
                assert ledger.read_epoch(tmp_path, 1).equals(table)
            except Unfinished:
                noticed += 1
        assert noticed > 0.9 * 4 * 64  # the values alone take so many bytes

    def test_a_partition_of_a_later_release_is_read_with_its_extra_column(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0, 1])
        write_epoch(tmp_path, 2, [0, 1])
        path = ledger.path_of(tmp_path, 2)
        wider = table_file.read(path).append_column("reason", pa.array(["far", None]))
        table_file.write(path, wider, {"format": "ledger", "version": 1})
        table, _ = ledger.read(tmp_path)
        assert table["reason"].to_pylist() == [None, None, "far", None]
        assert ledger.final(tmp_path).schema.names == ledger.FINAL_SCHEMA.names

    def test_an_unknown_format_version_is_refused(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0])
        path = ledger.path_of(tmp_path, 1)
        table_file.write(path, table_file.read(path), {"format": "ledger", "version": 2})
        message = "ledger format version 2, this release reads up to 1; update curate-bdw$"
        with pytest.raises(UnknownFormat, match=message):
            ledger.read_epoch(tmp_path, 1)
        with pytest.raises(UnknownFormat, match=message):
            ledger.read(tmp_path)

    def test_a_file_of_another_format_is_refused(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0])
        path = ledger.path_of(tmp_path, 1)
        table_file.write(path, table_file.read(path), {"format": "manifest", "version": 1})
        with pytest.raises(UnknownFormat, match=r"expected a ledger, found a manifest; name the right file$"):
            ledger.read_epoch(tmp_path, 1)

    def test_an_epoch_that_is_not_there_is_named_beside_those_that_are(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0])
        with pytest.raises(CurateError, match=r"no ledger partition of epoch 2 \(there: 1\); name one of these$"):
            ledger.read_epoch(tmp_path, 2)

    def test_a_folder_without_a_ledger_is_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(CurateError, match=r"no ledger here; name the folder that `curate run` wrote to$"):
            ledger.read(tmp_path)


class TestFinal:
    def test_each_example_has_its_last_state_and_the_epoch_that_pruned_it(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0, 1, 2, 5], pruned=[1], a=[1, 2, 3, 4])
        write_epoch(tmp_path, 2, [0, 2, 5], pruned=[5], a=[10, 30, 40])
        write_epoch(tmp_path, 3, [0, 2], a=[100, 300])
        table = ledger.final(tmp_path)
        assert table.schema.equals(ledger.FINAL_SCHEMA)
        assert table["row"].to_pylist() == [0, 1, 2, 5]
        assert table["a"].to_pylist() == [100, 2, 300, 40]
        assert table["kept"].to_pylist() == [True, False, True, False]
        assert table["pruned_epoch"].to_pylist() == [None, 1, None, 2]
        assert table["key"].to_pylist() == ["000000000", "000000001", "000000002", "000000005"]

    def test_it_is_published_with_the_last_epochs_stamp_and_reads_back(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0, 1], pruned=[0])
        write_epoch(tmp_path, 2, [1])
        path = ledger.write_final(tmp_path)
        assert path == tmp_path / "weights.parquet"
        footer = json.loads(pq.read_metadata(path).metadata[b"curate"])
        assert (footer["format"], footer["epoch"]) == ("weights", 2)
        assert ledger.read_final(tmp_path)["pruned_epoch"].to_pylist() == [1, None]
        first = path.read_bytes()
        ledger.write_final(tmp_path)
        assert path.read_bytes() == first

    def test_before_it_is_made_the_command_that_makes_it_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(CurateError, match=r"weights\.parquet: not there; finish the run, or make it with `curate"):
            ledger.read_final(tmp_path)

    def test_a_missing_epoch_is_an_error_as_its_prunings_would_be_lost(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0])
        write_epoch(tmp_path, 3, [0])
        with pytest.raises(CurateError, match="expected a partition of every epoch from 1 on, found 1, 3; resume"):
            ledger.final(tmp_path)

    def test_a_pruned_example_that_comes_back_is_an_error(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0, 1], pruned=[1])
        write_epoch(tmp_path, 2, [0, 1])
        with pytest.raises(CurateError, match=r"row 1, pruned here, is in a later epoch; this ledger is of two runs$"):
            ledger.final(tmp_path)

    def test_an_example_that_was_not_there_at_the_start_is_an_error(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0, 1])
        write_epoch(tmp_path, 2, [0, 1, 2])
        with pytest.raises(CurateError, match=r"row 2 is not in the first epoch; this ledger is of two runs$"):
            ledger.final(tmp_path)

    @settings(max_examples=25, deadline=None)
    @given(st.data())
    def test_it_equals_a_loop_over_examples_for_any_history(self, tmp_path_factory: Any, data: st.DataObject) -> None:
        run = tmp_path_factory.mktemp("run")
        live = sorted(data.draw(st.sets(st.integers(0, 40), min_size=1, max_size=12)))
        expected: dict[int, tuple[float, int | None]] = {}
        for epoch in range(1, data.draw(st.integers(1, 4)) + 1):
            pruned = data.draw(st.sets(st.sampled_from(live))) if live else set()
            a = [float(100 * epoch + row) for row in live]
            write_epoch(run, epoch, live, sorted(pruned), a)
            for row, value in zip(live, a):
                expected[row] = (value, epoch if row in pruned else None)
            live = [row for row in live if row not in pruned]
        table = ledger.final(run)
        found = zip(table["row"].to_pylist(), table["a"].to_pylist(), table["pruned_epoch"].to_pylist())
        assert [(row, (a, epoch)) for row, a, epoch in found] == sorted(expected.items())


class TestBeliefs:
    def test_a_reason_of_a_later_release_is_named(self, tmp_path: Path) -> None:
        write_epoch(tmp_path, 1, [0])
        table = ledger.read_epoch(tmp_path, 1)
        table = table.set_column(table.schema.get_field_index("error"), "error", pa.array(["melted"]))
        with pytest.raises(CurateError, match=r"error 'melted' is not a reason this release knows; update curate-bdw$"):
            ledger.beliefs_of(table)


@pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not beside this repository")
class TestForeignFiles:
    def test_old_and_new_files_come_together_with_all_columns(self) -> None:
        table, faults = read_files([CASES / "ledger_v1.parquet", CASES / "ledger_v2_extra_column.parquet"])
        assert faults == []
        assert table["key"].to_pylist() == ["0001", "0002", "0003"]
        assert table["reason"].to_pylist() == [None, None, "duplicate of 00000.tar/0001"]

    def test_a_file_whose_columns_are_all_null_may_come_first(self) -> None:
        names = ("ledger_v2_all_null_columns", "ledger_v1", "ledger_v2_extra_column")
        table, faults = read_files([CASES / f"{name}.parquet" for name in names])
        assert faults == []
        assert table["score"].to_pylist() == [None, 0.5, 0.25, 0.75]
        assert {field.name: str(field.type) for field in table.schema} == {
            "shard": "dictionary<values=string, indices=int32, ordered=0>",
            "key": "string",
            "keep": "bool",
            "score": "float",
            "reason": "string",
        }

    def test_cut_and_empty_files_are_named_and_the_rest_is_read(self) -> None:
        paths = [CASES / f"ledger_{name}.parquet" for name in ("cut_no_footer", "v1", "zero_bytes")]
        table, faults = read_files(paths)
        assert table["key"].to_pylist() == ["0001", "0002"]
        assert [fault.split(":")[0] for fault in faults] == [str(paths[0]), str(paths[2])]
        assert "magic bytes not found" in faults[0]
        assert "(0 bytes)" in faults[1]


def test_a_column_has_the_widest_type_that_its_files_state(tmp_path: Path) -> None:
    narrow = pa.table({"shard": ["a"], "visits": pa.array([1], pa.int32()), "score": pa.array([0.5], pa.float32())})
    wide = pa.table({"shard": ["b"], "visits": pa.array([2**40], pa.int64()), "score": pa.array([0.1], pa.float64())})
    for name, table in (("narrow", narrow), ("wide", wide)):
        pq.write_table(table, tmp_path / name)
    table, _ = read_files([tmp_path / "narrow", tmp_path / "wide"])
    assert table["visits"].to_pylist() == [1, 2**40]
    assert table["score"].to_pylist() == [0.5, 0.1]


def test_no_file_at_all_is_an_empty_ledger_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    assert read_files([])[0].schema.names == ledger.SCHEMA.names
    with pytest.raises(FileNotFoundError):
        read_files([tmp_path / "none.parquet"])


def test_a_file_without_our_footer_has_no_stamp(tmp_path: Path) -> None:
    path = ledger.path_of(tmp_path, 1)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"row": [0]}), path)
    with pytest.raises(CurateError, match=r"no footer of a ledger; this file was not written by a run$"):
        ledger.stamp_of(tmp_path, 1)
    assert read_files([path])[0]["row"].to_pylist() == [0]
