"""Logistic regression on a handful of labels a class, averaged over draws: where features differ, this shows it.

With many labels nearly any features serve, and a difference between two networks drowns. Features are scaled over all
training images, which takes no labels, and C is 1 (docs/method.md section 7).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from curate.data.target import refuse_gaps
from curate.errors import Misuse
from curate.evaluation import logistic
from curate.evaluation.logistic import Features, FeatureSplits
from curate.rng import key
from curate.types import Floats, Ints

#: Draws of labels that a score is the mean of.
DRAWS = 5
STRENGTH, ITERATIONS = 1.0, 200


@dataclass(frozen=True)
class FewLabels:
    """What was found with so many labels a class.

    Args:
        labels: of each class; fewer where train has fewer.
        accuracy: mean over the draws, of test, in [0, 1].
        deviation: over the draws.
        draws: how many.
        right: shape (test images,), the share of the draws in which an image was classified correctly.
    """

    labels: int
    accuracy: float
    deviation: float
    draws: int
    right: Floats


def few_labels(features: FeatureSplits, classes: int, labels: int, draws: int = DRAWS, seed: int = 0) -> FewLabels:
    """Fit on ``labels`` training images of each class, ``draws`` times, and score test; val is not looked at.

    The same seed draws the same images whatever the features, so that two networks are compared on the same labels.

    Raises:
        CurateError: fewer than two classes, or a class without an image. Misuse: no label or no draw.
    """
    for name, count in (("labels-per-class", labels), ("draws", draws)):
        if count < 1:
            raise Misuse(f"--{name} {count}: expected at least 1")
    refuse_gaps(features.train.y, classes)
    scaled = logistic.standardise(features)
    right = np.stack([_right(scaled, _drawn(scaled.train.y, labels, seed, draw)) for draw in range(draws)])
    each = right.mean(axis=1)
    deviation = float(each.std(ddof=1)) if draws > 1 else 0.0
    return FewLabels(labels, float(each.mean()), deviation, draws, right.mean(axis=0).astype(np.float32))


def _drawn(y: Ints, labels: int, seed: int, draw: int) -> Ints:
    """Places of ``labels`` images of each class, increasing."""
    turn = np.random.default_rng(key(seed, "labels", draw)).permutation(len(y))
    return np.sort(np.concatenate([turn[y[turn] == each][:labels] for each in np.unique(y)]))


def _right(features: FeatureSplits, chosen: Ints) -> Floats:
    some = Features(features.train.x[chosen], features.train.y[chosen])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few rows of many features are separated long before
        model = LogisticRegression(C=STRENGTH, max_iter=ITERATIONS).fit(some.x, some.y)
    return np.asarray(model.predict(features.test.x) == features.test.y, dtype=np.float32)
