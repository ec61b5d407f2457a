"""The torch solver: scikit-learn's optimum in float32, whatever the size of its blocks, and what it records."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from curate.evaluation import lbfgs, logistic
from curate.evaluation.logistic import Features, Fit, Solver, accuracy, fit, inverse_penalty

SKLEARN, TORCH = Solver("sklearn"), Solver("torch")


def digits(classes: int, a_class: int = 20, n_features: int = 64) -> Features:
    """Real digits' pixels as features, the first ``a_class`` of each class; scaled as ReLU features are."""
    data = load_digits(n_class=classes)
    rows = np.concatenate([np.flatnonzero(data.target == label)[:a_class] for label in range(classes)])
    return Features((data.data[rows, :n_features] / 16).astype(np.float32), data.target[rows].astype(np.int64))


def objective(fitted: Fit, split: Features, classes: int) -> float:
    """C * summed cross-entropy + |W|^2 / 2, written out in float64."""
    scores = split.x.astype(np.float64) @ fitted.weights.T + fitted.intercepts
    if classes == 2:
        scores = np.hstack([np.zeros_like(scores), scores])
    rest = np.log(np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)) + scores.max(axis=1)
    entropy = (rest - scores[np.arange(len(split.y)), split.y]).sum()
    strength = inverse_penalty(classes, split.x.shape[1])
    return float(strength * entropy + 0.5 * (fitted.weights.astype(np.float64) ** 2).sum())


class TestAgainstScikitLearn:
    @pytest.mark.parametrize("classes", [2, 3, 10])
    def test_both_end_at_the_same_loss_and_predict_the_same(
        self, classes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ten times nearer to the optimum than by default, where both may stop a little to one side of it."""
        monkeypatch.setattr(lbfgs, "TOLERANCE", 1e-5)
        split, unseen = digits(classes), Features(*_rest(classes))
        ours, theirs = fit(split, classes, TORCH), fit(split, classes, SKLEARN)
        assert ours.converged
        assert theirs.converged
        assert objective(ours, split, classes) == pytest.approx(objective(theirs, split, classes), rel=1e-4)
        # A tie: the two best classes within what float32 and the tolerance leave open.
        sure = _margin(theirs, unseen.x) > 1e-2
        assert sure.mean() > 0.95
        np.testing.assert_array_equal(ours.predict(unseen.x)[sure], theirs.predict(unseen.x)[sure])

    @pytest.mark.parametrize("classes", [2, 10])
    def test_as_used_their_accuracies_agree(self, classes: int) -> None:
        split, unseen = digits(classes), Features(*_rest(classes))
        ours, theirs = fit(split, classes, TORCH), fit(split, classes, SKLEARN)
        assert (ours.solver, theirs.solver) == ("torch", "sklearn")
        assert ours.weights.shape == theirs.weights.shape
        assert accuracy(ours, unseen) == pytest.approx(accuracy(theirs, unseen), abs=0.005)
        assert objective(ours, split, classes) == pytest.approx(objective(theirs, split, classes), rel=1e-2)


def _rest(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Digits that were not fitted."""
    data = load_digits(n_class=classes)
    rows = np.concatenate([np.flatnonzero(data.target == label)[20:60] for label in range(classes)])
    return (data.data[rows] / 16).astype(np.float32), data.target[rows].astype(np.int64)


def _margin(fitted: Fit, x: np.ndarray) -> np.ndarray:
    scores = x.astype(np.float64) @ fitted.weights.T + fitted.intercepts
    if len(fitted.intercepts) == 1:
        return np.abs(scores[:, 0])
    best = np.sort(scores, axis=1)
    return best[:, -1] - best[:, -2]


class TestObjective:
    @pytest.mark.parametrize("block", [1, 50, 10**9])
    def test_the_blocks_add_up_to_the_whole(self, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """30 rows of 3 logits: row by row, 16 and 14 rows, all at once."""
        monkeypatch.setattr(lbfgs, "BLOCK", block)
        split = digits(3, a_class=10)
        x, y = torch.from_numpy(split.x).double(), torch.from_numpy(split.y)
        weights = torch.linspace(-1, 1, 3 * 64, dtype=torch.float64).view(3, 64).requires_grad_()
        intercepts = torch.tensor([0.5, -0.5, 0.25], dtype=torch.float64, requires_grad=True)
        total = lbfgs.accumulate(weights, intercepts, x, y, 2.0)
        fitted = Fit(weights.detach().numpy(), intercepts.detach().numpy(), 0, True, 0.0, "torch")
        # `objective` has C = 3 * 64 / 100; here C = 2 and all is divided by C * n.
        penalty = 0.5 * float(weights.detach().square().sum())
        entropy = (objective(fitted, split, 3) - penalty) / 1.92
        assert float(total) == pytest.approx((2.0 * entropy + penalty) / (2.0 * 30), rel=1e-12)
        assert weights.grad is not None
        assert intercepts.grad is not None
        step = 1e-6
        for place in [(0, 20), (2, 42)]:
            moved = weights.detach().clone()
            moved[place] += step
            there = lbfgs.accumulate(moved.requires_grad_(), intercepts.detach().requires_grad_(), x, y, 2.0)
            assert float(weights.grad[place]) == pytest.approx(float(there - total) / step, rel=1e-3)

    def test_the_intercepts_are_free(self) -> None:
        """At the optimum the residuals of each class sum to zero only where nothing pulls at its intercept."""
        split = digits(3)
        strength = inverse_penalty(3, 64)
        found = lbfgs.minimise(torch.from_numpy(split.x), torch.from_numpy(split.y), 3, strength, 800)
        scores = split.x @ found.weights.T + found.intercepts
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(chances.mean(axis=0), [1 / 3] * 3, atol=lbfgs.TOLERANCE + 1e-6)


class TestRecord:
    def test_the_gradient_is_that_of_the_answer(self) -> None:
        split = digits(3)
        fitted = fit(split, 3, TORCH)
        again = lbfgs.gradient_at(fitted.weights, fitted.intercepts, split.x, split.y, inverse_penalty(3, 64))
        assert fitted.gradient == pytest.approx(again, rel=0.05, abs=1e-6)  # float32 beside float64
        assert fitted.gradient <= lbfgs.TOLERANCE
        assert fitted.converged

    @pytest.mark.parametrize("solver", [TORCH, SKLEARN])
    def test_running_out_of_iterations_is_recorded(self, solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logistic, "MAX_ITERATIONS", 3)
        stopped = fit(digits(3), 3, solver)
        assert (stopped.iterations, stopped.converged) == (3, False)
        assert stopped.gradient > lbfgs.TOLERANCE

    def test_the_same_features_give_the_same_bytes(self) -> None:
        first, second = (fit(digits(3), 3, TORCH) for _ in range(2))
        assert first.weights.tobytes() == second.weights.tobytes()
