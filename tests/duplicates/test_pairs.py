"""All pairs within a distance, held against a comparison of each with each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from curate.duplicates import pairs
from curate.duplicates.pairs import Tables, plan, within
from shards.io.parallel import on_progress


def skewed(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Hashes in clusters, some equal, with bits that are mostly set; mirrors that are near other hashes at times."""
    rng = np.random.default_rng(seed)
    weights = rng.beta(0.5, 0.5, 64)
    bits = rng.random((n, 64)) < weights
    copies = rng.integers(0, n, n // 3)
    bits[: n // 3] = bits[copies] ^ (rng.random((n // 3, 64)) < 0.06)
    mirrors = bits ^ (rng.random((n, 64)) < 0.05)
    return tuple(np.packbits(part, axis=1).view(">u8").ravel().astype(np.uint64) for part in (bits, mirrors))


def brute(hashes: np.ndarray, mirrors: np.ndarray, distance: int) -> dict[tuple[int, int], int]:
    """Each with each."""
    apart = np.minimum(
        np.bitwise_count(hashes[:, None] ^ hashes),
        np.minimum(np.bitwise_count(hashes[:, None] ^ mirrors), np.bitwise_count(mirrors[:, None] ^ hashes)),
    )
    left, right = np.nonzero(np.triu(apart <= distance, 1))
    return dict(zip(zip(left.tolist(), right.tolist()), apart[left, right].tolist()))


def found(hashes: np.ndarray, mirrors: np.ndarray, distance: int, workers: int = 1) -> dict[tuple[int, int], int]:
    """What `within` gives, which must be sorted and without repetition."""
    chunks = list(within(hashes, mirrors, distance, workers))
    listed = [(int(a), int(b)) for one in chunks for a, b in zip(one.left, one.right)]
    assert listed == sorted(set(listed))
    return dict(zip(listed, [int(d) for one in chunks for d in one.distance]))


@pytest.mark.parametrize("distance", [0, 1, 3, 8, 12])
def test_pairs_are_those_of_brute_force(distance: int) -> None:
    """Whatever the number of processes."""
    hashes, mirrors = skewed(600)
    wanted = brute(hashes, mirrors, distance)
    assert len(wanted) > distance
    assert found(hashes, mirrors, distance) == wanted == found(hashes, mirrors, distance, workers=2)


@pytest.mark.parametrize("needed", [1, 2, 3, 4])
def test_every_cut_finds_them(needed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A plan is about time only: each choice of blocks gives the same pairs, each in one table."""
    hashes, mirrors = skewed(300, seed=1)
    cut = Tables(pairs._masks(4 + needed), tuple(pairs.combinations(range(4 + needed), needed)))
    monkeypatch.setattr(pairs, "plan", lambda entries, distance: cut)
    path, n = tmp_path / "entries.npy", len(hashes)
    np.save(path, pairs._dealt(np.concatenate([hashes, mirrors])))
    seen = [pair for chosen in cut.chosen for pair in zip(*pairs._of_table(path, n, cut.masks, 4, chosen))]
    assert len(seen) == len({tuple(sorted(pair)) for pair in seen})
    assert found(hashes, mirrors, 4) == brute(hashes, mirrors, 4)


def test_a_search_tells_how_far_it_is() -> None:
    """A table after the other."""
    told = []
    with on_progress(lambda done, total: told.append((done, total))):
        found(*skewed(50), 3)
    assert [done for done, _ in told] == list(range(1, told[0][1] + 1))


def test_blocks_hold_every_bit_once() -> None:
    """Of any number of blocks."""
    for n_blocks in range(1, 17):
        masks = pairs._masks(n_blocks)
        assert np.bitwise_or.reduce(masks) == np.uint64(2**64 - 1)
        assert np.bitwise_count(masks).sum() == 64


def test_keys_are_the_bits_of_their_blocks() -> None:
    """Two hashes have one key exactly where they agree in the blocks; and keys are short."""
    hashes, _ = skewed(400)
    masks = pairs._masks(11)
    for chosen in ([0], [10], [0, 5, 10], [2, 3]):
        key = pairs._key(hashes, masks[chosen])
        bits = hashes & np.bitwise_or.reduce(masks[chosen])
        assert np.array_equal(key[:, None] == key, bits[:, None] == bits)
        assert key.max() < 2 ** int(np.bitwise_count(masks[chosen]).sum())


def test_dealing_moves_every_bit_once() -> None:
    """Distances stay as they were."""
    ones = np.uint64(1) << np.arange(64, dtype=np.uint64)
    assert sorted(pairs._dealt(ones).tolist()) == ones.tolist()
    hashes, _ = skewed(100)
    dealt = pairs._dealt(hashes)
    assert np.array_equal(np.bitwise_count(dealt[:, None] ^ dealt), np.bitwise_count(hashes[:, None] ^ hashes))


def test_more_hashes_take_longer_keys() -> None:
    """Of a few, one block a table is cheapest; of many, runs would be long."""
    rng = np.random.default_rng(0)
    few = rng.integers(0, 2**63, 2000, dtype=np.uint64)
    assert {len(chosen) for chosen in plan(few, 8).chosen} == {1}
    assert len(plan(rng.integers(0, 2**63, 500_000, dtype=np.uint64), 8).chosen[0]) > 1


@pytest.mark.parametrize("n", [0, 1, 2])
def test_hardly_any(n: int) -> None:
    """No pair of none; an image is no copy of itself, though it be its own mirror image."""
    hashes = np.full(n, 7, np.uint64)
    assert found(hashes, hashes, 8) == ({(0, 1): 0} if n == 2 else {})
