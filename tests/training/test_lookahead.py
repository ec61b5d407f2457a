"""The exact meta-gradient against double backward and finite differences; the SGD step against torch's own."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from curate.config.schema import ImageConfig, MetaConfig, NetworkConfig
from curate.data.augment import Augment
from curate.metalosses import META_LOSSES
from curate.metalosses.base import TargetImages
from curate.models.networks import build, functional, without_state
from curate.pretexts import PRETEXTS
from curate.rng import generator
from curate.training import lookahead, reference

RATES = (0.05, 0.9, 1e-3)
CASES = [
    ("rotation", "prototypical", "small", "batch"),
    ("rotation", "self-supervised", "small", "batch"),
    ("rotation", "prototypical", "small", "group"),
    ("reconstruction", "self-supervised", "vae", "batch"),
    ("reconstruction", "prototypical", "vae", "batch"),
    ("simclr", "self-supervised", "small", "batch"),
    ("simclr", "self-supervised", "small", "group"),
    ("simclr", "prototypical", "small", "batch"),
]


def scene(pretext_name, meta_name, network_name, norm, dtype=torch.float64, size=12, k=6):
    """A network some steps from its start, a source batch and a target batch, all in one dtype."""
    g = torch.Generator().manual_seed(5)
    images = ImageConfig(size=size, crop=size - 2, colour="rgb", mean=(0.5,) * 3, deviation=(0.25,) * 3, mirror=True)
    config = NetworkConfig(network=network_name, norm=norm, width=4, hidden=9, latent=2)
    if pretext_name == "simclr":
        config = dataclasses.replace(config, projection=5, temperature=0.5)
    module = without_state(build(config, images, generator(1, "network"))).train()
    theta = {n: x.detach().to(dtype) for n, x in build(config, images, generator(1, "network")).named_parameters()}
    # Away from the start, where gammas are 1, betas 0 and everything is symmetric.
    theta = {n: (x + 0.1 * torch.randn(x.shape, generator=g, dtype=dtype)).requires_grad_() for n, x in theta.items()}
    velocity = {n: 0.1 * torch.randn(x.shape, generator=g, dtype=dtype) for n, x in theta.items()}
    augment = Augment.of(images)
    pretext = PRETEXTS[pretext_name](augment, config)
    pixels = torch.randint(256, (40, 3, size, size), generator=g, dtype=torch.uint8)
    target = TargetImages(pixels, torch.arange(40) % 4)
    meta = META_LOSSES[meta_name](target, MetaConfig(ways=3, shots=3, queries=2, target_batch=7), augment, pretext, 3)
    view = cast(pretext.view(pixels[:k], generator(1, "view")), dtype)
    batch = cast(meta.batch(1, 1), dtype)
    weights = torch.rand(k, generator=g, dtype=dtype)
    return module, theta, velocity, weights, lambda net: pretext.losses(net, view), lambda net: meta.loss(net, batch)


def cast(batch, dtype):
    """A view or an episode with its floating tensors in ``dtype``."""
    if isinstance(batch, torch.Tensor):
        return batch.to(dtype) if batch.is_floating_point() else batch
    return type(batch)(*(cast(part, dtype) for part in batch))


def fast(module, theta, velocity, weights, source, target, directional=lookahead.forward_mode):
    """The meta-gradient as the engine computes it, from the public pieces."""
    lr, momentum, decay = RATES
    losses = source(functional(module, theta))
    grads = lookahead.gradient((weights * losses).sum() / len(weights), theta)
    ahead, _ = lookahead.sgd_step(theta, velocity, grads, lr, momentum, decay)
    u = lookahead.gradient(target(functional(module, ahead)), ahead)
    return -(lr / len(weights)) * directional(module, theta, source, u), ahead


@pytest.mark.parametrize("case", CASES, ids="-".join)
@pytest.mark.parametrize("directional", [lookahead.forward_mode, lookahead.double_backward])
def test_meta_gradient_equals_double_backward_in_float64(case, directional):
    """With momentum, weight decay and batch norm in training mode; 1e-10 is the bound the project promises."""
    parts = scene(*case)
    expected, ahead = reference.meta_gradient(parts[0], *parts[1:], RATES)
    found, found_ahead = fast(*parts, directional=directional)
    assert expected.abs().min() > 0
    assert torch.linalg.norm(found - expected) / torch.linalg.norm(expected) < 1e-10
    for name in ahead:
        torch.testing.assert_close(found_ahead[name].detach(), ahead[name], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("meta", ["prototypical", "self-supervised"])
def test_meta_gradient_in_float32_on_the_small_resnet(meta):
    """Both sides in one memory layout at 32 px; 1e-4 is the bound the project promises."""
    parts = scene("rotation", meta, "small", "batch", dtype=torch.float32, size=34, k=8)
    expected, _ = reference.meta_gradient(parts[0], *parts[1:], RATES)
    found, _ = fast(*parts)
    assert torch.linalg.norm(found - expected) / torch.linalg.norm(expected) < 1e-4


def test_meta_gradient_equals_finite_differences():
    """Central differences of M(theta'(w)) in float64: step 1e-5, so about 1e-9 of truncation and rounding."""
    module, theta, velocity, weights, source, target = scene("rotation", "prototypical", "small", "batch")
    lr, momentum, decay = RATES

    def meta(w):
        grads = lookahead.gradient((w * source(functional(module, theta))).sum() / len(w), theta)
        ahead, _ = lookahead.sgd_step(theta, velocity, grads, lr, momentum, decay)
        return target(functional(module, ahead)).item()

    step = 1e-5
    expected = torch.tensor(
        [(meta(weights + step * e) - meta(weights - step * e)) / (2 * step) for e in torch.eye(len(weights)).double()],
        dtype=torch.float64,
    )
    found, _ = fast(module, theta, velocity, weights, source, target)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_sgd_step_is_torchs():
    """Three steps of torch.optim.SGD with momentum and weight decay, bit for bit close in float64."""
    g = torch.Generator().manual_seed(0)
    value = torch.randn(7, generator=g, dtype=torch.float64)
    parameter = torch.nn.Parameter(value.clone())
    optimizer = torch.optim.SGD([parameter], lr=0.3, momentum=0.8, weight_decay=0.01)
    theta, velocity = {"x": value.clone().requires_grad_()}, {"x": torch.zeros_like(value)}
    for _ in range(3):
        grad = torch.randn(7, generator=g, dtype=torch.float64)
        parameter.grad = grad.clone()
        optimizer.step()
        theta, velocity = lookahead.sgd_step(theta, velocity, {"x": grad}, 0.3, 0.8, 0.01)
    torch.testing.assert_close(theta["x"].detach(), parameter.detach(), rtol=1e-14, atol=1e-14)


def test_the_tangent_is_each_images_own_inner_product():
    """Entry i is <grad L_i, u> for L_i as it stands in the batch: k reverse passes say the same."""
    module, theta, _, weights, source, target = scene("rotation", "prototypical", "small", "batch")
    u = lookahead.gradient(target(functional(module, theta)), theta)
    rows = [lookahead.gradient(source(functional(module, theta))[i], theta) for i in range(len(weights))]
    expected = torch.stack([sum((row[n] * u[n]).sum() for n in u) for row in rows])
    torch.testing.assert_close(lookahead.forward_mode(module, theta, source, u), expected, rtol=1e-9, atol=1e-12)


class NoForward(torch.autograd.Function):
    """An operator without forward mode; its backward is differentiable."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_evaluator_falls_back_where_forward_mode_is_missing():
    """An operator without jvp is found at the first try, and the fallback is exact."""
    layer = torch.nn.Linear(3, 1).double()
    theta = {n: p.detach().requires_grad_() for n, p in layer.named_parameters()}
    x = torch.arange(12.0, dtype=torch.float64).view(4, 3)

    def losses(net):
        return NoForward.apply(net(x)).square().flatten()

    chosen = lookahead.evaluator(layer, theta, losses)
    assert chosen is lookahead.double_backward
    u = {"weight": torch.ones(1, 3).double(), "bias": torch.ones(1).double()}
    # L = 4 (x.w + b)^2, so <grad L, u> = 8 (x.w + b) (sum x + 1), by hand.
    expected = 8 * layer(x).flatten() * (x.sum(1) + 1)
    torch.testing.assert_close(chosen(layer, theta, losses, u), expected.detach())


def test_evaluator_prefers_forward_mode():
    """Networks of ours have forward mode throughout."""
    module, theta, *_, source, _ = scene("rotation", "prototypical", "small", "batch")
    assert lookahead.evaluator(module, theta, source) is lookahead.forward_mode
