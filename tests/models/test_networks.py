"""The networks' shapes, taps and weights; networks as functions of their parameters."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torchvision
from torch import nn

from curate.config.schema import ImageConfig, NetworkConfig
from curate.errors import Misuse
from curate.models.basic_block import BasicBlock
from curate.models.networks import autocast, build, functional, without_state
from curate.rng import generator


def network(name, size=32, colour="rgb", seed=0, **options):
    return build(NetworkConfig(network=name, **options), ImageConfig(crop=size, colour=colour), generator(seed, "net"))


def images(k=2, size=32, channels=3):
    return torch.randn(k, channels, size, size, generator=torch.Generator().manual_seed(1))


#: Features, and the size of layer2 at 32 px, by torchvision's layer table; the small one's by its docstring.
SHAPES = {"resnet18": (512, 128 * 4 * 4), "resnet34": (512, 128 * 4 * 4), "resnet50": (2048, 512 * 4 * 4)}


@pytest.mark.parametrize("name", SHAPES)
def test_a_resnet_has_torchvisions_shapes(name):
    """Four logits; taps are flattened, the last one pooled."""
    net = network(name).eval()
    out = net(images())
    assert out.logits.shape == (2, 4)
    assert out.features.shape == (2, SHAPES[name][0])
    assert net.tap(images(), "layer2").shape == (2, SHAPES[name][1])
    assert torch.equal(net.tap(images(), "pool"), out.features)


def test_a_resnet_computes_what_torchvisions_does():
    """The same weights in torchvision's ResNet-18, its last layer replaced by the head, give the same logits."""
    net = network("resnet18").eval()
    theirs = torchvision.models.resnet18(weights=None).eval()
    theirs.fc = nn.Linear(512, 4)
    renamed = {}
    stem = {"0": "conv1", "1": "bn1"}
    for name, value in net.state_dict().items():
        place, rest = name.removeprefix("stages.").split(".", 1)
        if place == "stem":
            number, rest = rest.split(".", 1)
            place = stem[number]
        renamed[f"{'fc' if place == 'head' else place}.{rest}"] = value
    theirs.load_state_dict(renamed)
    torch.testing.assert_close(net(images()).logits, theirs(images()))


@pytest.mark.parametrize(("colour", "channels"), [("grey", 1), ("rgb", 3)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_the_small_resnet_halves_twice(norm, colour, channels):
    """32 px: width, 2 width and 4 width channels at 32, 16 and 8 px."""
    net = network("small", colour=colour, norm=norm, width=4)
    x = images(channels=channels)
    assert [net.tap(x, f"layer{i}").shape[1] for i in (1, 2, 3)] == [4 * 32 * 32, 8 * 16 * 16, 16 * 8 * 8]
    assert net(x).features.shape == (2, 16)
    assert net(x).logits.shape == (2, 4)


@pytest.mark.parametrize("size", [8, 9, 31])
def test_the_small_resnet_takes_small_and_odd_sizes(size):
    """Padding keeps every stage at one pixel or more."""
    assert network("small", size, width=4)(images(size=size)).logits.shape == (2, 4)


def test_grey_images_enter_a_resnet():
    """The first convolution has one input channel."""
    assert network("resnet18", colour="grey").eval()(images(channels=1)).logits.shape == (2, 4)


def test_group_norm_leaves_no_batch_norm():
    """So one image's output does not depend on the others."""
    net = network("resnet18", norm="group").train()
    torch.testing.assert_close(net(images(3)).logits[:2], net(images(3)[:2]).logits, rtol=1e-4, atol=1e-5)


def test_the_vae_is_the_papers():
    """pixels - hidden - latent - hidden - pixels with ReLU and tanh (docs/method.md), written out by hand."""
    net = network("vae", 6, "grey", hidden=5, latent=2)
    x, noise = images(3, 6, 1), torch.randn(3, 2, generator=torch.Generator().manual_seed(2))
    w = {name: value.detach() for name, value in net.named_parameters()}
    hidden = (x.flatten(1) @ w["encode.weight"].T + w["encode.bias"]).clamp_min(0)
    mean = hidden @ w["to_mean.weight"].T + w["to_mean.bias"]
    log_variance = hidden @ w["to_log_variance.weight"].T + w["to_log_variance.bias"]
    code = mean + (0.5 * log_variance).exp() * noise
    again = (code @ w["decode.weight"].T + w["decode.bias"]).clamp_min(0)
    out = net(x, noise)
    torch.testing.assert_close(out.features, hidden)
    torch.testing.assert_close(out.mean, mean)
    torch.testing.assert_close(out.log_variance, log_variance)
    torch.testing.assert_close(out.reconstruction, (again @ w["to_pixels.weight"].T + w["to_pixels.bias"]).tanh())
    torch.testing.assert_close(net.tap(x, "pool"), hidden)


def test_the_vae_without_noise_draws_the_mean():
    """Noise of zero is the same."""
    net = network("vae", 6, "grey", hidden=5, latent=2)
    torch.testing.assert_close(
        net(images(3, 6, 1)).reconstruction, net(images(3, 6, 1), torch.zeros(3, 2)).reconstruction
    )


@pytest.mark.parametrize(("name", "known"), [("small", "stem, layer1, layer2, layer3, pool"), ("vae", "pool")])
def test_an_unknown_tap_lists_the_known_ones(name, known):
    """Before anything is computed."""
    net = network(name, 8, width=4, hidden=5)
    with pytest.raises(Misuse, match=f"layer9: not a stage of this network; known: {known}"):
        net.tap(images(size=8), "layer9")


@pytest.mark.parametrize("name", ["small", "vae", "resnet18"])
def test_weights_depend_on_the_seed_alone(name):
    """And the global generator is left as it was."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = (network(name, 8, seed=seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


def test_a_network_runs_on_given_parameters():
    """`functional` leaves the module's own alone."""
    net = network("small", 8, width=4).eval()
    doubled = {name: 2 * x.detach() for name, x in net.named_parameters()}
    expected = network("small", 8, width=4).eval()
    expected.load_state_dict({**expected.state_dict(), **doubled})
    own = {name: x.clone() for name, x in net.state_dict().items()}
    torch.testing.assert_close(functional(net, doubled)(images(size=8)).logits, expected(images(size=8)).logits)
    assert all(torch.equal(own[name], x) for name, x in net.state_dict().items())


def test_a_hollow_network_uses_the_batchs_statistics_and_keeps_none():
    """Its outputs are those of training mode; there is nothing in it to update."""
    net = network("small", 8, width=4).train()
    bare = without_state(net).train()
    theta = {name: x.detach() for name, x in net.named_parameters()}
    torch.testing.assert_close(functional(bare, theta)(images(size=8)).logits, net(images(size=8)).logits)
    assert not list(bare.buffers())
    assert all(x.is_meta for x in bare.parameters())
    assert not any(x.is_meta for x in net.parameters())
    assert net.stages["stem"][1].running_mean is not None


def test_half_precision_ends_at_the_outputs():
    """bf16 inside, float32 outside, near the plain result; without a dtype nothing changes."""
    net = network("vae", 8, hidden=20)
    plain = functional(net, {name: x.detach() for name, x in net.named_parameters()})
    assert autocast(plain, None, torch.device("cpu")) is plain
    half = autocast(plain, torch.bfloat16, torch.device("cpu"))(images(size=8))
    assert half.logits is None
    exact = plain(images(size=8)).reconstruction
    assert half.reconstruction.dtype == torch.float32
    assert not torch.equal(half.reconstruction, exact)
    # bf16 has 8 bits of mantissa: 2^-8 of numbers below 1, summed over a few layers.
    assert (half.reconstruction - exact).abs().max() < 0.03


@pytest.mark.parametrize(("stride", "sides"), [(1, (32, 16, 8)), (2, (16, 8, 4))])
def test_the_stems_stride_divides_every_stage(stride, sides):
    """By torch's formula for a 3 x 3 convolution with padding 1; weights are drawn alike."""
    net = network("small", width=4, stem_stride=stride)
    assert [net.maps(images(), f"layer{i}").shape[2] for i in (1, 2, 3)] == list(sides)
    assert torch.equal(net.stages["stem"][0].weight, network("small", width=4).stages["stem"][0].weight)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_projection_takes_the_place_of_the_four_logits(norm):
    """Features are what they were: stages are drawn before the head."""
    net = network("small", width=4, norm=norm, projection=6)
    assert net(images()).logits.shape == (2, 6)
    torch.testing.assert_close(net(images()).features, network("small", width=4, norm=norm)(images()).features)


@pytest.mark.parametrize(("inside", "outside", "stride"), [(4, 4, 1), (4, 8, 2)])
def test_the_block_is_torchvisions(inside, outside, stride):
    """Names, draws, outputs and gradients to the bit: networks that were trained with theirs are read as before."""

    def shortcut():
        return nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 else None

    made = []
    for kind in (BasicBlock, partial(torchvision.models.resnet.BasicBlock, norm_layer=nn.BatchNorm2d)):
        torch.manual_seed(3)
        rest = (nn.BatchNorm2d,) if kind is BasicBlock else ()
        made.append(kind(inside, outside, stride, shortcut(), *rest))
    ours, theirs = made
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), theirs.state_dict().values()))
    x = images(3, 8, inside)
    found = [block(x) for block in made]
    assert torch.equal(*found)
    grads = [torch.autograd.grad(y.square().sum(), list(block.parameters())) for y, block in zip(found, made)]
    assert all(torch.equal(a, b) for a, b in zip(*grads))
