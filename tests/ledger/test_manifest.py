"""The manifest: its columns and footer, its bytes, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import CurateError
from curate.ledger import manifest, table_file
from curate.ledger.manifest import Origin
from curate.types import Stamp
from shards.errors import Unfinished, UnknownFormat

STAMP = Stamp(run_id="3f9c", method="bdw", epoch=2, seed=7, lam=0.25, rho=0.5, eta=10.0)
ORIGIN = Origin("prune when CDF(0.25; a, b) > 0.5", 5, "ab" * 32, STAMP)


def names_of(rows: Any) -> pa.Table:
    shards = pa.array([f"{row // 4:06d}.tar" for row in rows], pa.string()).dictionary_encode()
    return pa.table({"shard": shards, "key": pa.array([f"{row:09d}" for row in rows], pa.string())})


def write(path: Path, rows: Any) -> str:
    rows = np.asarray(rows, np.int64)
    return manifest.write(path, names_of(rows), rows, ORIGIN)


def test_it_has_exactly_the_kept_rows_in_three_columns(tmp_path: Path) -> None:
    path = manifest.path_of(tmp_path, 2)
    write(path, [0, 3, 6])
    assert path == tmp_path / "manifests" / "epoch=0002.parquet"
    schema = pq.ParquetFile(path).schema_arrow
    assert [(field.name, str(field.type)) for field in schema] == [
        ("shard", "string"),
        ("key", "string"),
        ("row", "int64"),
    ]
    table, _ = manifest.read(path)
    assert table["shard"].to_pylist() == ["000000.tar", "000000.tar", "000001.tar"]
    assert table["key"].to_pylist() == ["000000000", "000000003", "000000006"]
    assert table["row"].to_pylist() == [0, 3, 6]


def test_the_footer_says_by_which_rule_from_what_and_how_many(tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    write(path, [0, 3, 6])
    footer = json.loads(pq.read_metadata(path).metadata[b"curate"])
    assert footer == {
        "format": "manifest",
        "version": 1,
        "rule": "prune when CDF(0.25; a, b) > 0.5",
        "in": 5,
        "out": 3,
        "ledger_sha256": "ab" * 32,
        "run_id": "3f9c",
        "method": "bdw",
        "epoch": 2,
        "seed": 7,
        "lam": 0.25,
        "rho": 0.5,
        "eta": 10.0,
    }
    assert manifest.read(path)[1] == ORIGIN


def test_the_same_choice_gives_the_same_bytes_whatever_the_dictionary(tmp_path: Path) -> None:
    rows = np.array([8, 9])
    whole_store = names_of(range(40)).take(pa.array(rows))  # still carries the dictionary of all ten shards
    first = manifest.write(tmp_path / "a", whole_store, rows, ORIGIN)
    second = manifest.write(tmp_path / "b", names_of(rows), rows, ORIGIN)
    assert first == second == hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
    assert b"000005.tar" not in (tmp_path / "a").read_bytes()
    assert sorted(part.name for part in tmp_path.iterdir()) == ["a", "b"]


def test_an_empty_choice_is_a_manifest_too(tmp_path: Path) -> None:
    write(tmp_path / "m", [])
    assert manifest.read(tmp_path / "m")[0].num_rows == 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_any_names_come_back_as_they_went_in(tmp_path_factory: Any, pairs: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("m") / "m.parquet"
    shards, keys = [shard for shard, _ in pairs], [key for _, key in pairs]
    names = pa.table({"shard": pa.array(shards, pa.string()), "key": pa.array(keys, pa.string())})
    manifest.write(path, names, np.arange(len(pairs)), ORIGIN)
    table, _ = manifest.read(path)
    assert (table["shard"].to_pylist(), table["key"].to_pylist()) == (shards, keys)


def test_names_that_do_not_match_the_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CurateError, match=r"1 names for 2 rows; take the names of exactly the kept rows$"):
        manifest.write(tmp_path / "m", names_of([0]), np.array([0, 1]), ORIGIN)


@pytest.mark.parametrize("rows", [[1, 0], [1, 1]])
def test_rows_out_of_order_or_twice_are_refused(tmp_path: Path, rows: list[int]) -> None:
    with pytest.raises(CurateError, match=r"rows must rise strictly; sort what is kept by row$"):
        write(tmp_path / "m", rows)


def test_more_kept_than_judged_is_refused_and_as_many_is_not(tmp_path: Path) -> None:
    write(tmp_path / "all", range(5))
    with pytest.raises(CurateError, match=r"6 kept of 5 judged; count what went in again$"):
        write(tmp_path / "more", range(6))
    assert [part.name for part in tmp_path.iterdir()] == ["all"]


def test_a_cut_manifest_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "m", [0, 1])
    (tmp_path / "m").write_bytes((tmp_path / "m").read_bytes()[:-5])
    with pytest.raises(Unfinished, match=r"m: unfinished or damaged Parquet file .*; restore it, or make it again$"):
        manifest.read(tmp_path / "m")


def test_a_file_of_ones_own_is_sent_to_rewrite(tmp_path: Path) -> None:
    pq.write_table(names_of([0]), tmp_path / "m")
    with pytest.raises(CurateError, match=r"no footer of a manifest; a file of your own goes to `curate rewrite"):
        manifest.read(tmp_path / "m")


def test_rows_that_are_not_those_that_were_counted_are_noticed(tmp_path: Path) -> None:
    write(tmp_path / "m", [0, 1])
    table, footer = table_file.read(tmp_path / "m"), table_file.footer_of(tmp_path / "m", "manifest", 1)
    assert footer is not None
    table_file.write(tmp_path / "m", table[:1], footer)
    with pytest.raises(CurateError, match=r"expected 2 rows, found 1; write the manifest again$"):
        manifest.read(tmp_path / "m")


def test_a_later_version_and_another_format_are_refused(tmp_path: Path) -> None:
    table_file.write(tmp_path / "m", names_of([0]), {"format": "manifest", "version": 2})
    with pytest.raises(
        UnknownFormat, match=r"manifest format version 2, this release reads up to 1; update curate-bdw$"
    ):
        manifest.read(tmp_path / "m")
    table_file.write(tmp_path / "m", names_of([0]), {"format": "ledger", "version": 1})
    with pytest.raises(UnknownFormat, match=r"expected a manifest, found a ledger; name the right file$"):
        manifest.read(tmp_path / "m")
