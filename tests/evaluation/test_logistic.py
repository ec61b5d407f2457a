"""Logistic regression: the optimum of the written-out objective, the protocol's splits, and its refusals."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from curate.errors import CurateError, Misuse
from curate.evaluation import logistic
from curate.evaluation.logistic import (
    Features,
    FeatureSplits,
    Fit,
    Solver,
    accuracy,
    best_epoch,
    fit,
    fit_and_score,
    inverse_penalty,
    stalled,
    standardise,
    val_accuracy,
)


def blobs(seed: int, classes: int, n: int, n_features: int = 6, spread: float = 1.0) -> Features:
    """Classes around corners of a fixed simplex, every class present."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = 2 * np.eye(classes, n_features)
    return Features((centres[y] + spread * rng.normal(size=(n, n_features))).astype(np.float32), y)


def splits(classes: int = 3, spread: float = 1.0) -> FeatureSplits:
    return FeatureSplits(*(blobs(seed, classes, 30, spread=spread) for seed in (0, 1, 2)))


def objective(flat: np.ndarray[Any, Any], split: Features, classes: int) -> float:
    """C * summed cross-entropy + |W|^2 / 2, with W of shape (logits, M) and free intercepts."""
    logits = 1 if classes == 2 else classes
    weights = flat.reshape(logits, -1)
    scores = split.x.astype(np.float64) @ weights[:, :-1].T + weights[:, -1]
    if classes == 2:  # one logit for the second class, none for the first
        scores = np.hstack([np.zeros_like(scores), scores])
    cross_entropy = -log_softmax(scores, axis=1)[np.arange(len(split.y)), split.y].sum()
    return float(inverse_penalty(classes, split.x.shape[1]) * cross_entropy + 0.5 * (weights[:, :-1] ** 2).sum())


def coefficients(fitted: Fit) -> np.ndarray[Any, Any]:
    return np.hstack([fitted.weights, fitted.intercepts[:, None]])


class TestFit:
    @pytest.mark.parametrize("classes", [2, 3, 5])
    def test_it_ends_at_the_optimum_of_the_written_out_objective(self, classes: int) -> None:
        split = blobs(0, classes, 60)
        fitted = fit(split, classes)
        start = np.zeros(coefficients(fitted).size)
        options = {"maxiter": 5000, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-9}
        best = minimize(objective, start, (split, classes), method="L-BFGS-B", options=options).fun
        assert fitted.converged
        assert objective(coefficients(fitted).ravel(), split, classes) == pytest.approx(best, rel=1e-5)

    @pytest.mark.parametrize(("classes", "n_features", "expected"), [(10, 512, 51.2), (100, 8192, 8192), (2, 50, 1)])
    def test_the_penalty_is_the_protocols(self, classes: int, n_features: int, expected: float) -> None:
        # C = classes * M / 100, so a penalty coefficient of 100 / (classes * M); products by hand.
        assert inverse_penalty(classes, n_features) == pytest.approx(expected)

    def test_the_same_features_give_the_same_coefficients(self) -> None:
        first, second = (coefficients(fit(blobs(0, 3, 60), 3)) for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_running_out_of_iterations_is_recorded_and_not_raised(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logistic, "MAX_ITERATIONS", 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            stopped = fit(blobs(0, 3, 60), 3)
        assert (stopped.iterations, stopped.converged) == (2, False)

    def test_one_class_is_no_task(self) -> None:
        with pytest.raises(CurateError, match=r"^train: expected at least 2 classes, found 1; give a labelled target$"):
            fit(blobs(0, 1, 5), 1)

    def test_classes_without_an_example_are_counted_and_named(self) -> None:
        split = blobs(0, 3, 30)
        with pytest.raises(CurateError, match=r"^train: 1 of 4 classes have no example \(3\); split by class$"):
            fit(split, 4)
        with pytest.raises(
            CurateError, match=r"^train: 9 of 12 classes have no example \(3, 4, 5, 6, 7 \.\.\.\); split"
        ):
            fit(split, 12)


class TestSolver:
    def test_auto_takes_torch_from_the_stated_size_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """60 rows x 6 features x 3 classes = 1080."""
        for large, expected in [(1081, "sklearn"), (1080, "torch")]:
            monkeypatch.setattr(logistic, "LARGE", large)
            assert fit(blobs(0, 3, 60), 3).solver == expected
            assert fit(blobs(0, 3, 60), 3, Solver("sklearn")).solver == "sklearn"

    def test_the_protocol_hands_it_on_to_both_fits(self) -> None:
        parts = splits(spread=1.5)
        by_torch, by_sklearn = (fit_and_score(parts, 3, Solver(name)) for name in ("torch", "sklearn"))
        assert (by_torch.solver, by_sklearn.solver) == ("torch", "sklearn")
        assert by_torch.iterations != by_sklearn.iterations or by_torch.gradient != by_sklearn.gradient
        assert by_torch.test_accuracy == pytest.approx(by_sklearn.test_accuracy, abs=1 / 30)  # one image of 30
        assert 0 < by_sklearn.gradient <= 1e-4  # both fits converged to scikit-learn's tolerance
        assert by_sklearn.val_accuracy == val_accuracy(parts, 3, Solver("sklearn"))

    def test_an_unknown_one_is_misuse(self) -> None:
        with pytest.raises(Misuse, match=r"^--solver newton: unknown; known: auto, sklearn, torch$"):
            fit(blobs(0, 3, 12), 3, Solver("newton"))


class TestProtocol:
    def test_selection_fits_on_train_and_the_result_on_train_and_val(self) -> None:
        parts = splits(spread=1.5)
        both = Features(np.vstack([parts.train.x, parts.val.x]), np.hstack([parts.train.y, parts.val.y]))
        score = fit_and_score(parts, 3)
        assert score.val_accuracy == accuracy(fit(parts.train, 3), parts.val) == val_accuracy(parts, 3)
        assert score.test_accuracy == accuracy(fit(both, 3), parts.test)
        assert score.test_accuracy != accuracy(fit(parts.train, 3), parts.test)  # or this test could not tell
        assert score.converged
        assert score.iterations == max(fit(parts.train, 3).iterations, fit(both, 3).iterations)

    @pytest.mark.parametrize("solver", ["sklearn", "torch"])
    @pytest.mark.parametrize("classes", [2, 3])
    def test_what_is_far_apart_is_told_apart_and_turned_labels_are_all_wrong(self, classes: int, solver: str) -> None:
        parts, by = splits(classes, spread=0.05), Solver(solver)
        assert fit_and_score(parts, classes, by).test_accuracy == 1.0
        turned = replace(parts, test=Features(parts.test.x, (parts.test.y + 1) % classes))
        assert fit_and_score(turned, classes, by).test_accuracy == 0.0

    def test_the_test_split_has_no_part_in_the_selection(self) -> None:
        parts = splits(spread=1.5)
        other = replace(parts, test=Features(-parts.test.x, parts.test.y))
        assert fit_and_score(other, 3).val_accuracy == fit_and_score(parts, 3).val_accuracy

    def test_an_empty_split_and_one_of_other_features_are_named(self) -> None:
        parts = splits()
        empty = replace(parts, val=Features(parts.val.x[:0], parts.val.y[:0]))
        with pytest.raises(
            CurateError, match=r"^val: expected at least one row of 6 features, a label each, found \(0, 6"
        ):
            fit_and_score(empty, 3)
        narrow = replace(parts, test=Features(parts.test.x[:, :5], parts.test.y))
        with pytest.raises(CurateError, match=r"^test: .* of 6 features.* found \(30, 5\) and 30; check the features$"):
            fit_and_score(narrow, 3)

    def test_a_feature_that_is_no_number_is_named(self) -> None:
        parts = splits()
        x = parts.train.x.copy()
        x[4, 2] = np.nan
        with pytest.raises(CurateError, match=r"^train: row 4 has a feature that is no number; check the network$"):
            fit_and_score(replace(parts, train=Features(x, parts.train.y)), 3)

    def test_a_label_outside_the_classes_is_named(self) -> None:
        parts = splits()
        with pytest.raises(CurateError, match=r"^val: expected labels 0 to 2, found 1 to 3; check classes\.txt$"):
            val_accuracy(replace(parts, val=Features(parts.val.x, parts.val.y + 1)), 3)


class TestBestEpoch:
    def test_the_most_accurate_wins_and_the_earliest_of_equals(self) -> None:
        assert best_epoch({3: 0.5, 1: 0.25, 2: 0.5}) == 2
        assert best_epoch({7: 0.0}) == 7

    def test_without_a_score_there_is_no_best(self) -> None:
        with pytest.raises(CurateError, match=r"^best epoch: no epoch was scored; evaluate at least one checkpoint$"):
            best_epoch({})


class TestStalled:
    def test_it_counts_the_epochs_scored_after_the_best(self) -> None:
        assert stalled({1: 0.5}) == 0
        assert stalled({1: 0.5, 2: 0.5, 3: 0.5}) == 2  # the earliest of equals is the best
        assert stalled({1: 0.5, 4: 0.4, 6: 0.6}) == 0
        assert stalled({5: 0.6, 7: 0.1}) == 1


def test_standardised_train_features_have_mean_0_and_deviation_1_and_constants_stay_numbers() -> None:
    parts = splits()
    x = np.hstack([parts.train.x * [1, 10, 100, 1e3, 1e4, 1e-3] + 7, np.full((30, 1), 3)]).astype(np.float32)
    wide = FeatureSplits(*(Features(x + shift, parts.train.y) for shift in (0, 1, 2)))
    done = standardise(wide)
    np.testing.assert_allclose(done.train.x.mean(axis=0), 0, atol=1e-3)  # float32 of 1e-3-wide values around 7
    np.testing.assert_allclose(done.train.x.std(axis=0)[:6], 1, rtol=1e-4)
    assert (done.train.x[:, 6] == 0).all()
    assert (done.val.x[:, 6] == 1).all()  # shifted by train's mean, not by its own
    assert done.val.x.dtype == np.float32
