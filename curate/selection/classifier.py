"""Told from the store: a logistic regression of the target's images, unlabelled, against the store's.

Cross-fitted: store and target are halved, each half is judged by the model of the other, so that no image is judged by
a model that has seen it. An image that the target's resemble is told from them no better than by chance.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from curate.errors import CurateError
from curate.selection.base import Scores, Vectors
from curate.selection.f1_cut import f1_cut
from curate.types import Floats, Ints
from shards import shuffle

#: L2 penalty on the mean loss over standardised features.
PENALTY = 0.02
#: Images of each side that a model is fitted on at most; and how many are judged in one go.
FITTED_ON, AT_ONCE = 50_000, 8192
#: Fewest images of each side: two a half.
FEWEST = 4


class CrossFitted(NamedTuple):
    """Probabilities of being the target's, by the other half's model; float32."""

    store: Floats
    target: Floats


def classifier(store: Vectors, target: Vectors, seed: int) -> Scores:
    """The probability, classes weighed alike, and the F1 cut (`curate.selection.f1_cut`).

    Facts: ``pi``, the estimated number of images like the target; ``purity`` of the kept; ``auroc`` of held-out target
    images against the store, whose ceiling is 1 - (share like the target) / 2.
    """
    found = cross_fit(store, target, seed)
    cut = f1_cut(found.store.astype(np.float64), found.target.astype(np.float64))
    answer = np.repeat([0, 1], [len(store), len(target)])
    auroc = float(roc_auc_score(answer, np.concatenate(found)))
    facts = {"pi": cut.like, "purity": cut.purity, "auroc": auroc}
    return Scores(found.store, found.store >= cut.threshold, facts, cut.threshold)


def cross_fit(store: Vectors, target: Vectors, seed: int) -> CrossFitted:
    """Judge each half of both by a model of the other halves.

    Raises:
        CurateError: fewer than `FEWEST` images on a side.
    """
    for name, held in (("store", store), ("target", target)):
        if len(held) < FEWEST:
            raise CurateError(f"the {name} has {len(held)} images that decode; the classifier needs {FEWEST}")
    halves = [_halves(len(held), seed, name) for name, held in (("store", store), ("target", target))]
    judged = CrossFitted(np.empty(len(store), np.float32), np.empty(len(target), np.float32))
    for number in (0, 1):
        model = _Model(store[_few(halves[0][1 - number])], target[_few(halves[1][1 - number])])
        for into, held, half in zip(judged, (store, target), halves):
            into[half[number]] = model.probability(held, half[number])
    return judged


class _Model:
    """Fitted on standardised features; both classes weigh alike."""

    def __init__(self, store: Vectors, target: Vectors) -> None:
        x = np.concatenate([store, target]).astype(np.float32)
        self.mean = x[: len(store)].mean(0)
        self.scale = 1 / (x[: len(store)].std(0) + 1e-6)
        x = (x - self.mean) * self.scale
        y = np.repeat([0, 1], [len(store), len(target)])
        weights = np.repeat([0.5 / len(store), 0.5 / len(target)], [len(store), len(target)]) * len(x)
        self.regression = LogisticRegression(C=1 / (PENALTY * len(x)), max_iter=100, tol=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # near the optimum the order is the same
            self.regression.fit(x, y, sample_weight=weights)

    def probability(self, held: Vectors, rows: Ints) -> Floats:
        """Shape (len(rows),), in parts, so that float32 copies stay small."""
        parts = [rows[at : at + AT_ONCE] for at in range(0, len(rows), AT_ONCE)]
        logits = [self.regression.decision_function((held[part] - self.mean) * self.scale) for part in parts]
        return np.asarray(expit(np.concatenate(logits)), np.float32)


def _halves(count: int, seed: int, name: str) -> tuple[Ints, Ints]:
    turn = shuffle.permutation(seed, f"halves of the {name}", 0, count)
    return np.sort(turn[: count // 2]), np.sort(turn[count // 2 :])


def _few(rows: Ints) -> Ints:
    """At most `FITTED_ON`, spread evenly."""
    return rows[:: -(-len(rows) // FITTED_ON)]
