"""A store whose index is large is treated like any other: the same files, whether tables lie in memory or in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_makers import indexed, make_store, manifest_of, numbered, tree

from shards.indexing import index_file
from shards.indexing.index import Index
from shards.rewriting.rewrite import RewriteOptions, rewrite
from shards.rewriting.verify import verify


def everything(store: Index, out: Path) -> dict[str, bytes]:
    """Every file that index and rewrite make."""
    index_file.save(store, out / "i.parquet")
    again = index_file.load(out / "i.parquet", store.root)
    assert again.table.to_pylist() == store.table.to_pylist()
    assert again.fingerprint == store.fingerprint
    rows = [*range(0, 60, 2), 59]
    shuffled = (
        manifest_of(store, rows).append_column("row", pa.array(rows)).take(np.random.default_rng(0).permutation(31))
    )
    for name, manifest, options in (
        ("names", manifest_of(store, rows), RewriteOptions()),
        ("rows", shuffled, RewriteOptions(shard_size=9000, rename=True)),
    ):
        rewrite(again, manifest, out / name, options=options)
        assert verify(out / name, again) == []
    return tree(out)


def test_the_same_files_from_tables_in_memory_and_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = {f"part/{n:05d}.tar": numbered(20 * n, 20) for n in range(2)}
    shards["part/00002.tar"] = numbered(20, 20, seed=1)  # keys that another shard has, too
    store = make_store(tmp_path / "store", shards)
    small = everything(store, tmp_path / "small")
    monkeypatch.setattr("shards.io.spilled.IN_MEMORY", 500)
    monkeypatch.setattr("shards.io.spilled._PIECE", 100)
    for place in ("indexing.take_rows", "indexing.index", "rewriting.manifest", "rewriting.verify"):
        monkeypatch.setattr(f"shards.{place}.SPAN", 7)
    mapped = indexed(tmp_path / "store")
    assert mapped.table["key"].num_chunks > 1
    assert mapped.table.to_pylist() == store.table.to_pylist()
    assert everything(mapped, tmp_path / "mapped") == small


def test_an_index_in_groups_has_the_bytes_of_one_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path / "store", {f"{n}.tar": numbered(20 * n, 20) for n in range(3)})
    monkeypatch.setattr(index_file, "_GROUP_ROWS", 16)
    index_file.save(store, tmp_path / "i.parquet")
    footer = pq.read_schema(tmp_path / "i.parquet").metadata
    whole = store.table.combine_chunks().replace_schema_metadata(footer)
    pq.write_table(whole, tmp_path / "w.parquet", compression="zstd", row_group_size=16, write_page_checksum=True)
    assert pq.ParquetFile(tmp_path / "i.parquet").num_row_groups == 4
    assert index_file.load(tmp_path / "i.parquet", store.root).table.to_pylist() == store.table.to_pylist()
    assert (tmp_path / "i.parquet").read_bytes() == (tmp_path / "w.parquet").read_bytes()
