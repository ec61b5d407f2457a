"""What is kept of a store lies where patterns over the store do not meet it, and what lies there from before counts."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from shard_makers import make_store, numbered

import shards
from shards import api
from shards.errors import Misuse
from shards.indexing import domains, index_file

FOLDER = ".curate"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """As img2dataset leaves it: beside each tar a Parquet file with a row a sample."""
    make_store(tmp_path / "store", {"00000.tar": numbered(0, 3), "00001.tar": numbered(3, 2)})
    for name, rows in (("00000", range(3)), ("00001", range(3, 5))):
        table = pa.table({"key": [f"{row:06d}" for row in rows], "caption": [f"caption {row}" for row in rows]})
        pq.write_table(table, tmp_path / "store" / f"{name}.parquet")
    return tmp_path / "store"


def test_an_index_is_not_met_by_a_glob_over_the_store(store: Path) -> None:
    found, report = api.index(store)
    assert (len(found), report.passed_over.hidden_folders) == (5, 0)
    assert sorted(path.name for path in (store / FOLDER).iterdir()) == ["index.parquet", "index.report.json"]
    assert duckdb.sql(f"SELECT count(*) FROM '{store}/*.parquet'").fetchall() == [(5,)]
    assert sorted(path.name for path in store.glob("*.parquet")) == ["00000.parquet", "00001.parquet"]
    files = [str(path) for path in store.rglob("*.parquet") if FOLDER not in path.parts]
    assert pa.dataset.dataset(files).count_rows() == 5


def test_it_is_found_again_and_not_made_anew(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, report = api.index(store)
    monkeypatch.setattr("shards.store.build", lambda *_, **__: pytest.fail("indexed again"))
    assert shards.open_index(store).fingerprint == held.fingerprint
    assert index_file.load(api.index_path(store)).root == str(store)
    assert report.passed_over.others == {".parquet": 2}


def test_it_moves_with_its_store(store: Path, tmp_path: Path) -> None:
    held, _ = api.index(store)
    store.rename(tmp_path / "moved")
    assert index_file.load(tmp_path / "moved" / FOLDER / "index.parquet").fingerprint == held.fingerprint
    assert shards.open_index(tmp_path / "moved").fingerprint == held.fingerprint
    assert str(tmp_path).encode() not in (tmp_path / "moved" / FOLDER / "index.parquet").read_bytes()


def test_an_index_of_before_is_read_first_and_written_again_in_its_place(store: Path) -> None:
    """Two would go stale one behind the other's back."""
    index_file.save(shards.open_index(store, image="jpg"), store / "index.parquet")
    (store / FOLDER).mkdir()
    (store / FOLDER / "index.parquet").write_bytes(b"no index")
    assert len(shards.open_index(store)) == 5
    api.index(store)
    assert api.index_path(store) == store / "index.parquet"
    assert (store / "index.report.json").is_file()
    assert (store / FOLDER / "index.parquet").read_bytes() == b"no index"


def test_a_store_that_cannot_be_written_to_is_told_before_the_work(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(Misuse, match="cannot be written to; say where the index goes with --index FILE"):
        api.index(store)
    assert not (store / FOLDER).exists()
    api.index(store, store.parent / "elsewhere.parquet")


def test_other_hidden_folders_are_still_told(store: Path) -> None:
    (store / ".git").mkdir()
    (store / FOLDER).mkdir()
    assert api.index(store)[1].passed_over.hidden_folders == 1


@pytest.mark.parametrize("place", ["domains.parquet", f"{FOLDER}/domains.parquet"])
def test_domains_are_read_from_either_place(store: Path, place: str) -> None:
    index = shards.open_index(store)
    known = domains.Domains(("a", "b"), np.array([0, 1, 0, 1, 1], np.int32))
    domains.save(index, known, store / place)
    assert domains.load(index).own("b").tolist() == [False, True, False, True, True]
