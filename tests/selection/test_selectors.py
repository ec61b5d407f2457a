"""What every selector must hold; then each against an independent small computation."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from curate.config.catalogue import SELECTORS
from curate.errors import CurateError, Misuse
from curate.selection import base, simcore
from curate.selection.classifier import PENALTY, classifier, cross_fit
from curate.selection.nearest import nearest
from curate.selection.semdedup import likeness_before, semdedup
from curate.selection.softdedup import drawn, neighbours, softdedup

every_selector = pytest.mark.parametrize("name", SELECTORS)
OWN, OTHERS, WIDTH = 30, 270, 12


@pytest.fixture(scope="module")
def scene():
    """A store of which the first 30 are like the target: the same Gaussian, three deviations off; and the target."""
    draws = np.random.default_rng(3)
    away = np.r_[np.full(3, 3.0), np.zeros(WIDTH - 3)]
    store = draws.normal(size=(OWN + OTHERS, WIDTH)).astype(np.float16)
    store[:OWN] += away.astype(np.float16)
    return store, (draws.normal(size=(60, WIDTH)) + away).astype(np.float32)


def chosen(name, scene, seed=0):
    return SELECTORS[name](*scene, seed)


@every_selector
def test_scores_lie_in_0_1_and_a_rule_keeps_the_highest(name, scene):
    """So that a cut on the score says the same as the rule, in the ledger and in `curate prune`."""
    scores = chosen(name, scene)
    assert scores.score.dtype == np.float32
    assert scores.score.shape == (OWN + OTHERS,)
    assert ((scores.score >= 0) & (scores.score <= 1)).all()
    assert (scores.own is not None) == SELECTORS.spec(name).has_own_rule
    if scores.own is not None:
        assert scores.score[scores.own].min() > scores.score[~scores.own].max(initial=-1)


@every_selector
def test_a_seed_means_one_choice(name, scene):
    """Twice the same."""
    one, two = chosen(name, scene), chosen(name, scene)
    assert np.array_equal(one.score, two.score)
    assert one.facts == two.facts


@pytest.mark.parametrize("name", [name for name in SELECTORS if SELECTORS.spec(name).needs_target])
def test_what_looks_like_the_target_ranks_high(name, scene):
    """Three deviations off on three of twelve numbers: little overlap, and the most for neighbours."""
    own = np.arange(OWN + OTHERS) < OWN
    assert roc_auc_score(own, chosen(name, scene).score) > 0.9


def test_random_is_another_for_another_seed_and_takes_no_notice(scene):
    """The same for other features, too."""
    one, two = chosen("random", scene), chosen("random", scene, 1)
    assert not np.array_equal(one.score, two.score)
    assert len(set(one.score.tolist())) == len(one.score)
    assert np.array_equal(one.score, chosen("random", (scene[0] * 0, scene[1])).score)


def test_the_classifier_tells_what_it_found(scene):
    """pi near the truth, and the AUROC of held-out target images by scikit-learn and by counting pairs."""
    scores, fitted = classifier(*scene, 0), cross_fit(*scene, 0)
    assert scores.facts["pi"] == pytest.approx(OWN, rel=0.35)
    assert scores.facts["purity"] > 0.7
    pairs = fitted.target[:, None].astype(float) - fitted.store[None]
    assert scores.facts["auroc"] == pytest.approx((pairs > 0).mean() + (pairs == 0).mean() / 2, abs=1e-9)


def test_no_image_is_judged_by_a_model_that_saw_it():
    """Noise of more numbers than images: a model knows every image it saw, and nothing of any other.

    Judged by a model that saw them, all target images score above all of the store (AUROC 1); by others it is chance.
    """
    draws = np.random.default_rng(0)
    store, target = draws.normal(size=(120, 400)), draws.normal(size=(120, 400))
    answer = np.repeat([0, 1], 120)
    seen = LogisticRegression().fit(np.concatenate([store, target]), answer)
    assert roc_auc_score(answer, seen.decision_function(np.concatenate([store, target]))) == 1
    found = cross_fit(store.astype(np.float32), target.astype(np.float32), 0)
    assert roc_auc_score(answer, np.concatenate(found)) == pytest.approx(0.5, abs=0.12)


def test_a_half_is_judged_as_scikit_learn_judges_it(scene):
    """The other half's model, written out: standardised on its store, equal classes, L2 of .02 on the mean loss."""
    store, target = (x.astype(np.float64) for x in scene)
    found = cross_fit(*scene, 0).store
    parts = [base_halves(len(x), name) for x, name in ((store, "store"), (target, "target"))]
    x = np.concatenate([store[parts[0][1]], target[parts[1][1]]])
    y = np.repeat([0, 1], [len(parts[0][1]), len(parts[1][1])])
    scaler = StandardScaler().fit(store[parts[0][1]])
    model = LogisticRegression(C=1 / (PENALTY * len(x)), class_weight="balanced", tol=1e-8, max_iter=1000)
    model.fit(scaler.transform(x), y)
    expected = model.predict_proba(scaler.transform(store[parts[0][0]]))[:, 1]
    assert found[parts[0][0]] == pytest.approx(expected, abs=0.02)


def base_halves(count, name):
    from shards.shuffle import permutation

    turn = permutation(0, f"halves of the {name}", 0, count)
    return np.sort(turn[: count // 2]), np.sort(turn[count // 2 :])


def test_too_few_images_are_refused(scene):
    """Two halves of two."""
    with pytest.raises(CurateError, match="the target has 3 images that decode; the classifier needs 4"):
        classifier(scene[0], scene[1][:3], 0)


def test_nearest_is_the_least_distance(scene):
    """Against all distances, written out."""
    store, target = (x.astype(np.float64) for x in scene)
    mean, deviation = store.mean(0), store.std(0)
    a, b = (store - mean) / deviation, (target - mean) / deviation
    squared = ((a[:, None] - b[None]) ** 2).sum(2).min(1)
    assert nearest(*scene, 0).score == pytest.approx(1 / (1 + squared / WIDTH), rel=1e-3)


def test_simcore_takes_round_by_round_and_stops():
    """By hand: centre 0 takes row 1, centre 1 row 0; then rows 2 and 3; the third round has less than .95 of that."""
    similarity = np.array([[0.2, 1.0], [1.0, 0.1], [0.99, 0.3], [0.1, 0.98], [0.5, 0.4], [0.3, 0.5]], np.float32)
    rows, rounds = simcore.take(similarity)
    assert (rows.tolist(), rounds) == ([1, 0, 2, 3], 2)


def test_simcore_counts_an_image_that_two_centres_want_once():
    """Both want row 0 first; afterwards each the next best that is left."""
    similarity = np.array([[1.0, 1.0], [0.99, 0.2], [0.1, 0.99], [0.1, 0.1]], np.float32)
    rows, rounds = simcore.take(similarity)
    assert (rows.tolist(), rounds) == ([0, 1, 2], 2)


def test_semdedup_looks_at_those_before_as_its_authors_do():
    """The upper triangle's greatest cosine, in one block and in several."""
    unit = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    expected = np.triu(unit @ unit.T, 1)
    expected[np.tril_indices(50)] = -1
    assert likeness_before(unit) == pytest.approx(expected.max(0), abs=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("curate.selection.semdedup.AT_ONCE", 7)
        assert likeness_before(unit) == pytest.approx(expected.max(0), abs=1e-6)


def test_semdedup_keeps_one_of_each_and_of_no_target(scene):
    """40 images four times over, each a little off: 40 stay by the rule, and by a budget of 40."""
    draws = np.random.default_rng(0)
    few = draws.normal(size=(40, WIDTH))
    store = (np.repeat(few, 4, 0) + 0.02 * draws.normal(size=(160, WIDTH))).astype(np.float16)
    scores = semdedup(store, np.empty((0, 0), np.float32), 0)
    for kept in (scores.own, base.best(scores.score, 40)):
        assert sorted(np.flatnonzero(kept) // 4) == list(range(40))


def test_soft_deduplication_gives_copies_together_the_chances_of_one():
    """40 copies, some of them exact, and 40 images that are alone: a first place is a copy's once in 41 draws."""
    draws = np.random.default_rng(0)
    alone = draws.normal(size=(40, WIDTH)).astype(np.float16)
    copies = np.repeat(draws.normal(size=(1, WIDTH)), 40, 0)
    copies[20:] += 0.01 * draws.normal(size=(20, WIDTH))
    store = np.concatenate([copies.astype(np.float16), alone])
    assert neighbours(store).tolist() == [40] * 40 + [1] * 40
    assert softdedup(store, alone[:0], 3).score.argmax() == drawn(1 / neighbours(store), 3)[0]
    firsts = [drawn(np.r_[np.full(40, 1 / 40), np.ones(40)], seed)[0] for seed in range(400)]
    assert 1 <= sum(first < 40 for first in firsts) <= 22  # 9.8 expected, 4 deviations
    assert len(set(firsts)) > 35
    assert softdedup(store, alone[:0], 0).facts == {"distinct": pytest.approx(41)}


def test_a_budget_keeps_the_best_equals_by_row():
    """And no more than there are."""
    assert base.best(np.array([0.1, 0.5, 0.5, 0.9], np.float32), 2).tolist() == [False, True, False, True]
    with pytest.raises(Misuse, match="--keep 5: expected 1 to 4"):
        base.best(np.zeros(4, np.float32), 5)
