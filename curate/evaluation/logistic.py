"""Logistic regression on frozen features: the protocol that picks the best epoch and gives the accuracy.

Owns the fit and the score. Where features come from (network, tap, crop) is the caller's part. The features are taken
as they are; `standardise` is there for who asks for it.

Reference: Ericsson, Gouk, Hospedales, "Don't Wait, Just Weight", 2020, and its authors' code: L-BFGS, at most 800
iterations, C = classes * M / 100 for M features whatever the number of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from curate.data.target import refuse_gaps
from curate.errors import CurateError, Misuse
from curate.evaluation import lbfgs
from curate.types import Floats, Ints, Mask

MAX_ITERATIONS = 800
#: From so many rows x features x classes on, `auto` takes torch. Measured on features of real images, on one core:
#: below 10^6 scikit-learn is up to three times as fast; from 5 x 10^6 to 8 x 10^8 torch takes 0.5 to 1.05 of its time,
#: in half the memory, and only torch works on a GPU. Small problems stay with float64.
LARGE = 10**8


@dataclass(frozen=True)
class Features:
    """Features and labels of one split.

    Args:
        x: shape (n, M), float32.
        y: shape (n,), int64, in 0 .. classes - 1.
    """

    x: Floats
    y: Ints


@dataclass(frozen=True)
class FeatureSplits:
    """The target's three splits: `val` picks the epoch, `test` is for the final score alone."""

    train: Features
    val: Features
    test: Features


@dataclass(frozen=True)
class Solver:
    """Who minimises, and where.

    Args:
        name: sklearn (float64, on the host), torch (float32, on the device; `curate.evaluation.lbfgs`), or auto: torch
            from `LARGE` on.
        device: of torch.
    """

    name: str = "auto"
    device: str = "cpu"

    def chosen(self, size: int) -> str:
        """sklearn or torch, for rows x features x classes.

        Raises:
            Misuse: the name is none of the three.
        """
        if self.name not in ("auto", "sklearn", "torch"):
            raise Misuse(f"--solver {self.name}: unknown; known: auto, sklearn, torch")
        return ("torch" if size >= LARGE else "sklearn") if self.name == "auto" else self.name


@dataclass(frozen=True)
class Score:
    """What the protocol found.

    Args:
        val_accuracy: in [0, 1], of the fit on train: for choosing between epochs.
        test_accuracy: in [0, 1], of the fit on train and val together: the result.
        iterations: L-BFGS iterations of the longer of the two fits.
        converged: False where a fit stopped at the limit or in its line search before it was done.
        gradient: largest component of the mean objective's gradient at the end, of the worse of the two fits.
        solver: of the final fit.
        right: shape (test images,), whether the final fit tells an image's class: what two scores are compared by.
    """

    val_accuracy: float
    test_accuracy: float
    iterations: int
    converged: bool
    gradient: float
    solver: str
    right: Mask = field(compare=False, repr=False)


@dataclass(frozen=True)
class Fit:
    """A fitted classifier, and how its optimisation ended.

    Args:
        weights: shape (classes, M); (1, M) for two classes, of the second against the first.
        intercepts: shape (classes,), or (1,).
        iterations: of L-BFGS.
        converged: False where it stopped before it was done.
        gradient: largest absolute component of the gradient of the mean objective; done means `lbfgs.TOLERANCE`.
        solver: sklearn or torch.
    """

    weights: np.ndarray[Any, np.dtype[np.floating[Any]]]
    intercepts: np.ndarray[Any, np.dtype[np.floating[Any]]]
    iterations: int
    converged: bool
    gradient: float
    solver: str

    def predict(self, x: Floats) -> Ints:
        """The class of each row of (n, M); the first of equals."""
        scores = x.astype(self.weights.dtype) @ self.weights.T + self.intercepts
        best = scores[:, 0] > 0 if len(self.intercepts) == 1 else scores.argmax(axis=1)
        return np.asarray(best, dtype=np.int64)


def fit_and_score(features: FeatureSplits, classes: int, solver: Solver = Solver()) -> Score:
    """The whole protocol: fit on train and score val, then fit on train and val and score test.

    Raises:
        CurateError: a split is empty, has another number of features, a feature that is no number or a label out of
            range; fewer than two classes; a class that train lacks.
    """
    for name, split in (("train", features.train), ("val", features.val), ("test", features.test)):
        _check(name, split, features.train.x.shape[-1], classes)
    first = fit(features.train, classes, solver)
    final = fit(_joined(features.train, features.val), classes, solver)
    right = final.predict(features.test.x) == features.test.y
    return Score(
        val_accuracy=accuracy(first, features.val),
        test_accuracy=float(np.mean(right)),
        iterations=max(first.iterations, final.iterations),
        converged=first.converged and final.converged,
        gradient=max(first.gradient, final.gradient),
        solver=final.solver,
        right=right,
    )


def val_accuracy(features: FeatureSplits, classes: int, solver: Solver = Solver()) -> float:
    """The selection half of `fit_and_score`, for the epochs that only compete; test is not looked at.

    Raises:
        CurateError: as `fit_and_score`.
    """
    for name, split in (("train", features.train), ("val", features.val)):
        _check(name, split, features.train.x.shape[-1], classes)
    return accuracy(fit(features.train, classes, solver), features.val)


def best_epoch(accuracies: Mapping[int, float]) -> int:
    """The epoch with the largest validation accuracy, the earliest of equals.

    >>> best_epoch({1: 0.25, 2: 0.5, 3: 0.5})
    2
    """
    if not accuracies:
        raise CurateError("best epoch: no epoch was scored; evaluate at least one checkpoint")
    return min(accuracies, key=lambda epoch: (-accuracies[epoch], epoch))


def stalled(accuracies: Mapping[int, float]) -> int:
    """How many epochs were scored after the best one.

    >>> stalled({1: 0.25, 2: 0.5, 3: 0.5, 5: 0.4})
    2
    """
    best = best_epoch(accuracies)
    return sum(epoch > best for epoch in accuracies)


def standardise(features: FeatureSplits) -> FeatureSplits:
    """Every feature shifted and scaled to mean 0 and deviation 1 over train; a constant one is only shifted."""
    mean = features.train.x.mean(axis=0, dtype=np.float64)
    deviation = features.train.x.std(axis=0, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, 1.0)

    def scaled(split: Features) -> Features:
        return Features(((split.x - mean) / scale).astype(np.float32), split.y)

    return FeatureSplits(scaled(features.train), scaled(features.val), scaled(features.test))


def inverse_penalty(classes: int, n_features: int) -> float:
    """scikit-learn's C: the weight of the summed cross-entropy against half the squared norm of the coefficients."""
    return classes * n_features / 100


def fit(split: Features, classes: int, solver: Solver = Solver()) -> Fit:
    """Minimise C * (summed cross-entropy) + |coefficients|^2 / 2 from zero; the intercepts are not penalised.

    The same features give the same fit. That L-BFGS did not converge is recorded, not raised.

    Raises:
        CurateError: fewer than two classes, or a class without an example.
        Misuse: an unknown solver.
    """
    refuse_gaps(split.y, classes)
    if solver.chosen(split.x.size * classes) == "torch":
        return _by_torch(split, classes, solver.device)
    return _by_sklearn(split, classes)


def accuracy(fitted: Fit, split: Features) -> float:
    """Share of ``split`` whose label is predicted, in [0, 1]."""
    return float(np.mean(fitted.predict(split.x) == split.y))


def _by_torch(split: Features, classes: int, device: str) -> Fit:
    x, y = (torch.from_numpy(values).to(device) for values in (split.x, split.y))
    found = lbfgs.minimise(x, y, classes, inverse_penalty(classes, split.x.shape[1]), MAX_ITERATIONS)
    converged = found.gradient <= lbfgs.TOLERANCE
    return Fit(found.weights, found.intercepts, found.iterations, converged, found.gradient, "torch")


def _by_sklearn(split: Features, classes: int) -> Fit:
    strength = inverse_penalty(classes, split.x.shape[1])
    model = LogisticRegression(C=strength, max_iter=MAX_ITERATIONS, tol=lbfgs.TOLERANCE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(split.x.astype(np.float64), split.y)
    converged = True
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            converged = False
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    gradient = lbfgs.gradient_at(model.coef_, model.intercept_, split.x, split.y, strength)
    return Fit(model.coef_, model.intercept_, int(model.n_iter_.max()), converged, gradient, "sklearn")


def _joined(first: Features, second: Features) -> Features:
    return Features(np.concatenate([first.x, second.x]), np.concatenate([first.y, second.y]))


def _check(name: str, split: Features, n_features: int, classes: int) -> None:
    if not len(split.y) or split.x.shape != (len(split.y), n_features):
        expected = f"at least one row of {n_features} features, a label each"
        raise CurateError(f"{name}: expected {expected}, found {split.x.shape} and {len(split.y)}; check the features")
    finite = np.atleast_1d(np.isfinite(split.x).all(axis=1))
    if not finite.all():
        raise CurateError(f"{name}: row {int(np.argmin(finite))} has a feature that is no number; check the network")
    if split.y.min() < 0 or split.y.max() >= classes:
        found = f"{split.y.min()} to {split.y.max()}"
        raise CurateError(f"{name}: expected labels 0 to {classes - 1}, found {found}; check classes.txt")
