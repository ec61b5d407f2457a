"""img2dataset's Parquet files, cut to the curated set: held against a join by DuckDB of what lies in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset

import curate
import shards
from curate.errors import Misuse
from shards.errors import ShardError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a store with metadata beside its three shards; no row of the first has an error message."""
    folder = tmp_path_factory.mktemp("metadata")
    toyset.make_store(folder / "store", 48)
    toyset.make_target(folder / "target", 30)
    with_metadata(folder / "store")
    options = toyset.FAST | {"epochs": 2, "shard_size": 9000}
    curate.run(folder / "store", folder / "target", out=folder / "run", **options)
    return folder


def with_metadata(store: Path) -> None:
    table = shards.open_index(store).table
    for number, path in enumerate(sorted(store.glob("*.tar"))):
        keys = [row["key"] for row in table.to_pylist() if row["shard"] == path.name]
        columns: dict[str, Any] = {
            "key": [*keys[::-1], "999999"],  # img2dataset has a row for what it could not fetch, too
            "url": [f"http://example.org/{key}" for key in [*keys[::-1], "999999"]],
            "error_message": pa.nulls(len(keys) + 1) if number == 0 else ["late"] * (len(keys) + 1),
        }
        pq.write_table(pa.table(columns), path.with_suffix(".parquet"))


def test_each_curated_shard_has_the_stores_rows_with_weights(made: Path) -> None:
    curated, store = made / "run" / "curated", made / "store"
    written = curate.export(curated, metadata=True)
    names = [path.stem for path in sorted(curated.glob("*.tar"))]
    assert len(names) > 1
    assert [path.relative_to(curated).as_posix() for path in written] == [f"metadata/{name}.parquet" for name in names]
    index = pq.read_table(curated / "index.parquet", columns=["shard", "key"]).to_pylist()
    for path in written:
        keys = [row["key"] for row in index if row["shard"] == f"{path.stem}.tar"]
        assert pq.read_table(path)["key"].to_pylist() == keys
    expected = duckdb.sql(
        f"SELECT m.key, m.url, m.error_message, w.mean AS weight, w.a, w.b, w.kept FROM '{curated}/index.parquet' i "
        f"JOIN read_parquet('{store}/*.parquet', union_by_name = true) m ON m.key = i.source_key "
        f"JOIN '{made}/run/weights.parquet' w ON w.key = i.source_key ORDER BY m.key"
    ).fetchall()
    found = duckdb.sql(f"SELECT * FROM '{curated}/metadata/*.parquet' ORDER BY key")
    assert found.columns == ["key", "url", "error_message", "weight", "a", "b", "kept"]
    assert found.fetchall() == expected
    assert len(expected) == len(index)
    assert shards.verify(curated, shards.open_index(store)) == []


def test_verify_tells_of_metadata_that_is_not_of_these_shards(made: Path) -> None:
    curated = made / "run" / "curated"
    path = curate.export(curated, metadata=True)[0]
    whole = path.read_bytes()
    pq.write_table(pq.read_table(path).slice(1), path)
    assert shards.verify(curated) == [f"metadata/{path.name}: has other keys than 000000.tar; export it again"]
    path.write_bytes(whole[:100])
    assert len(shards.verify(curated)) == 1
    path.write_bytes(whole)
    other = path.with_name("notes.parquet")
    other.write_bytes(whole)
    assert shards.verify(curated) == ["metadata/notes.parquet: is no part of this curated set; move it elsewhere"]
    other.unlink()
    assert shards.verify(curated) == []


def test_a_set_outside_of_its_run_says_which_run(made: Path, tmp_path: Path) -> None:
    """By a manifest of one's own: what the run had pruned is there, and told as such; keys have a prefix."""
    store = shards.open_index(made / "store")
    shards.rewrite(store, store.table.select(["shard", "key"]), tmp_path / "all", rename=True)
    with pytest.raises(Misuse, match="lies in no run; say which one judged its images with --run RUN"):
        curate.export(tmp_path / "all", metadata=True)
    with pytest.raises(Misuse, match="--run: only with --metadata"):
        curate.export(tmp_path / "all", run=made / "run")
    (path, *_) = curate.export(tmp_path / "all", metadata=True, run=made / "run")
    table = pq.read_table(path)
    assert [key.rpartition("/")[2] for key in table["key"].to_pylist()[:3]] == ["000000", "000001", "000002"]
    assert table["url"].to_pylist()[0] == "http://example.org/000000"
    assert shards.verify(tmp_path / "all") == []
    weights = curate.open_run(made / "run").weights()
    kept = [
        kept for one in (tmp_path / "all" / "metadata").iterdir() for kept in pq.read_table(one)["kept"].to_pylist()
    ]
    assert sum(kept) == sum(weights["kept"].to_pylist()) < len(kept)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda table: None, "no metadata of this shard"),
        (lambda table: table.drop_columns("key"), "no column key"),
        (lambda table: table.slice(1), "not one row of this sample"),
        (lambda table: pa.concat_tables([table, table.slice(0, 1)]), r"not one row of this sample \(found several"),
        (lambda table: table.append_column("kept", table["url"]), "has a column kept of its own"),
        (lambda table: table.set_column(1, "url", pa.array([[1]] * len(table))), "do not fit together"),
    ],
)
def test_metadata_that_does_not_fit_is_one_line(made: Path, tmp_path: Path, change: Any, line: str) -> None:
    store = shards.open_index(made / "store")
    shards.rewrite(store, store.table.select(["shard", "key"]), tmp_path / "all")
    path = sorted((made / "store").glob("*.parquet"))[1]
    whole = path.read_bytes()
    try:
        table = change(pq.read_table(path))
        path.unlink() if table is None else pq.write_table(table, path)
        with pytest.raises(ShardError, match=line) as error:
            curate.export(tmp_path / "all", metadata=True, run=made / "run")
        assert "\n" not in str(error.value)
    finally:
        path.write_bytes(whole)
    assert not (tmp_path / "all" / "metadata").exists() or not shards.verify(tmp_path / "all")


def test_a_set_of_another_store_is_refused(made: Path, tmp_path: Path) -> None:
    toyset.make_store(tmp_path / "store", 20)
    store = shards.open_index(tmp_path / "store")
    shards.rewrite(store, store.table.select(["shard", "key"]), tmp_path / "out")
    with pytest.raises(ShardError, match="was made of another store"):
        curate.export(tmp_path / "out", metadata=True, run=made / "run")
