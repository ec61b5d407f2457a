"""The preconditioned signal and the reference network's against single gradients and SGD written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_scene import batches
from test_head_signal import Mean, watched

from curate.models.networks import functional
from curate.rng import generator
from curate.training import engine
from curate.training.image_gradients import Single, Taped

STEPS = 6
VAE = {"pretext": "reconstruction", "hidden": 7, "latent": 2, "lr": 1e-3}
ROTATION = {"pretext": "rotation", "width": 3}


def losses_of(setup, batch, step):
    """The pretext's losses of the very view of a step."""
    view = setup.pretext.view(batch.pixels, generator(0, "view", 1, step))
    return lambda net: setup.pretext.losses(net, view)


def target_losses_of(setup, step):
    """Those of its target batch."""
    batch = setup.meta_loss.batch(1, step)
    return lambda net: setup.pretext.losses(net, batch)


def single_gradients(losses, setup, theta):
    """(k, parameters), one backward an image."""
    leaves = {name: x.detach().requires_grad_() for name, x in theta.items()}
    found = []
    for value in losses(functional(setup.bare, leaves)):
        row = torch.autograd.grad(
            value, list(leaves.values()), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        found.append(torch.cat([x.flatten() for x in row]).numpy())
    return np.array(found)


def preconditioned(setup, state, decay=0.9, contrast=True, quantile=True, every=1):
    """h of every step by brute force."""
    squares, u_t, u_s, q, expected = Mean(0.96), Mean(decay), Mean(decay), Mean(0.97), []

    def cosines(gradients):
        v = u_t() - (u_s() if contrast else 0)
        p = 1 / (squares() + 1e-3 * squares().mean())
        return (gradients * p) @ v / np.sqrt((v * v) @ p * ((gradients**2) @ p))

    for step in range(STEPS):
        batch = batches()[step % 3]
        own = single_gradients(losses_of(setup, batch, step), setup, state.theta)
        engine.train_epoch(setup, state, 1, [batch])
        if step % every == 0:
            theirs = single_gradients(target_losses_of(setup, step), setup, state.theta)
            if u_s.values:
                q.add(np.quantile(cosines(theirs), 0.1))
            u_t.add(theirs.mean(0))
        bar = min(0.0, q()) if quantile and q.values else 0.0
        expected.append(bar - cosines(own) if u_s.values else np.zeros(len(own)))
        u_s.add(own.mean(0))
        squares.add((own**2).mean(0))
    return expected


@pytest.mark.parametrize(
    ("changes", "told", "kind"),
    [
        (VAE, {}, Taped),
        ({**VAE, "contrast": "none", "meta_average": 0.5}, {"contrast": False, "decay": 0.5}, Taped),
        ({**VAE, "reference": "none", "meta_every": 2}, {"quantile": False, "every": 2}, Taped),
        ({**ROTATION, "norm": "group"}, {}, Taped),
        (ROTATION, {}, Single),
        ({"pretext": "simclr", "width": 3}, {}, Single),
    ],
    ids=lambda given: " ".join(map(str, given.values())) if isinstance(given, dict) else given.__name__,
)
def test_the_preconditioned_signal_is_the_cosine_of_single_gradients(changes, told, kind, monkeypatch):
    """By the tape where images do not touch, else by a backward an image."""
    setup, state = watched(signal="preconditioned", **changes)
    seen, judge = [], setup.step_signal.judge
    monkeypatch.setattr(setup.step_signal, "judge", lambda *all_: (seen.append(all_[1]), judge(*all_))[1])
    expected = preconditioned(setup, state, **told)
    assert {type(images) for images in seen} == {kind}
    for found, wanted in zip(state.method.heard, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
    assert np.abs(np.concatenate(expected[1:])).max() > 1e-3


@pytest.mark.parametrize("changes", [{}, {"reference": "none"}, {"meta_every": 2}, {"norm": "group"}], ids=str)
def test_the_reference_network_is_torchs_sgd_on_the_target(changes):
    """phi by torch.optim on the target batches, the gap of losses before it has moved."""
    setup, state = watched(signal="reference-net", momentum=0.9, **changes)
    phi = {name: x.detach().clone().requires_grad_() for name, x in state.theta.items()}
    optimizer = torch.optim.SGD(phi.values(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    q, expected = Mean(0.97), []
    for step in range(STEPS):
        batch = batches()[step % 3]
        losses = losses_of(setup, batch, step)
        gap = (losses(functional(setup.bare, state.theta)) - losses(functional(setup.bare, phi))).detach().numpy()
        engine.train_epoch(setup, state, 1, [batch])
        if step % changes.get("meta_every", 1) == 0:
            asked = target_losses_of(setup, step)
            theirs = asked(functional(setup.bare, phi))
            q.add(np.quantile((asked(functional(setup.bare, state.theta)) - theirs).detach().numpy(), 0.1))
            optimizer.zero_grad()
            theirs.mean().backward()
            optimizer.step()
        bar = 0.0 if "reference" in changes else min(0.0, q())
        expected.append(bar - gap)
    for found, wanted in zip(state.method.heard, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
    assert np.abs(expected[-1]).max() > 1e-3
