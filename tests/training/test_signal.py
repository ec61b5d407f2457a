"""Each option of the signal alone, against a few lines of numpy over a sequence of steps (docs/method.md)."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from curate.config.schema import BeliefConfig
from curate.training import signal

CPU = torch.device("cpu")
SCALE = 0.05


def history(steps=7, k=5, seed=0):
    """h of each step, (steps, k), and u of each step as two parameters, (steps, 4) in all."""
    g = np.random.default_rng(seed)
    return g.normal(size=(steps, k)) * g.uniform(0.1, 10, size=(steps, 1)), g.normal(size=(steps, 4)) + 0.5


def parameters(u):
    return {"x": torch.tensor(u[:3]).view(1, 3), "y": torch.tensor(u[3:])}


def flat(parts):
    return np.concatenate([part.numpy().ravel() for part in parts.values()])


def play(config, hs, us, state=None):
    """Directions and refined signals of a sequence of steps, and the state after it."""
    state = state or signal.Signal.fresh(CPU)
    directions, refined = [], []
    for h, u in zip(hs, us):
        directions.append(flat(signal.direction(state, parameters(u), SCALE, config)))
        refined.append(signal.refine(state, torch.tensor(h), config).signal.numpy())
    return np.array(directions), np.array(refined), state


def options(**changes):
    return BeliefConfig(**{"eta_scale": "raw", "reference": "none", "meta_average": 0.0, **changes})


def running(values, decay):
    """The bias-corrected running mean after each value."""
    weights = [np.array([decay ** (t - s) for s in range(t + 1)]) for t in range(len(values))]
    return np.array([np.tensordot(w, values[: len(w)], 1) / w.sum() for w in weights])


def test_all_off_the_signal_is_h_itself():
    """Paper mode: sign and size as they are, along u."""
    hs, us = history()
    directions, refined, state = play(options(), hs, us)
    assert np.array_equal(refined, hs)
    assert np.array_equal(directions, us)
    assert state.mean_u is None


def test_history_divides_by_the_root_mean_square_of_all_steps():
    """One mean of squares a step, this step included, all steps alike."""
    hs, us = history()
    squares = (hs**2).mean(1)
    expected = hs / np.sqrt(np.cumsum(squares) / np.arange(1, 8))[:, None]
    np.testing.assert_allclose(play(options(eta_scale="history"), hs, us)[1], expected, rtol=1e-12)


def test_recent_divides_by_a_bias_corrected_running_one():
    """Decay 0.99 a step; at the first step it is that step's own mean of squares."""
    hs, us = history()
    expected = hs / np.sqrt(running((hs**2).mean(1), 0.99))[:, None]
    found = play(options(eta_scale="recent"), hs, us)[1]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.sqrt((found[0] ** 2).mean()) == pytest.approx(1)


def test_a_scale_of_zero_gives_no_signal():
    """All h so far are 0: nothing to divide by, and nothing to say."""
    for scale in ("history", "recent"):
        refined = play(options(eta_scale=scale), np.zeros((2, 3)), history()[1][:2])[1]
        assert np.array_equal(refined, np.zeros((2, 3)))


def test_batch_subtracts_the_batchs_mean():
    """Raw, so that nothing else is at work."""
    hs, us = history()
    expected = hs - hs.mean(1, keepdims=True)
    np.testing.assert_allclose(play(options(reference="batch"), hs, us)[1], expected, rtol=1e-12, atol=1e-15)


def helps(us, decay):
    """What a fresh target image was worth up to each step: -(alpha/k) <mean u up to t-1, u_t>; none at the first."""
    means = running(us, decay) if decay else us
    return [-SCALE * means[t - 1] @ us[t] for t in range(1, len(us))]


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_target_subtracts_half_of_what_a_fresh_target_image_helps(average):
    """The bias-corrected mean with decay 0.95 over steps, 0 at the first step, never above 0; the averaged u_(t-1)
    holds no part of u_t."""
    hs, us = history(steps=9)
    us[6:] *= -3
    worth = np.concatenate([[0.0], running(np.array(helps(us, average)), 0.95)])
    assert worth.min() < 0 < worth.max()
    expected = hs - 0.5 * np.minimum(0, worth)[:, None]
    found = play(options(reference="target", meta_average=average), hs, us)[1]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_reference_raises_the_bar():
    """Where target images help each other, an image that helps less than half as much is one that hurts."""
    us = np.ones((3, 4))
    # A fresh target image's worth: -(alpha / k) <u, u> = -0.05 * 4 = -0.2; half of it is -0.1.
    hs = np.array([[-0.15, -0.05]] * 3)
    found = play(options(reference="target"), hs, us)[1]
    np.testing.assert_allclose(found[0], [-0.15, -0.05])
    np.testing.assert_allclose(found[2], [-0.05, 0.05])


def test_the_scale_is_of_the_raw_signal_and_divides_last():
    """Order of a step: square, reference, division."""
    hs, us = history()
    size = np.sqrt(np.cumsum((hs**2).mean(1)) / np.arange(1, 8))[:, None]
    expected = (hs - hs.mean(1, keepdims=True)) / size
    found = play(options(eta_scale="history", reference="batch"), hs, us)[1]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_averaging_u_is_a_bias_corrected_running_mean():
    """It changes where the tangent points; at the first step it is u itself."""
    hs, us = history()
    directions = play(options(meta_average=0.9), hs, us)[0]
    np.testing.assert_allclose(directions, running(us, 0.9), rtol=1e-12)
    np.testing.assert_allclose(directions[0], us[0])


@pytest.mark.parametrize("reference", ["none", "batch", "target"])
@pytest.mark.parametrize("scale", ["raw", "history", "recent"])
def test_rows_that_are_not_finite_are_zero_and_counted(scale, reference):
    """They enter neither the scale nor the batch's mean: the others come out as if they had not been there."""
    config = options(eta_scale=scale, reference=reference)
    bad = torch.tensor([float("nan"), 2.0, float("inf"), -1.0, float("-inf")], dtype=torch.float64)
    found, square, odd = signal.refine(signal.Signal.fresh(CPU), bad, config)
    alone, _, none = signal.refine(signal.Signal.fresh(CPU), bad[[1, 3]], config)
    assert (int(odd), int(none), float(square)) == (3, 0, 2.5)  # (2² + 1²) / 2
    assert found[[0, 2, 4]].tolist() == [0, 0, 0]
    torch.testing.assert_close(found[[1, 3]], alone)


def test_a_batch_without_a_finite_row_moves_nothing():
    """Nor does it poison the steps after it."""
    config, state = options(eta_scale="history"), signal.Signal.fresh(CPU)
    found, _, odd = signal.refine(state, torch.full((3,), float("nan")), config)
    assert found.tolist() == [0, 0, 0]
    assert int(odd) == 3
    assert torch.isfinite(signal.refine(state, torch.ones(3), config).signal).all()


@pytest.mark.parametrize(
    "changes", [{"eta_scale": "history", "reference": "target"}, {"eta_scale": "recent", "meta_average": 0.9}]
)
def test_a_restored_signal_goes_on_to_the_bit(changes):
    """Its scalars go through JSON, its mean u through tensors."""
    hs, us = history()
    config = options(**changes)
    whole = play(config, hs, us)
    state = play(config, hs[:4], us[:4])[2]
    scalars = json.loads(json.dumps(signal.state(state)))
    rest = play(config, hs[4:], us[4:], signal.restore(scalars, state.mean_u, CPU))
    assert np.array_equal(whole[0][4:], rest[0])
    assert np.array_equal(whole[1][4:], rest[1])


def test_the_mean_of_u_does_not_change_what_it_was_made_of():
    """u is the caller's."""
    u = parameters(np.arange(4.0))
    before = {name: x.clone() for name, x in u.items()}
    state = signal.Signal.fresh(CPU)
    for _ in range(3):
        signal.direction(state, u, SCALE, options(meta_average=0.5, reference="target"))
    assert all(torch.equal(u[name], before[name]) for name in u)


def test_the_inner_product_is_summed_in_float64():
    """1e8 + 1 - 1e8 is 1; in float32 it is 0."""
    left = {"x": torch.tensor([1e8, 1.0, -1e8])}
    assert signal.inner(left.values(), {"x": torch.ones(3)}.values()).item() == 1.0
