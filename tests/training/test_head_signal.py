"""The head signal against single images' gradients by autograd and numpy's linear algebra, written out step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_scene import CPU, N, batches, begun, scene, settings

from curate.errors import Misuse
from curate.methods.base import MethodInputs
from curate.methods.bdw import Bdw
from curate.models.networks import functional
from curate.rng import generator
from curate.training import engine, head_signal
from curate.training.covariance import Factored, LayerGradients, Whole

STEPS = 7
HEAD = {"signal": "head", "meta_loss": "self-supervised", "warmup": 0, "reference": "quantile", "eta": 10.0}


class Watched(Bdw):
    """Remembers the signal of every step."""

    def __init__(self, given, dtype):
        super().__init__(given, dtype)
        self.heard = []

    def update(self, rows, signal, step):
        self.heard.append(signal.numpy().copy())
        super().update(rows, signal, step)


def watched(**changes):
    """Setup and state whose method remembers; scaled and compared as `changes` say, by default not at all."""
    config = settings(**{**HEAD, **changes})
    method = Watched(MethodInputs(N, config.belief, config.seed, CPU), torch.float64)
    setup, state = scene(config, method=method)
    return setup, begun(state)


def head_of(theta):
    """The names of the last linear layer's parameters."""
    layer = "head" if "head.weight" in theta else "to_pixels"
    return [f"{layer}.weight", f"{layer}.bias"]


def single_gradients(losses, setup, theta):
    """(k, c, f + 1): each image's gradient by the head, one backward an image."""
    leaves = {name: x.detach().requires_grad_() for name, x in theta.items()}
    wanted = [leaves[name] for name in head_of(theta)]
    found = []
    for value in losses(functional(setup.bare, leaves)):
        weight, bias = torch.autograd.grad(value, wanted, retain_graph=True)
        found.append(torch.cat([weight, bias[:, None]], 1).numpy())
    return np.array(found)


class Mean:
    """A bias-corrected running mean as a weighted sum over all that came."""

    def __init__(self, decay):
        self.decay, self.values = decay, []

    def add(self, value):
        self.values.append(value)

    def __call__(self):
        weights = self.decay ** np.arange(len(self.values))[::-1]
        return np.tensordot(weights / weights.sum(), np.array(self.values), 1)


def inverse(moments, ridge):
    return np.linalg.inv(moments + ridge * np.trace(moments) / len(moments) * np.eye(len(moments)))


class WholeOracle:
    """P from the images' gradients."""

    def __init__(self):
        self.moments = Mean(0.99)

    def add(self, gradients, factors):
        flat = gradients.reshape(len(gradients), -1)
        self.moments.add(flat.T @ flat / len(flat))

    def __call__(self):
        return inverse(self.moments(), 0.3)


def played(setup, state, steps=STEPS, every=1, decay=0.97, contrast=True, quantile=True):
    """What the method should have heard: h of every step, by brute force."""
    oracle, u_t, u_s, q, expected = WholeOracle(), Mean(decay), Mean(decay), Mean(0.97), []
    source = [batches()[0], batches()[1], batches()[2]]

    def cosines(gradients):
        v = (u_t() - (u_s() if contrast else 0)).ravel()
        p, flat = oracle(), gradients.reshape(len(gradients), -1)
        return (flat @ p @ v) / np.sqrt((v @ p @ v) * np.einsum("ki,ij,kj->k", flat, p, flat))

    for step in range(steps):
        batch = source[step % 3]
        view = setup.pretext.view(batch.pixels, generator(0, "view", 1, step))
        own = single_gradients(lambda net, view=view: setup.pretext.losses(net, view), setup, state.theta)
        engine.train_epoch(setup, state, 1, [batch])
        if step % every == 0:
            drawn = setup.meta_loss.batch(1, step)
            theirs = single_gradients(lambda net, b=drawn: setup.pretext.losses(net, b), setup, state.theta)
            if u_t.values and u_s.values:
                q.add(np.quantile(cosines(theirs), 0.1))
            u_t.add(theirs.mean(0))
        if u_s.values:
            bar = min(0.0, q()) if quantile and q.values else 0.0
            expected.append(bar - cosines(own))
        else:
            expected.append(np.zeros(len(own)))
        u_s.add(own.mean(0))
        oracle.add(own, None)
    return expected


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, {}),
        ({"norm": "group"}, {}),
        ({"contrast": "none"}, {"contrast": False}),
        ({"reference": "none"}, {"quantile": False}),
        ({"meta_average": 0.5}, {"decay": 0.5}),
        ({"meta_every": 3}, {"every": 3}),
        ({"momentum": 0.9, "target_augment": "none"}, {}),
    ],
    ids=str,
)
def test_it_is_the_cosine_of_single_gradients_in_the_inverse_covariance(changes, told):
    """Every step: the target at the parameters after it, the store at those before, the batch judged apart."""
    setup, state = watched(**changes)
    expected = played(setup, state, **told)
    assert len(state.method.heard) == STEPS
    for found, wanted in zip(state.method.heard, expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
    assert np.abs(np.concatenate(expected[1:])).min() > 1e-6


def test_the_reference_is_at_work_in_these_steps():
    """Else a missing reference would pass the test above."""
    with_it, without = watched(), watched(reference="none")
    for setup, state in (with_it, without):
        engine.train_epoch(setup, state, 1, batches() * 2)
    one, other = with_it[1].method.heard, without[1].method.heard
    gaps = [np.ptp(a - b) for a, b in zip(one, other)]
    assert max(gaps) < 1e-12
    assert min(float((a - b).mean()) for a, b in zip(one, other)) < -1e-3


def gradients(k=9, r=4, f=5, c=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    x, d = (torch.randn((r, k, n), generator=g, dtype=torch.float64) for n in (f, c))
    return LayerGradients(x, d)


def test_factors_give_the_cosine_in_their_kronecker_product():
    """P = (E[g' g] + ridge)^-1 by (E[g g'] + ridge)^-1, formed whole."""
    seen, asked, running = gradients(), gradients(seed=1), {}
    kept = Factored()
    kept.move(running, seen)
    kept.move(running, gradients(seed=2))
    v = torch.randn((3, 5), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = kept.cosines(kept.roots(running), v, asked)
    roots = []
    for formula in ("kcf,kcg->fg", "kcf,kdf->cd"):
        moments = Mean(0.99)
        for each in (seen, gradients(seed=2)):
            g = each.each().numpy().reshape(9, 3, 5)
            moments.add(np.einsum(formula, g, g) / 9)
        roots.append(inverse(moments(), 0.05))
    p, flat, u = np.kron(roots[1], roots[0]), asked.each().numpy(), v.numpy().ravel()
    expected = flat @ p @ u / np.sqrt((u @ p @ u) * np.einsum("ki,ij,kj->k", flat, p, flat))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_of_images_of_one_row_with_independent_factors_both_forms_agree_nearly():
    """Where E[g g'] is the product of its factors, what is left is how the ridge is split."""
    many, few = gradients(k=4000, r=1), gradients(k=20, r=1, seed=1)
    v = torch.randn((3, 5), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = []
    for kept in (Whole(), Factored()):
        running = {}
        kept.move(running, many)
        found.append(kept.cosines(kept.roots(running), v, few).numpy())
    assert np.corrcoef(found)[0, 1] > 0.95


def test_a_large_head_goes_by_factors():
    """The VAE's last layer has 785 times its width of parameters."""
    setup, state = watched(pretext="reconstruction", hidden=7, lr=1e-3)
    assert isinstance(setup.step_signal.covariance, Whole)
    assert isinstance(watched(width=160)[0].step_signal.covariance, Factored)
    wide, _ = scene(settings(**HEAD, width=160), dtype=torch.float32)
    assert wide.step_signal.name == "head"
    engine.train_epoch(setup, state, 1, batches())
    assert np.abs(state.method.heard[1]).max() > 0.01


def test_a_batch_that_is_no_number_is_not_carried_on():
    """Its images say nothing, and the next ones as much as without it."""
    kept = {}
    fine, bad = gradients(), LayerGradients(*(x * float("nan") for x in gradients(seed=1)))
    for kept_of in (Whole(), Factored()):
        kept_of.move(kept, fine)
        before = {name: x.clone() for name, x in kept.items()}
        kept_of.move(kept, bad)
        assert all(torch.equal(before[name], x) for name, x in kept.items())


def test_two_views_of_a_batch_have_no_gradient_of_one_image():
    """Refused before anything is trained."""
    with pytest.raises(Misuse, match="--signal head: under --pretext simclr no image has a gradient of its own"):
        watched(pretext="simclr")


def test_the_last_linear_layer_is_found_by_its_place():
    """And a network that has none is told."""
    setup, _ = watched()
    assert head_signal.last_linear(setup.network)[0] == "head"
    with pytest.raises(Misuse, match="no linear layer"):
        head_signal.last_linear(torch.nn.Conv2d(1, 1, 1))
