"""What every method must hold, over the registry. A method is tested here from the moment it is registered."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from curate.config.schema import BeliefConfig
from curate.methods import METHODS
from curate.methods.base import MethodInputs

CPU = torch.device("cpu")
N = 12
every_method = pytest.mark.parametrize("name", METHODS)
every_momentum = pytest.mark.parametrize("momentum", [0.0, 0.9])
#: Methods that have a weight for every row at any time; l2rw has one for the rows of the batch it has just seen.
standing = pytest.mark.parametrize("name", [name for name in METHODS if name != "l2rw"])


def method(name, seed=0, momentum=0.0, eta=0.5):
    distances = np.linspace(0, 3, N, dtype=np.float32)
    given = MethodInputs(
        N, BeliefConfig(eta=eta, meta_momentum=momentum), seed, CPU, np.arange(N) % 3 > 0, distances, 0.5
    )
    return METHODS[name](given)


def an_epoch(one, rows, epoch, step=0, size=3, signal=None):
    """Visit ``rows`` in order, in batches of ``size``; returns the first step of the next epoch."""
    visit = step + torch.arange(len(rows)) // size
    one.begin_epoch(rows, visit, epoch)
    for batch in rows.split(size):
        if one.learns:
            one.update(batch, batch.double() - 5.5 if signal is None else signal[batch], step)
        step += 1
    one.end_epoch(rows, step)
    return step


def summary(one):
    return [column for column in one.summary(np.arange(N)) if column is not None]


@every_method
def test_a_method_says_what_it_is(name):
    """Only what learns can look ahead or prune; only the oracle turns rows away from the start."""
    one = method(name)
    assert {type(one.learns), type(one.looks_ahead), type(one.prunes)} == {bool}
    assert one.learns or not (one.looks_ahead or one.prunes)
    if one.admitted is not None:
        assert one.admitted.shape == (N,)
        assert one.admitted.dtype == np.bool_
    assert (one.admitted is not None) == (name == "oracle")


@standing
@every_momentum
def test_weights_are_float32_between_0_and_1(name, momentum):
    """One a row of the batch, epoch after epoch, in whatever order it is asked."""
    one, step = method(name, momentum=momentum, eta=5.0), 0
    for epoch in (1, 2, 3):
        step = an_epoch(one, torch.arange(N), epoch, step)
        weights = one.weights(torch.tensor([7, 2, 11, 0]))
        assert weights.shape == (4,)
        assert weights.dtype == torch.float32
        assert ((weights >= 0) & (weights <= 1)).all()
        assert torch.equal(weights, one.weights(torch.arange(N))[[7, 2, 11, 0]])


@every_method
def test_the_weights_of_a_batch_are_finite_float32_and_not_negative(name):
    """Asked after its signal, as the engine does where the look-ahead needs no step."""
    one, batch = method(name), torch.tensor([7, 2, 11])
    one.begin_epoch(torch.arange(N), torch.zeros(N, dtype=torch.int64), 1)
    if one.learns:
        one.update(batch, torch.tensor([-1.0, 0.5, -3.0], dtype=torch.float64), 0)
    weights = one.weights(batch)
    assert weights.dtype == torch.float32
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()
    assert (weights > 0).any()


@every_method
def test_the_summary_is_one_float32_row_an_example(name):
    """The mean in [0, 1]; a and b both there or both not, positive, with mean a / (a + b)."""
    one = method(name)
    an_epoch(one, torch.arange(N), 1)
    found = one.summary(np.array([3, 4, 9]))
    assert found.mean.dtype == np.float32
    assert found.mean.shape == (3,)
    assert ((found.mean >= 0) & (found.mean <= 1)).all()
    assert (found.a is None) == (found.b is None)
    if found.a is not None:
        assert found.a.dtype == found.b.dtype == np.float32
        assert (found.a > 0).all()
        assert (found.b > 0).all()
        np.testing.assert_allclose(found.mean, found.a / (found.a + found.b), rtol=1e-6)


@every_method
@every_momentum
def test_the_same_seed_gives_the_same_weights(name, momentum):
    """And the same state, over several epochs."""
    one, two = (method(name, momentum=momentum) for _ in range(2))
    for each in (one, two):
        an_epoch(each, torch.arange(N), 2, an_epoch(each, torch.arange(N), 1))
    assert torch.equal(one.weights(torch.arange(N)), two.weights(torch.arange(N)))
    assert all(np.array_equal(x, y) for x, y in zip(summary(one), summary(two)))


@every_method
@every_momentum
def test_a_restored_method_goes_on_as_the_one_it_was_saved_from(name, momentum):
    """What the checkpoint holds is enough: the next epochs are equal to the bit."""
    one, two = (method(name, momentum=momentum) for _ in range(2))
    step = an_epoch(one, torch.arange(N), 1)
    two.restore({key: value.clone() for key, value in one.state().items()})
    for each in (one, two):
        an_epoch(each, torch.arange(0, N, 2), 2, step)
    assert torch.equal(one.weights(torch.arange(0, N, 2)), two.weights(torch.arange(0, N, 2)))
    assert all(np.array_equal(x, y) for x, y in zip(summary(one), summary(two)))


@every_method
@every_momentum
def test_rows_that_are_not_trained_on_stay_as_they_are(name, momentum):
    """A pruned row keeps its last belief, whatever happens to the others."""
    one = method(name, momentum=momentum)
    step = an_epoch(one, torch.arange(N), 1)
    before = [column[1::2].copy() for column in summary(one)]
    for epoch in (2, 3):
        step = an_epoch(one, torch.arange(0, N, 2), epoch, step)
    assert all(np.array_equal(x, y[1::2]) for x, y in zip(before, summary(one)))


@every_method
@every_momentum
def test_what_helps_ends_above_what_hurts(name, momentum):
    """A signal below zero says that more weight lowers the target's loss; none moves a row that it says 0 of."""
    one, step = method(name, momentum=momentum), 0
    signal = torch.tensor([-1.0, 0.0, 1.0]).repeat_interleave(4)
    for epoch in (1, 2, 3):
        step = an_epoch(one, torch.arange(N), epoch, step, signal=signal)
    good, idle, bad = one.summary(np.arange(N)).mean.reshape(3, 4)
    if one.learns:
        assert good.min() > idle.max()
        assert idle.min() >= bad.max()
        assert good.min() > bad.max()
    assert np.array_equal(idle, method(name).summary(np.arange(4, 8)).mean)


@every_method
def test_the_state_is_tensors_of_one_row_an_example(name):
    """So a checkpoint grows with the store alone, and rows have one owner."""
    assert all(isinstance(x, torch.Tensor) and x.shape == (N,) for x in method(name, momentum=0.9).state().values())


def test_the_distance_decides_the_weight_of_nn():
    """exp(-0.5 d) of the distances given, by numpy; 0 where the image does not decode."""
    np.testing.assert_allclose(method("nn").summary(np.arange(N)).mean, np.exp(-0.5 * np.linspace(0, 3, N)), rtol=1e-6)
    far = MethodInputs(2, BeliefConfig(), 0, CPU, distances=np.array([0, np.inf], np.float32), decay=1e-5)
    assert METHODS["nn"](far).weights(torch.tensor([1, 0])).tolist() == [0.0, 1.0]
