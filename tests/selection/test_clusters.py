"""Clusters of features: found where they are, whatever the units, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from curate.selection import clusters as module
from curate.selection.clusters import clusters

N = 400


def blobs(units=1.0):
    """Four groups of 100, one feature of which is in other units than the rest; and which group each is of."""
    draws = np.random.default_rng(0)
    group = draws.permutation(np.repeat(np.arange(4), N // 4))
    centres = np.array([[0, 0, 0], [6, 0, 0], [0, 6, 0], [0, 0, 6]], np.float64)
    values = centres[group] + draws.normal(0, 0.5, (N, 3))
    values[:, 2] *= units
    return values.astype(np.float16), group


@pytest.mark.parametrize("units", [1.0, 1e-3, 1e3])
def test_groups_are_found(units):
    """Features are standardised: the units of one do not decide."""
    values, group = blobs(units)
    found = clusters(values, 4, 0)
    assert found.dtype == np.int32
    assert sorted(len(set(group[found == number])) for number in range(4)) == [1, 1, 1, 1]


def test_the_same_for_the_same_seed():
    """And other ones for another, where there are more clusters than groups."""
    values, _ = blobs()
    assert np.array_equal(clusters(values, 16, 1), clusters(values, 16, 1))
    assert not np.array_equal(clusters(values, 16, 1), clusters(values, 16, 2))


def test_centres_of_a_sample_serve_all(monkeypatch):
    """Of a large store only some images are fitted on; all are put into a cluster, in parts."""
    monkeypatch.setattr(module, "FITTED_ON", 120)
    monkeypatch.setattr(module, "AT_ONCE", 50)
    values, group = blobs()
    found = clusters(values, 4, 0)
    assert sorted(len(set(group[found == number])) for number in range(4)) == [1, 1, 1, 1]
