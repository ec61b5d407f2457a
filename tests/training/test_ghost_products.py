"""The layers' tape: the same gradients and products as autograd, the tangent and double backward, or a refusal."""

from __future__ import annotations

import copy
import dataclasses

import engine_scene
import pytest
import torch
from test_lookahead import RATES, scene
from torch import nn
from torch.nn import functional as F

from curate.methods.base import MethodInputs
from curate.methods.l2rw import L2rw
from curate.models.networks import Outputs, functional, without_state
from curate.training import engine, evaluators, ghost_products, lookahead, reference

CASES = [
    ("rotation", "prototypical", "small", "group"),
    ("rotation", "self-supervised", "small", "group"),
    ("reconstruction", "self-supervised", "vae", "batch"),
    ("reconstruction", "prototypical", "vae", "batch"),
]
every_case = pytest.mark.parametrize("case", CASES, ids="-".join)


def close(found, expected, tolerance=1e-10):
    """Equal to a relative error of the whole."""
    assert (found - expected).norm() <= tolerance * expected.norm()


@every_case
@pytest.mark.parametrize("cheaper", [True, False], ids=["pairs", "contraction"])
def test_meta_gradient_equals_double_backward_and_the_tangent(case, cheaper, monkeypatch):
    """Both ways through a linear layer are exact, and either may be the cheaper one."""
    module, theta, velocity, weights, source, target = scene(*case)
    linear = ghost_products.pairs_are_cheaper
    monkeypatch.setattr(ghost_products, "pairs_are_cheaper", lambda a, b: isinstance(a.layer, nn.Linear) and cheaper)
    assert linear is not None
    lr, momentum, decay = RATES
    expected, ahead = reference.meta_gradient(module, theta, velocity, weights, source, target, RATES)
    tape = ghost_products.Taped(module)
    first = tape.source(theta, source)
    moved, _ = lookahead.sgd_step(theta, velocity, first.gradient(weights), lr, momentum, decay)
    for name, x in moved.items():
        close(x, ahead[name])
    second = tape.target(moved, target)
    close(-(lr / len(weights)) * first.along_target(second), expected)
    u = second.gradient()
    close(first.along(u), lookahead.forward_mode(module, theta, source, u))
    for name, value in lookahead.gradient(target(functional(module, moved)), moved).items():
        torch.testing.assert_close(u[name], value, rtol=1e-9, atol=1e-12)


@every_case
def test_an_image_of_weight_zero_still_has_its_product(case):
    """Nothing is divided by a weight: with every weight 0 the step is none and the products are what they were."""
    module, theta, _, weights, source, target = scene(*case)
    first = ghost_products.Taped(module).source(theta, source)
    assert all((x == 0).all() for x in first.gradient(torch.zeros_like(weights)).values())
    u = lookahead.gradient(target(functional(module, theta)), theta)
    close(first.along(u), lookahead.forward_mode(module, theta, source, u))


class Odd(nn.Module):
    """A convolution with groups, stride and dilation, frozen batch norm, layer norm on positions, ReLUs in place, an
    addition in place, and a linear layer that is visited twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2)
        self.frozen = nn.BatchNorm2d(6)
        self.twice = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.frozen.running_mean.uniform_(-1, 1)
        self.frozen.running_var.uniform_(0.5, 2)

    def train(self, mode=True):
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, x):
        h = F.relu(self.frozen(self.conv(x)), inplace=True)
        h = h.flatten(2).mean(2)
        h = h + self.twice(h)
        out = self.norm(self.twice(h))
        out += h
        return Outputs(out)


def odd_scene():
    torch.manual_seed(3)
    module = Odd().double().train()
    theta = {name: x.detach().clone().requires_grad_() for name, x in module.named_parameters()}
    images = torch.randn(5, 4, 7, 7, dtype=torch.float64)
    return module, theta, lambda net: net(images).features.square().sum(1)


def test_odd_layers_and_a_layer_visited_twice_are_exact():
    """Where a layer is visited twice, the products across its visits are there too."""
    module, theta, losses = odd_scene()
    assert ghost_products.refusal(module) is None
    tape = ghost_products.Taped(module)
    first = tape.source(theta, losses)
    weights = torch.tensor([0.0, 0.2, 1.0, 0.5, 0.7], dtype=torch.float64)
    expected = lookahead.gradient((weights * losses(functional(module, theta))).sum() / 5, theta)
    for name, value in first.gradient(weights).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-12)
    target = tape.target(theta, lambda net: losses(net)[:3].pow(2).mean())
    exact = lookahead.double_backward(module, theta, losses, target.gradient())
    close(first.along_target(target), exact)
    close(first.along(target.gradient()), exact)


def test_batch_norm_in_training_mode_is_refused():
    module = scene("rotation", "prototypical", "small", "batch")[0]
    assert "joins the images of a batch" in ghost_products.refusal(module)
    assert ghost_products.refusal(Odd()) is not None or not Odd().frozen.training
    loose = Odd()
    loose.frozen.train()
    assert "frozen: batch norm" in ghost_products.refusal(loose)


def test_parameters_outside_known_layers_and_odd_paddings_are_refused():
    class Scaled(nn.Linear):
        pass

    outside = nn.Module()
    outside.scale = nn.Parameter(torch.ones(1))
    assert "scale: not a parameter of" in ghost_products.refusal(outside)
    assert ghost_products.refusal(nn.Conv2d(1, 1, 3, padding_mode="circular")) is not None
    assert ghost_products.refusal(nn.Conv2d(1, 1, 3, padding="same")) is not None
    assert ghost_products.refusal(nn.Conv2d(1, 1, 3, padding=1)) is None
    assert ghost_products.refusal(Scaled(2, 2)) is None


def test_an_input_changed_in_place_after_its_layer_is_an_error_not_a_wrong_number():
    class Spoilt(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(2, 2)

        def forward(self, x):
            y = self.one(x)
            x.add_(1)
            return Outputs(y)

    module = Spoilt()
    theta = {name: x.detach().clone().requires_grad_() for name, x in module.named_parameters()}
    with pytest.raises(RuntimeError, match="changed in place"):
        ghost_products.Taped(module).source(theta, lambda net: net(torch.ones(3, 2)).features.sum(1))


def test_a_network_that_couples_images_without_batch_norm_fails_the_check():
    """`agree` finds on a first batch what the list of layers cannot tell."""

    class Mixing(Odd):
        def forward(self, x):
            return Outputs(super().forward(x - x.mean(0)).features)

    module, theta, losses = odd_scene()
    assert evaluators.agree(ghost_products.Taped(module), module, theta, losses)
    mixing = Mixing().double().train()
    mixing.load_state_dict(module.state_dict())

    def joined(net):
        features = net(
            torch.randn(5, 4, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        ).features
        return (features - features.mean(0)).square().sum(1)

    assert not evaluators.agree(ghost_products.Taped(mixing), mixing, theta, joined)


@pytest.mark.parametrize(("norm", "kind"), [("group", ghost_products.Taped), ("batch", evaluators.Tangent)])
def test_the_engine_takes_the_tape_where_it_is_valid(norm, kind):
    config = engine_scene.settings(norm=norm)
    setup, state = engine_scene.scene(config)
    engine.train_epoch(setup, engine_scene.begun(state), 1, engine_scene.batches())
    assert isinstance(state.evaluator, kind)


def test_the_engine_takes_the_tangent_where_a_first_batch_shows_coupling():
    """Every layer is known, and still each loss depends on its batch: through the pretext, in this case."""
    setup, state = engine_scene.scene(engine_scene.settings(norm="group"))

    class Joined(type(setup.pretext)):
        def losses(self, network, view):
            each = super().losses(network, view)
            return each * each.mean()

    setup = dataclasses.replace(setup, pretext=Joined(setup.pretext.part))
    engine.train_epoch(setup, engine_scene.begun(state), 1, engine_scene.batches())
    assert isinstance(state.evaluator, evaluators.Tangent)


def test_a_pretext_that_couples_is_never_taped():
    """Before any batch is looked at: a first batch might agree by chance."""
    setup, state = engine_scene.scene(engine_scene.settings(pretext="simclr", norm="group"))

    def untouched(network):
        raise AssertionError("no batch is needed to see it")

    assert ghost_products.refusal(setup.network) is None
    assert isinstance(engine.choose_evaluator(setup, state.theta, untouched), evaluators.Tangent)


@pytest.mark.parametrize("reference_name", ["none", "target"])
@pytest.mark.parametrize("pretext", ["rotation", "reconstruction"])
def test_an_epoch_by_tape_and_by_tangent_ends_alike(pretext, reference_name):
    """With and without a signal that asks for u itself."""
    ends = []
    for by_tape in (True, False):
        mean = {"mean": (0.5,), "deviation": (0.5,)} if pretext == "reconstruction" else {}
        config = engine_scene.settings(
            norm="group", pretext=pretext, meta_loss="self-supervised", reference=reference_name, lr=1e-3, **mean
        )
        setup, state = engine_scene.scene(config)
        if not by_tape:
            bind = lambda module: lambda theta: functional(module, theta)  # noqa: E731
            state.evaluator = evaluators.Tangent(bind(setup.network), bind(setup.bare), setup.bare)
        engine.train_epoch(setup, engine_scene.begun(state), 1, engine_scene.batches())
        ends.append(state)
    assert isinstance(ends[0].evaluator, ghost_products.Taped)
    close(ends[0].method.log_a, ends[1].method.log_a)
    for name, x in ends[0].theta.items():
        close(x, ends[1].theta[name])


def ren_weights(module, theta, source, target, lr):
    """The original formulation: eps = 0, one look-ahead step of SGD with summed losses, dM/deps by differentiating
    through it, max(0, -), normalised."""
    eps = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    leaves = {name: x.detach().clone().requires_grad_() for name, x in theta.items()}
    grads = torch.autograd.grad(
        (eps * source(functional(module, leaves))).sum(),
        list(leaves.values()),
        create_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    ahead = {name: x - lr * g for (name, x), g in zip(leaves.items(), grads)}
    (slope,) = torch.autograd.grad(target(functional(module, ahead)), eps)
    helps = (-slope).clamp_min(0)
    return helps / helps.sum() if helps.sum() > 0 else helps


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_l2rw_is_the_original_by_double_backward(norm):
    """The weights of a batch, and the step that they make, by tangent (batch norm) and by tape (group norm)."""
    config = engine_scene.settings(norm=norm, momentum=0.0, weight_decay=0.0, meta_loss="prototypical")
    method = L2rw(MethodInputs(engine_scene.N, config.belief, config.seed, engine_scene.CPU))
    method.weight = method.weight.double()
    setup, state = engine_scene.scene(config, method=method)
    batch = engine_scene.batches()[0]
    theta = copy.copy(state.theta)
    source = engine._losses(setup, state, 1, batch)
    episode = setup.meta_loss.batch(1, 0)
    bare = without_state(setup.network).train()
    expected = ren_weights(bare, theta, source, lambda net: setup.meta_loss.loss(net, episode), 0.05)
    engine.train_epoch(setup, state, 1, [batch])
    assert 0 < (expected > 0).sum() < len(expected)
    torch.testing.assert_close(method.weight[batch.rows], expected, rtol=1e-9, atol=1e-12)
    summed = (expected * source(functional(bare, theta))).sum()
    for name, g in lookahead.gradient(summed, theta).items():
        torch.testing.assert_close(state.theta[name], theta[name] - 0.05 * g, rtol=1e-9, atol=1e-12)


def test_l2rw_without_any_help_makes_no_step():
    """All weights zero where no image helps, and 0 / 0 is never seen."""
    given = MethodInputs(4, engine_scene.settings().belief, 0, engine_scene.CPU)
    method = L2rw(given)
    rows = torch.arange(4)
    method.update(rows, torch.tensor([0.0, 1.0, 2.0, 0.5], dtype=torch.float64), 0)
    assert method.weights(rows).tolist() == [0.0] * 4
    method.update(rows, torch.tensor([-1.0, 1.0, -3.0, 0.0], dtype=torch.float64), 1)
    assert method.weights(rows).tolist() == [1.0, 0.0, 3.0, 0.0]  # 1/4 and 3/4, times k = 4
    assert method.summary(rows.numpy()).mean.tolist() == [0.25, 0.0, 0.75, 0.0]
