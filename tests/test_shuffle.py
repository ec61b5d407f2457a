"""The order of an epoch: a permutation, keyed, sequential in blocks, mixed in windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.shuffle import (
    BLOCK_ROWS,
    WINDOW_BLOCKS,
    epoch_order,
    permutation,
    random_bits,
    shard_order,
    windowed_order,
)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(0, 40_000), seed=st.integers(0, 2**63), epoch=st.integers(1, 10_000))
def test_every_row_is_read_once(count: int, seed: int, epoch: int) -> None:
    rows = np.arange(count, dtype=np.int64) * 3 + 5
    order = epoch_order(rows, seed, epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), rows)


def test_seed_and_epoch_key_the_order() -> None:
    rows = np.arange(5000)
    one = epoch_order(rows, 1, 1)
    assert np.array_equal(one, epoch_order(rows, 1, 1))
    for seed, epoch in ((1, 2), (2, 1)):
        assert np.mean(one == epoch_order(rows, seed, epoch)) < 0.01  # chance is 1 in 5000


def test_rows_of_one_window_come_from_sixteen_blocks() -> None:
    rows = np.arange(100 * BLOCK_ROWS)
    order = epoch_order(rows, 7, 3)
    size = BLOCK_ROWS * WINDOW_BLOCKS
    for start in range(0, len(rows), size):
        assert len(np.unique(order[start : start + size] // BLOCK_ROWS)) == min(
            WINDOW_BLOCKS, 100 - start // BLOCK_ROWS
        )


def test_blocks_are_permuted_across_windows() -> None:
    first = epoch_order(np.arange(100 * BLOCK_ROWS), 7, 3)[: BLOCK_ROWS * WINDOW_BLOCKS] // BLOCK_ROWS
    assert set(first.tolist()) != set(range(WINDOW_BLOCKS))


@pytest.mark.parametrize("count", [16_383, 16_384])
def test_a_store_of_one_window_is_fully_permuted(count: int) -> None:
    """Distance of neighbours in a random permutation of n is n / 3 on average; blocks alone would give 1,024 / 3."""
    order = epoch_order(np.arange(count), 0, 1)
    assert np.abs(np.diff(order)).mean() == pytest.approx(count / 3, rel=0.03)


def test_the_bits_are_those_of_philox_keyed_by_blake2b() -> None:
    """So that the order stays what it is in ten years; the numbers are from the first run of this code."""
    import hashlib

    key = int.from_bytes(hashlib.blake2b(b"5/order/2", digest_size=16).digest(), "little")
    expected = np.random.Philox(key=key).random_raw(4)
    assert np.array_equal(random_bits(5, "order", 2, 4), expected)


def test_places_are_uniform() -> None:
    """Chi-square of where row 0 lands in 10 places over 2,000 seeds; 27.9 is the 99.9 % point for 9 degrees."""
    places = np.array([np.flatnonzero(permutation(seed, "test", 0, 10) == 0)[0] for seed in range(2000)])
    counts = np.bincount(places, minlength=10)
    assert ((counts - 200) ** 2 / 200).sum() < 27.9


def test_a_streamed_order_keeps_the_rows_of_a_shard_together() -> None:
    shards = np.repeat([0, 1, 2, 5], [10, 1, 30, 20])
    rows = np.arange(len(shards)) + 100
    order = shard_order(rows, shards, 3, 1)
    assert np.array_equal(np.sort(order), rows)
    held = shards[order - 100]
    assert np.count_nonzero(np.diff(held)) == 3
    turns = {tuple(dict.fromkeys(shards[shard_order(rows, shards, 3, e) - 100].tolist())) for e in range(1, 20)}
    assert len(turns) > 5  # shards take other turns in other epochs


def test_no_rows_have_an_order() -> None:
    empty = np.zeros(0, dtype=np.int64)
    assert len(epoch_order(empty, 0, 1)) == 0
    assert len(shard_order(empty, empty, 0, 1)) == 0


def whole(count: int, seed: int, epoch: int) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *(places for _, places in windowed_order(count, seed, epoch))])


@pytest.mark.parametrize("count", [0, 1, 1023, 1025, 16_384, 40_000])
def test_an_order_by_windows_has_every_place_once(count: int) -> None:
    order = whole(count, 3, 1)
    assert np.array_equal(np.sort(order), np.arange(count))
    if count > 1000:
        assert np.mean(order == whole(count, 3, 2)) < 0.01
        assert np.mean(order == whole(count, 4, 1)) < 0.01


def test_the_windows_of_an_order_mix_sixteen_blocks_each() -> None:
    size = BLOCK_ROWS * WINDOW_BLOCKS
    windows = [places for _, places in windowed_order(100 * BLOCK_ROWS, 7, 3)]
    assert [len(np.unique(places // BLOCK_ROWS)) for places in windows] == [16, 16, 16, 16, 16, 16, 4]
    assert np.abs(np.diff(whole(size, 0, 1))).mean() == pytest.approx(size / 3, rel=0.03)


@pytest.mark.parametrize("start", [0, 1, 16_383, 16_384, 39_999, 40_000])
def test_an_order_is_entered_in_its_middle(start: int) -> None:
    order = whole(40_000, 3, 1)
    for first, places in windowed_order(40_000, 3, 1, start):
        assert np.array_equal(places, order[first : first + len(places)])
        assert first + len(places) > start
    firsts = [first for first, _ in windowed_order(40_000, 3, 1, start)]
    assert (min(firsts) <= start) if firsts else start == 40_000
