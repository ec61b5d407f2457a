"""Groups of images by their features: around whom is preferred, with the distance from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_distances

from curate.duplicates.semantic import semantic_groups


def test_copies_stand_with_whom_is_preferred(tmp_path: Path) -> None:
    """30 images, each as it is, twice to the bit, and twice a little off; another order, another representative."""
    draws = np.random.default_rng(0)
    few = draws.normal(size=(30, 20)).astype(np.float16)
    off = (few[:, None] + 0.02 * draws.normal(size=(30, 2, 20))).astype(np.float16)
    values = np.concatenate([few[:, None], few[:, None], off], 1).reshape(-1, 20)
    np.save(tmp_path / "features.npy", values)
    for order in (np.arange(120), np.arange(120)[::-1].copy(), draws.permutation(120)):
        representative, distance = semantic_groups(tmp_path / "features.npy", order, 0.05)
        best = [min(range(4 * image, 4 * image + 4), key=lambda row: order[row]) for image in range(30)]
        assert representative.tolist() == np.repeat(best, 4).tolist()
        exact = cosine_distances(values.astype(np.float64))
        assert distance == pytest.approx(exact[np.arange(120), representative], abs=1e-6)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_images_stand_alone(tmp_path: Path, count: int) -> None:
    """None, and one."""
    np.save(tmp_path / "features.npy", np.zeros((count, 4), np.float16))
    representative, distance = semantic_groups(tmp_path / "features.npy", np.arange(count))
    assert representative.tolist() == list(range(count))
    assert len(distance) == count


def test_20000_copies_are_one_group(tmp_path: Path) -> None:
    """In seconds, whoever is preferred."""
    draws = np.random.default_rng(0)
    values = np.repeat(draws.normal(size=(1, 8)).astype(np.float16), 20_000, 0)
    values[:50] = draws.normal(size=(50, 8))
    np.save(tmp_path / "features.npy", values)
    representative, _ = semantic_groups(tmp_path / "features.npy", np.arange(20_000)[::-1].copy(), 0.01)
    assert set(representative[50:].tolist()) == {19_999}
