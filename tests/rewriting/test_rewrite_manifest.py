"""Manifests made by anyone: which are taken, and what is said of those that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shard_makers import make_store

from shards.api import table_of
from shards.errors import ShardError
from shards.indexing.index import Index
from shards.rewriting.manifest import manifest_rows, read_manifest


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Keys 0 to 4 in each of two shards."""
    members = [(f"{n}.jpg", b"x") for n in range(5)]
    return make_store(tmp_path_factory.mktemp("store"), {"a.tar": members, "b.tar": members})


def table(**columns: list[object]) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})


@given(rows=st.sets(st.integers(0, 9)), with_row=st.booleans(), seed=st.integers(0, 99))
def test_any_choice_in_any_order_comes_back_sorted(store: Index, rows: set[int], with_row: bool, seed: int) -> None:
    lines = np.random.default_rng(seed).permutation(sorted(rows)).astype(np.int64)
    manifest = store.table.select(["shard", "key"]).take(pa.array(lines))
    manifest = manifest.append_column("row", pa.array(lines)) if with_row else manifest
    assert manifest_rows(store, manifest).tolist() == sorted(rows)


def test_a_manifest_made_with_duckdb_is_taken(store: Index, tmp_path: Path) -> None:
    pq.write_table(store.table.select(["shard", "key", "size"]), tmp_path / "index.parquet")
    query = f"select shard, key from '{tmp_path}/index.parquet' where shard = 'b.tar' and key >= '3'"
    duckdb.sql(f"copy ({query}) to '{tmp_path}/kept.parquet'")
    assert manifest_rows(store, read_manifest(tmp_path / "kept.parquet")).tolist() == [8, 9]


@pytest.mark.parametrize("categories", [False, True])
@pytest.mark.parametrize("library", ["polars", "pandas", "duckdb"])
def test_frames_of_other_libraries_are_taken(store: Index, library: str, categories: bool) -> None:
    """As they stand, and with their names as categories; Polars has strings of its own kind in Arrow."""
    chosen = (
        store.table.select(["shard", "key"]).slice(3, 4).cast(pa.schema({"shard": pa.string(), "key": pa.string()}))
    )
    frame: Any = {
        "polars": lambda: pl.DataFrame(chosen.to_pydict()),
        "pandas": chosen.to_pandas,
        "duckdb": lambda: duckdb.from_arrow(chosen),
    }[library]()
    if categories and library == "polars":
        frame = frame.with_columns(pl.all().cast(pl.Categorical))
    elif categories and library == "pandas":
        frame = frame.astype("category")
    assert manifest_rows(store, table_of(frame)).tolist() == [3, 4, 5, 6]


def test_a_manifest_written_by_polars_is_taken(store: Index, tmp_path: Path) -> None:
    pl.DataFrame({"shard": ["b.tar"], "key": ["2"]}).write_parquet(tmp_path / "kept.parquet")
    assert manifest_rows(store, read_manifest(tmp_path / "kept.parquet")).tolist() == [7]


def test_rows_as_floats_are_taken_where_they_are_whole(store: Index) -> None:
    """pandas makes floats of a column that once had a hole."""
    assert manifest_rows(store, table(shard=["b.tar"], key=["1"], row=[6.0])).tolist() == [6]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"shard": ["a.tar"]}, r"without column key \(expected shard, key and optionally row, found shard\)"),
        ({"shard": ["a.tar"], "key": [1]}, r"column key \(expected strings, found int64\)"),
        ({"shard": ["a.tar", None], "key": ["1", "2"]}, "line 1: shard is null"),
        ({"shard": ["a.tar"], "key": [None]}, r"column key \(expected strings, found null\)"),
        ({"shard": ["a.tar"] * 2, "key": ["1", "9"]}, r"a\.tar, 9: manifest names 1 samples .* first in line 1"),
        ({"shard": ["c.tar"], "key": ["1"]}, r"c\.tar, 1: manifest names 1 samples that the store has not"),
        ({"shard": ["a.tar"] * 3, "key": ["1", "2", "1"]}, r"a\.tar, 1: manifest line 2: named before"),
        ({"shard": ["a.tar"] * 2, "key": ["1"] * 2, "row": [1, 1]}, "manifest line 1: named before"),
        ({"shard": ["a.tar"], "key": ["1"], "row": [10]}, r"no such row \(expected 0 to 9, found 10\)"),
        ({"shard": ["a.tar"], "key": ["1"], "row": [-1]}, r"no such row \(expected 0 to 9, found -1\)"),
        ({"shard": ["a.tar"], "key": ["1"], "row": [2]}, r"row 2 has another key \(expected 2, found 1\)"),
        ({"shard": ["b.tar"], "key": ["1"], "row": [1]}, r"row 1 has another shard \(expected a\.tar, found b\.tar\)"),
        ({"shard": ["a.tar"], "key": ["1"], "row": [float("nan")]}, "line 0: row is nan"),
        ({"shard": ["a.tar"], "key": ["1"], "row": [float("inf")]}, "line 0: row is inf"),
        ({"shard": ["a.tar"], "key": ["1"], "row": [1.5]}, r"line 0: row is 1\.5"),
        ({"shard": ["a.tar"] * 2, "key": ["1", "2"], "row": [1, None]}, "line 1: row is null"),
        ({"shard": ["a.tar"], "key": ["1"], "row": ["1"]}, r"column row \(expected whole numbers, found string\)"),
        ({"shard": ["a.tar"], "key": ["1"], "kept": [True]}, "this is a ledger and no manifest"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(store: Index, columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(ShardError, match=message) as error:
        manifest_rows(store, table(**columns))
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"gone\.parquet: no such manifest"):
        read_manifest(tmp_path / "gone.parquet")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(ShardError, match=r"cut\.parquet: not a whole Parquet file .*found .*4 bytes"):
        read_manifest(tmp_path / "cut.parquet")
    (tmp_path / "empty.parquet").write_bytes(b"")
    with pytest.raises(ShardError, match=r"empty\.parquet: not a whole Parquet file"):
        read_manifest(tmp_path / "empty.parquet")
