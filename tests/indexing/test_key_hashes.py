"""Keys that occur twice are found whatever their hashes; a hash depends on the text alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.indexing import key_hashes as module
from shards.indexing.key_hashes import any_sample_twice, key_hashes, previous_with_key
from shards.indexing.take_rows import take_rows
from shards.tar.text_hashes import hashes_of

texts = st.lists(st.text("ab/é0", max_size=20), max_size=30)


def pieces(keys: list[str], cut: int) -> pa.ChunkedArray:
    """A column in two chunks, of which each begins inside its buffers."""
    whole = pa.array(["x", *keys], pa.string())
    return pa.chunked_array([whole.slice(1, cut), whole.slice(1 + cut)], pa.string())


def oracle(keys: list[str]) -> list[int]:
    seen: dict[str, int] = {}
    return [(seen.get(key, -1), seen.__setitem__(key, place))[0] for place, key in enumerate(keys)]


@given(texts, st.integers(0, 30))
def test_the_last_earlier_sample_with_the_same_key(keys: list[str], cut: int) -> None:
    assert previous_with_key(pieces(keys, cut)).tolist() == oracle(keys)


@given(texts)
def test_equal_hashes_of_different_keys_change_nothing(keys: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "hashes_of", lambda fields: np.zeros(len(fields), np.uint64))
        assert previous_with_key(pieces(keys, 3)).tolist() == oracle(keys)


@given(texts, st.integers(0, 30))
def test_a_hash_is_of_the_text_alone(keys: list[str], cut: int) -> None:
    """Not of its neighbours, whose length decides the padding, nor of where it lies."""
    alone = [int(key_hashes(pieces([key], 0))[0]) for key in keys]
    assert key_hashes(pieces(keys, cut)).tolist() == alone
    assert len(set(alone)) == len(set(keys))


def test_texts_of_eight_bytes_never_collide() -> None:
    numbers = np.arange(200_000, dtype="<u8") * 7_919 + (1 << 63)
    assert len(np.unique(hashes_of(numbers.view(np.uint8).reshape(-1, 8)))) == len(numbers)


@pytest.mark.parametrize("encoded", [False, True])
def test_a_sample_is_named_by_shard_and_key(encoded: bool) -> None:
    shard, key = pieces(["0.tar", "0.tar", "1.tar", "1.tar"], 2), pieces(["a", "b", "a", "c"], 3)
    shard = shard.dictionary_encode() if encoded else shard
    assert not any_sample_twice(pa.table({"shard": shard, "key": key}))
    assert any_sample_twice(pa.table({"shard": shard, "key": pieces(["a", "b", "c", "c"], 1)}))


def test_rows_are_taken_from_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shards.indexing.take_rows.SPAN", 4)
    table = pa.concat_tables([pa.table({"n": [3 * n, 3 * n + 1, 3 * n + 2]}) for n in range(20)])
    for rows in ([], [0], [59], [0, 0, 3, 4, 4, 30, 31, 58, 59], list(range(60))):
        assert take_rows(table, np.array(rows, np.int64))["n"].to_pylist() == rows
