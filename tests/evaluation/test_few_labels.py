"""Few labels a class: which images are drawn, what is averaged, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from curate.errors import CurateError, Misuse
from curate.evaluation import few_labels as few
from curate.evaluation.few_labels import few_labels
from curate.evaluation.logistic import Features, FeatureSplits


def splits(seed=0, n=60, classes=3, spread=1.0):
    rng = np.random.default_rng(seed)
    middle = rng.normal(0, 2, (classes, 4))

    def one(count):
        y = np.arange(count) % classes
        return Features((middle[y] + rng.normal(0, spread, (count, 4))).astype(np.float32), y)

    return FeatureSplits(one(n), one(30), one(90))


@pytest.mark.parametrize("labels", [1, 5, 100])
def test_each_class_gives_as_many_images_as_it_has(labels):
    """20 of each class are there."""
    features = splits()
    chosen = few._drawn(features.train.y, labels, 0, 0)
    assert np.bincount(features.train.y[chosen]).tolist() == [min(labels, 20)] * 3
    assert (np.diff(chosen) > 0).all()


def test_draws_differ_and_repeat_themselves():
    """By the seed and the number of the draw alone, so that two networks have the same labels."""
    y = splits().train.y
    assert few._drawn(y, 3, 0, 1).tolist() == few._drawn(y, 3, 0, 1).tolist()
    assert few._drawn(y, 3, 0, 1).tolist() != few._drawn(y, 3, 0, 2).tolist()
    assert few._drawn(y, 3, 0, 1).tolist() != few._drawn(y, 3, 1, 1).tolist()


def test_the_score_is_scikit_learns_on_scaled_features():
    """C = 1 on features of mean 0 and deviation 1 over all of train; the share right by image averages to it."""
    features = splits(spread=2.0)
    found = few_labels(features, 3, 2, draws=4)
    mean, deviation = features.train.x.mean(0), features.train.x.std(0)
    each = []
    for draw in range(4):
        chosen = few._drawn(features.train.y, 2, 0, draw)
        model = LogisticRegression(C=1.0).fit((features.train.x[chosen] - mean) / deviation, features.train.y[chosen])
        each.append(model.score((features.test.x - mean) / deviation, features.test.y))
    assert found.accuracy == pytest.approx(np.mean(each))
    assert found.deviation == pytest.approx(np.std(each, ddof=1))
    assert found.right.mean() == pytest.approx(found.accuracy)
    assert set(np.unique(found.right * 4)) <= {0, 1, 2, 3, 4}


def test_more_labels_are_better():
    """On the average of 20 draws."""
    scores = [few_labels(splits(spread=2.0), 3, labels, draws=20).accuracy for labels in (1, 5, 20)]
    assert scores[0] + 0.02 < min(scores[1:])


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"labels": 0}, Misuse, "--labels-per-class 0: expected at least 1"),
        ({"draws": 0}, Misuse, "--draws 0: expected at least 1"),
        ({"classes": 4}, CurateError, r"train: 1 of 4 classes have no example \(3\)"),
    ],
)
def test_what_cannot_be_meant_is_said(change, kind, message):
    """One line."""
    with pytest.raises(kind, match=message):
        few_labels(splits(), **{"classes": 3, "labels": 2, **change})
