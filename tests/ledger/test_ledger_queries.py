"""The page on the ledger is true: its row is a real one, and its queries give what was put into the run folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.ledger import ledger, pruner
from curate.types import Beliefs, Stamp

FORMATS = Path(__file__).resolve().parents[2] / "docs" / "formats"
PAGE = (FORMATS / "ledger.md").read_text(encoding="utf-8")
LAM, RHO = 0.25, 0.5


def blocks(language: str, word: str = "", page: str = PAGE) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [block for block in found if word in block]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with RUN in it: 50 images, of which those from row 42 on are useless."""
    monkeypatch.chdir(tmp_path)
    rows = np.arange(50)
    for epoch in (1, 2):
        useless = rows >= 42
        a, b = np.where(useless, 0.5, epoch), np.where(useless, 2, 1)
        rows = write_epoch(tmp_path / "RUN", epoch, rows, a.astype(np.float32), b.astype(np.float32))
    ledger.write_final(tmp_path / "RUN")
    return tmp_path


def write_epoch(run: Path, epoch: int, rows: Any, a: Any, b: Any) -> Any:
    visits, errors = np.full(len(rows), epoch, np.int32), np.zeros(len(rows), np.uint8)
    beliefs = Beliefs(rows, a / (a + b), visits, errors, a, b)
    names = pa.table({"shard": [f"{row // 40:06d}.tar" for row in rows], "key": [f"{row:09d}" for row in rows]})
    kept = pruner.keep(beliefs, LAM, RHO)
    stamp = Stamp("3f9c", "bdw", epoch, 7, LAM, RHO, 10.0)
    ledger.write(ledger.path_of(run, epoch), beliefs, pruner.below(beliefs, LAM), names, kept, stamp)
    return rows[kept]


def test_the_row_on_the_page_is_a_row_of_a_real_ledger(folder: Path) -> None:
    printed = json.loads(blocks("json")[0])
    assert printed == ledger.read_epoch(folder / "RUN", 1).slice(42, 1).to_pylist()[0]
    # By hand: the CDF of Beta(1/2, 2) is (3 sqrt(x) - x^(3/2)) / 2, at 1/4: (1.5 - .125) / 2.
    assert printed["below"] == 0.6875


def test_the_columns_on_the_page_are_the_schemas() -> None:
    table = PAGE.split("## Ledger\n")[1].split("## Footers")[0]
    named = [
        name for cell in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    ]
    assert named == ledger.SCHEMA.names


def test_the_queries_for_duckdb_run(folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    footers, by_epoch, one, shards = (duckdb.sql(query).fetchall() for query in blocks("sql", "SELECT")[:4])
    assert [json.loads(footer)["epoch"] for _, footer in footers] == [1, 2]
    assert [(epoch, live, kept) for epoch, live, _, kept in by_epoch] == [(1, 50, 42 / 50), (2, 42, 1.0)]
    assert one == [(1, 0.5, 2.0, pytest.approx(0.2), 0.6875, False)]
    assert shards == [("000001.tar", 10, 0.2), ("000000.tar", 40, 1.0)]


def test_a_manifest_made_with_duckdb_has_the_columns_of_one(folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    duckdb.sql(blocks("sql", "COPY", (FORMATS / "manifest.md").read_text(encoding="utf-8"))[0])
    table = pq.read_table(folder / "kept.parquet")
    assert table.schema.names == ["shard", "key", "row"]
    assert table["row"].to_pylist() == list(range(42))


def test_the_query_for_polars_runs(folder: Path) -> None:
    pytest.importorskip("polars")
    assert run_block("polars")["live"].to_list() == [50, 42]


def test_the_query_for_pandas_runs(folder: Path) -> None:
    pytest.importorskip("pandas")
    assert run_block("pandas")["count"].tolist() == [50, 42]


def test_the_query_for_hugging_face_datasets_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
    assert run_block("from datasets")["row"][:] == list(range(42))


def run_block(word: str) -> Any:
    names: dict[str, Any] = {}
    exec(blocks("python", word)[0], names)
    return names["result"]
