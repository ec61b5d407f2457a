"""All pairs of features within a cosine distance: those of brute force, whatever the cells, workers and blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_distances

from curate.duplicates import cells, directions
from curate.duplicates import near_pairs as module
from curate.duplicates.groups import distinct, group
from curate.duplicates.near_pairs import digests, near_pairs
from curate.duplicates.sorted_pairs import Pairs
from curate.errors import CurateError
from shards.io.engines import local


def features(n: int, d: int, spread: float = 0.7, seed: int = 0) -> directions.Vectors:
    """Clusters of some fifty, numbers of falling size, a twentieth near-copies."""
    draws = np.random.default_rng(seed)
    sizes = (1 / np.arange(1, d + 1)) ** 0.5
    centres = draws.normal(size=(max(2, n // 50), d)) * sizes
    found = centres[draws.integers(0, len(centres), n)] + spread * draws.normal(size=(n, d)) * sizes
    found[: n // 20] = found[n // 20 : 2 * (n // 20)] + 0.05 * draws.normal(size=(n // 20, d)) * sizes
    return found.astype(np.float16)


def by_brute_force(values: directions.Vectors, within: float) -> dict[tuple[int, int], float]:
    """Written out with scikit-learn, in float64."""
    distance = cosine_distances(values.astype(np.float64))
    return {(a, b): distance[a, b] for a, b in np.argwhere(distance <= within).tolist() if a < b}


def found(chunks: list[Pairs]) -> dict[tuple[int, int], float]:
    """Pairs by their rows, each told once."""
    told = [pair for chunk in chunks for pair in zip(*(column.tolist() for column in chunk))]
    assert len({(a, b) for a, b, _ in told}) == len(told)
    assert all(a < b for a, b, _ in told)
    return {(a, b): distance for a, b, distance in told}


@pytest.mark.parametrize(
    ("n", "d", "within"), [(2000, 24, 0.02), (2000, 24, 0.3), (1500, 200, 0.1), (800, 300, 0.4), (60, 3, 0.05)]
)
def test_they_are_those_of_brute_force(n: int, d: int, within: float) -> None:
    """Short features, and long ones, which are compared by bounds first."""
    values = features(n, d)
    expected, told = by_brute_force(values, within), found(list(near_pairs(values, within)))
    assert len(expected) > 20
    assert told.keys() == expected.keys()
    assert [told[pair] for pair in expected] == pytest.approx(list(expected.values()), abs=1e-6)


def test_cells_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cell holds two thirds, more than is compared in one go; other centres give the same."""
    values = features(600, 16)
    values[200:] = values[200:] * 0.1 + 2
    whole = found(list(near_pairs(values, 0.05)))
    assert whole.keys() == by_brute_force(values, 0.05).keys()
    monkeypatch.setattr(module, "_HIGH", 50)
    monkeypatch.setattr(module, "_WIDE", 30)
    monkeypatch.setattr(directions, "AT_ONCE", 170)
    monkeypatch.setattr(cells, "centres_of", lambda sample, count: sample[:count])
    assert found(list(near_pairs(values, 0.05))) == whole


@pytest.mark.slow
def test_workers_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From a file; to the last bit and in the same order."""
    monkeypatch.setattr(local, "SERIAL_S", 0)
    np.save(tmp_path / "values.npy", features(1500, 100))
    one, two = (list(near_pairs(tmp_path / "values.npy", 0.1, workers)) for workers in (1, 2))
    assert len(one) == len(two) > 0
    for ours, theirs in zip(one, two):
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs))


def test_short_vectors_bound_the_cosines_from_above() -> None:
    """Long features: 64 numbers that leave a part out."""
    values = features(300, 200)
    short = directions.shortened(values, 1.0)(values)
    exact = 1 - cosine_distances(values.astype(np.float64))
    for found, length, slack in ((short, 64, 0.05), (directions.brief(short), 16, 0.1)):
        assert found.shape == (300, length)
        assert np.square(found).sum(1) == pytest.approx(1, abs=1e-5)
        assert (found @ found.T >= exact - 1e-5).all()
        assert (found @ found.T - exact).mean() > slack


def test_nothing_comes_of_too_few_images_and_of_numbers_that_tell_nothing() -> None:
    """No row, one, two that are one another's opposite; numbers that are 0 everywhere."""
    for count in (0, 1, 2):
        assert not found(list(near_pairs(features(count, 4), 0.1)))
    assert not found(list(near_pairs(np.zeros((5, 3), np.float16), 0.1)))
    values = features(200, 20)
    wider = np.concatenate([values, np.zeros((200, 2), np.float16)], 1)
    assert found(list(near_pairs(wider, 0.1))) == found(list(near_pairs(values, 0.1)))


def test_copies_of_one_vector_make_no_quadratic_output() -> None:
    """20,000 of them: compared once, and one group."""
    values = features(300, 12)
    values = np.concatenate([values, np.repeat(values[7:8], 20_000, 0)])
    first, inverse = distinct(digests(values), order=np.arange(len(values)))
    assert len(first) == 300
    pairs = list(near_pairs(values[first], 0.05))
    assert sum(len(chunk.left) for chunk in pairs) < 3000
    assert len(set(group(len(first), pairs, np.arange(len(first)), 0.05)[inverse[300:]].tolist())) == 1


def test_rows_have_one_digest_only_where_they_are_one() -> None:
    """Of either width of numbers; -0 is 0."""
    for dtype in (np.float16, np.float32):
        values = np.array([[0.0, 1], [-0.0, 1], [1, 0], [0, 2], [0, 1]], dtype)
        assert [digests(values).tolist().index(x) for x in digests(values).tolist()] == [0, 0, 2, 3, 0]
    values = np.random.default_rng(0).integers(0, 4, (50_000, 6)).astype(np.float16)
    assert len(np.unique(digests(values))) == len(np.unique(values, axis=0))


def test_features_that_tell_nothing_apart_are_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in place of more pairs than a disk holds."""
    monkeypatch.setattr(module, "MOST", 100)
    monkeypatch.setattr(module, "_MOST_EACH", 1)
    with pytest.raises(CurateError, match=r"more than 400 pairs of images .* within 0\.5 .* take a smaller distance"):
        list(near_pairs(features(400, 8), 0.5))
