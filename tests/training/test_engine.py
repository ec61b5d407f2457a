"""The step against independent computations: theta', beliefs, the meta-gradient, and batch norm's statistics."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from engine_scene import CPU, K, N, batches, begun, scene, settings
from scipy import stats

from curate.methods import beta
from curate.methods.base import MethodInputs
from curate.methods.bdw import Bdw
from curate.methods.uniform import Uniform
from curate.models.networks import build, functional, without_state
from curate.pretexts import PRETEXTS
from curate.rng import generator
from curate.training import engine, reference, signal


def implicit_slope(weight, log_a, log_b):
    """dw/dlog a and dw/dlog b at the fixed quantile, by central differences of scipy's CDF over its density."""
    a, b, h = np.exp(log_a), np.exp(log_b), 1e-5
    density = stats.beta.pdf(weight, a, b)
    up, down = (stats.beta.cdf(weight, a * np.exp(e), b) for e in (h, -h))
    right, left = (stats.beta.cdf(weight, a, b * np.exp(e)) for e in (h, -h))
    return -(up - down) / (2 * h * density), -(right - left) / (2 * h * density)


CASES = [
    ("rotation", "prototypical"),
    ("rotation", "self-supervised"),
    ("reconstruction", "self-supervised"),
    ("reconstruction", "prototypical"),
    ("simclr", "self-supervised"),
]


@pytest.mark.parametrize(("pretext", "meta_loss"), CASES)
def test_an_epoch_is_the_method_written_out(pretext, meta_loss):
    """Three steps, the last of a short batch: theta' and dM/dw by double backward, beliefs by scipy's Beta."""
    lr = 1e-3 if pretext == "reconstruction" else 0.05
    config = settings(pretext=pretext, meta_loss=meta_loss, momentum=0.9, lr=lr, hidden=7)
    setup, state = scene(config)
    theta, velocity = dict(state.theta), dict(state.velocity)
    module, rates = without_state(setup.network).train(), (lr, 0.9, 1e-3)
    draw = beta.draw(torch.zeros(N), torch.zeros(N), generator(config.seed, "beta", 1))
    slopes = implicit_slope(draw.weight.numpy(), np.zeros(N), np.zeros(N))
    engine.train_epoch(setup, begun(state), 1, batches())
    logs = np.zeros((2, N))
    for step, batch in enumerate(batches()):
        view = setup.pretext.view(batch.pixels, generator(config.seed, "view", 1, step))
        episode = setup.meta_loss.batch(1, step)
        h, ahead = reference.meta_gradient(
            module,
            theta,
            velocity,
            draw.weight[batch.rows],
            lambda net, view=view: setup.pretext.losses(net, view),
            lambda net, episode=episode: setup.meta_loss.loss(net, episode),
            rates,
        )
        velocity = {name: (theta[name].detach() - ahead[name]) / lr for name in theta}
        theta = ahead
        logs[:, batch.rows] = -20 * h.numpy() * np.array(slopes)[:, batch.rows]
    for name in theta:
        torch.testing.assert_close(state.theta[name].detach(), theta[name], rtol=1e-9, atol=1e-11)
    # torch's own approximation of a slope is off by up to 1.7e-6 of it in these draws.
    np.testing.assert_allclose([state.method.log_a, state.method.log_b], logs.clip(-5, 7), rtol=1e-5, atol=1e-9)
    assert np.abs(logs).max() > 1e-3


@pytest.mark.parametrize("pretext", PRETEXTS)
def test_uniform_weights_are_torchs_sgd(pretext):
    """Two epochs with momentum and weight decay, the rate divided by 10 after the first, a short last batch each."""
    config = settings(pretext=pretext, method="uniform", momentum=0.9, lr=1e-3, hidden=7)
    setup, state = scene(config, method=Uniform())
    theirs = build(config.network, config.images, generator(config.seed, "network")).double().train()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-3)
    step = 0
    for epoch in (1, 2):
        optimizer.param_groups[0]["lr"] = {1: 1e-3, 2: 1e-4}[epoch]
        for batch in batches():
            optimizer.zero_grad()
            view = setup.pretext.view(batch.pixels, generator(config.seed, "view", epoch, step))
            setup.pretext.losses(theirs, view).mean().backward()
            optimizer.step()
            step += 1
        engine.train_epoch(setup, state, epoch, batches())
    for name, value in theirs.named_parameters():
        torch.testing.assert_close(state.theta[name].detach(), value.detach(), rtol=1e-12, atol=1e-13)
    for name, value in theirs.named_buffers():
        torch.testing.assert_close(setup.network.get_buffer(name), value, rtol=1e-12, atol=1e-13)


def buffers(setup):
    return {name: value.clone() for name, value in setup.network.named_buffers()}


def test_running_statistics_move_once_a_step():
    """As in a plain step with the same view: the meta-forward and the tangent leave them alone."""
    learning, plain = scene(settings()), scene(settings(method="uniform"), method=Uniform())
    engine.train_epoch(*(learning[0], begun(learning[1])), 1, batches()[:1])
    engine.train_epoch(*plain, 1, batches()[:1])
    found, expected = buffers(learning[0]), buffers(plain[0])
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    counts = [value.item() for name, value in found.items() if name.endswith("num_batches_tracked")]
    assert counts == [1] * len(counts)


def test_the_meta_forward_moves_them_too_where_it_is_asked_to():
    """`--meta-updates-bn`: twice a step, the tangent still not."""
    setup, state = scene(settings(meta_updates_bn=True))
    engine.train_epoch(setup, begun(state), 1, batches()[:1])
    counts = [value.item() for name, value in buffers(setup).items() if name.endswith("num_batches_tracked")]
    assert counts == [2] * len(counts)


def test_measuring_a_meta_gradient_leaves_the_state_as_it_was():
    """h is the reference's; neither theta, velocity, statistics nor beliefs move."""
    config = settings(momentum=0.9)
    setup, state = scene(config)
    engine.train_epoch(setup, begun(state), 1, batches())
    theta, velocity, statistics = dict(state.theta), dict(state.velocity), buffers(setup)
    log_a = state.method.log_a.clone()
    batch = batches()[0]
    h = engine.meta_gradient(setup, state, batch)
    view = setup.pretext.view(batch.pixels, generator(config.seed, "view", 1, state.step))
    expected, _ = reference.meta_gradient(
        without_state(setup.network).train(),
        theta,
        velocity,
        state.method.weights(batch.rows),
        lambda net: setup.pretext.losses(net, view),
        lambda net: setup.meta_loss.loss(net, setup.meta_loss.batch(1, state.step)),
        (0.05, 0.9, 1e-3),
    )
    torch.testing.assert_close(h, expected, rtol=1e-9, atol=1e-14)
    assert state.theta == theta
    assert state.velocity == velocity
    assert all(torch.equal(value, buffers(setup)[name]) for name, value in statistics.items())
    assert torch.equal(state.method.log_a, log_a)


def test_a_warm_up_samples_weights_and_learns_none():
    """Weights enter the loss as always; beliefs stay, and the target is not asked."""
    setup, state = scene(settings(warmup=1))
    plain_setup, plain = scene(settings(method="uniform"), method=Uniform())
    totals, _ = engine.train_epoch(setup, begun(state), 1, batches())
    engine.train_epoch(plain_setup, plain, 1, batches())
    assert totals.numbers()["meta_loss"] == 0
    assert not state.method.log_a.any()
    assert any(not torch.equal(state.theta[name], plain.theta[name]) for name in plain.theta)
    engine.train_epoch(setup, begun(state, 2, 3), 2, batches())
    assert state.method.log_a.any()


def test_totals_are_means_over_the_steps():
    """The last, short step counts as much as the others; weights and losses are those of the batches."""
    setup, state = scene(settings())
    draw = beta.draw(torch.zeros(N), torch.zeros(N), generator(0, "beta", 1)).weight
    totals, seconds = engine.train_epoch(setup, begun(state), 1, batches())
    numbers = totals.numbers()
    assert (totals.steps, totals.images, state.step) == (3, N, 3)
    expected = np.mean([draw[batch.rows].mean().item() for batch in batches()])
    assert numbers["mean_weight"] == pytest.approx(expected, rel=1e-12)
    # Four turns told apart by chance: -log(1/4) = 1.386; untrained, and weights below 1 hardly train it.
    assert 1.0 < numbers["pretext_loss"] < 2.5
    assert numbers["meta_loss"] > 0
    assert numbers["meta_gradient_rms"] > 0
    assert set(seconds) == {"load", "step"}


def test_the_rate_is_divided_by_ten_after_each_drop():
    """Epochs from 1: the drops' own epochs still have the old rate."""
    config = settings(lr=0.1, lr_drops=(2, 3))
    assert [engine.learning_rate(config, epoch) for epoch in (1, 2, 3, 4)] == pytest.approx([0.1, 0.1, 0.01, 0.001])


def test_the_rate_may_follow_steps():
    """Steps from 0: so many are taken at the old rate, in whatever epoch."""
    config = settings(lr=0.1, lr_drops=(2, 3), schedule="step", steps=9)
    found = [engine.learning_rate(config, epoch, step) for epoch, step in ((1, 0), (1, 1), (5, 2), (1, 3))]
    assert found == pytest.approx([0.1, 0.1, 0.01, 0.001])


def test_the_rate_may_fall_as_a_cosine():
    """Half a cosine over all steps, of which a tenth (at most 20) rise."""
    config = settings(lr=0.1, lr_drops=(), schedule="cosine", steps=100)
    found = [engine.learning_rate(config, 1, step) for step in (0, 9, 50, 99, 100)]
    slow = [0.5 * (1 + np.cos(np.pi * step / 100)) for step in (0, 9, 50, 99, 100)]
    assert found == pytest.approx([0.1 * x * rise for x, rise in zip(slow, (0.1, 1, 1, 1, 1))])
    long = settings(lr=0.1, lr_drops=(), schedule="cosine", steps=10_000)
    assert engine.learning_rate(long, 1, 9) == pytest.approx(0.05, rel=1e-4)


def test_the_average_of_u_is_what_the_tangent_is_taken_along():
    """Step 2 with `--meta-average .9`: h along the bias-corrected mean of u_1 and u_2, (.9 u_1 + u_2) / 1.9."""
    us, refined = [], []
    config = settings(meta_average=0.9)
    setup, state = scene(config)

    class Watched(Bdw):
        def update(self, rows, values, step):
            refined.append(values.clone())
            super().update(rows, values, step)

    state.method = Watched(MethodInputs(N, config.belief, config.seed, CPU), torch.float64)
    theta_before = []
    begun(state)
    for batch in batches()[:2]:
        theta_before.append(dict(state.theta))
        step = state.step
        engine.train_epoch(setup, state, 1, [batch])
        net = functional(setup.bare, state.theta)
        loss = setup.meta_loss.loss(net, setup.meta_loss.batch(1, step))
        us.append(
            dict(
                zip(
                    state.theta,
                    torch.autograd.grad(loss, list(state.theta.values()), materialize_grads=True, allow_unused=True),
                )
            )
        )
    batch = batches()[1]
    view = setup.pretext.view(batch.pixels, generator(config.seed, "view", 1, 1))
    losses = setup.pretext.losses(functional(setup.bare, theta_before[1]), view)
    mean = {name: (0.9 * us[0][name] + us[1][name]) / 1.9 for name in us[0]}
    leaves = list(theta_before[1].values())
    rows = [
        torch.autograd.grad(x, leaves, retain_graph=True, materialize_grads=True, allow_unused=True) for x in losses
    ]
    expected = torch.stack([-0.05 / K * sum((g * mean[n]).sum() for n, g in zip(mean, row)) for row in rows])
    torch.testing.assert_close(refined[1], expected, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("pretext", PRETEXTS)
def test_bf16_forwards_stay_near_float32(pretext):
    """Autocast of the plain and the meta forward: losses and signal stay float32, theta' near; it runs on the CPU."""
    config = settings(pretext=pretext, meta_loss="self-supervised", hidden=7, lr=1e-3)
    exact, half = (scene(config, dtype=torch.float32) for _ in range(2))
    half = (dataclasses.replace(half[0], autocast=torch.bfloat16), half[1])
    for setup, state in (exact, half):
        engine.train_epoch(setup, begun(state), 1, batches())
    for name, value in exact[1].theta.items():
        assert half[1].theta[name].dtype == torch.float32
        torch.testing.assert_close(half[1].theta[name], value, rtol=0.1, atol=0.02)


def test_a_fresh_signal_is_part_of_the_beginning():
    """Nothing is carried from another run: no velocity, no mean of u, step 0."""
    _, state = scene(settings())
    assert state.step == 0
    assert not any(value.any() for value in state.velocity.values())
    assert signal.state(state.signal) == dict.fromkeys(("square", "weight", "help", "help_weight", "mean_weight"), 0.0)


def test_another_arithmetic_is_not_computed_by_the_evaluator_of_the_first():
    """The measurement that decides between bf16 and float32 asks one state under several setups."""
    setup, state = scene(settings(), torch.float32)
    begun(state)
    batch = batches()[0]
    setup.network.train()
    setup.bare.train()
    exact = engine.meta_gradient(setup, state, batch)
    half = engine.meta_gradient(dataclasses.replace(setup, autocast=torch.bfloat16), state, batch)
    assert not torch.equal(half, exact)
    assert torch.equal(engine.meta_gradient(setup, state, batch), exact)
