"""Tables beyond a size lie in a mapped file and are the same tables; nobody else sees that file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from shards.errors import NoSpace
from shards.io import spilled as module
from shards.io.spilled import spilled

SCHEMA = pa.schema([("key", pa.string()), ("size", pa.int64())])


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred bytes are large."""
    monkeypatch.setattr(module, "IN_MEMORY", 400)
    monkeypatch.setattr(module, "_PIECE", 100)


def batches(n: int) -> Iterator[pa.RecordBatch]:
    for number in range(n):
        yield pa.record_batch([[f"{number}", None, "é"], [number, 1, None]], schema=SCHEMA)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100])
def test_the_same_rows_wherever_they_lie(tiny: None, n: int) -> None:
    found = spilled(SCHEMA, batches(n))
    assert found.schema == SCHEMA
    assert found.to_pylist() == [row for batch in batches(n) for row in batch.to_pylist()]
    assert (found["key"].num_chunks > 1) == (n > 7)  # what is small is one piece


def test_a_large_table_takes_memory_of_a_file_and_leaves_no_name(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = pa.total_allocated_bytes()
    found = spilled(SCHEMA, batches(1000))
    assert len(found) == 3000
    assert pa.total_allocated_bytes() - before < 10_000 < found.nbytes
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_in_one_line(tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(pa.ipc, "new_stream", full)
    with pytest.raises(NoSpace, match="no space for a large table; make room there, or point TMPDIR"):
        spilled(SCHEMA, batches(100))
