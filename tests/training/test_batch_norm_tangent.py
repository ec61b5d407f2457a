"""Batch norm's tangent from its backward kernel: equal to torch's own rule, and out of the way where that fails."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from curate.models.networks import functional
from curate.training import lookahead


def scene(layer, shape):
    """The layer's parameters away from their start, a direction, and an input of mean 3 and deviation 2."""
    g = torch.Generator().manual_seed(0)
    first = nn.Conv2d(3, 3, 1) if len(shape) == 4 else nn.Linear(3, 3)
    module = nn.Sequential(first, layer).double()
    theta = {n: x.detach() + 0.3 * torch.randn(x.shape, generator=g).double() for n, x in module.named_parameters()}
    along = {n: torch.randn(x.shape, generator=g).double() for n, x in theta.items()}
    x = 3 + 2 * torch.randn(shape, generator=g).double()
    return module, theta, along, lambda net: net(x).square().flatten(1).sum(1).sin()


def by_torch(module, theta, losses, along):
    """The tangent with torch's rules alone."""
    with torch.no_grad(), forward_ad.dual_level():
        duals = {name: forward_ad.make_dual(x, along[name]) for name, x in theta.items()}
        return forward_ad.unpack_dual(losses(functional(module, duals))).tangent


def without_statistics(layer):
    """As `curate.models.networks.without_state` leaves it."""
    layer.running_mean = layer.running_var = layer.num_batches_tracked = None
    return layer


LAYERS = {
    "batch statistics": (without_statistics(nn.BatchNorm2d(3)), (5, 3, 4, 2)),
    "two images of one pixel": (without_statistics(nn.BatchNorm2d(3)), (2, 3, 1, 1)),
    "vectors": (without_statistics(nn.BatchNorm1d(3, eps=0.1)), (6, 3)),
    "no scale": (without_statistics(nn.BatchNorm2d(3, affine=False)), (5, 3, 4, 2)),
    "evaluation": (nn.BatchNorm2d(3).eval(), (5, 3, 4, 2)),
    "group norm": (nn.GroupNorm(1, 3), (5, 3, 4, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_tangent_equals_torchs_own(name):
    """In float64; both are sums of a few hundred terms, so 1e-9 is rounding."""
    module, theta, along, losses = scene(*LAYERS[name])
    found = lookahead.forward_mode(module, theta, losses, along)
    torch.testing.assert_close(found, by_torch(module, theta, losses, along), rtol=1e-9, atol=1e-9)


def test_channels_last_keeps_its_layout_and_values():
    """The same numbers from tensors whose channels lie together."""
    module, theta, along, _ = scene(*LAYERS["batch statistics"])
    x = torch.randn((5, 3, 4, 2), generator=torch.Generator().manual_seed(2)).double()
    found = [
        lookahead.forward_mode(module, theta, lambda net, x=x: net(x).square().sum((1, 2, 3)), along)
        for x in (x, x.contiguous(memory_format=torch.channels_last))
    ]
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
