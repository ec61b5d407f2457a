"""Features at a tap: pooled or not, of the image itself, and of a network without any training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from curate.config.schema import ImageConfig, NetworkConfig
from curate.data.augment import Augment
from curate.errors import Misuse
from curate.models.calibrate import calibrate
from curate.models.features import at_tap, extract
from curate.models.networks import build
from curate.rng import generator

IMAGES = ImageConfig(size=16, crop=16, colour="rgb", mirror=False, mean=(0.5,) * 3, deviation=(0.25,) * 3)


def network(name="small", **options):
    return build(NetworkConfig(network=name, width=4, **options), IMAGES, generator(0, "network")).eval()


def images(k=3):
    return torch.randn(k, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("tap", "shape"), [("layer2", 8 * 8 * 8), ("layer2:4x4", 8 * 16), ("pool", 16)])
def test_a_tap_has_its_stages_channels_at_its_places(tap, shape):
    """Width 4: layer2 has 8 channels at 8 x 8; pooled by means over 2 x 2."""
    net = network()
    found = at_tap(net, images(), tap)
    assert found.shape == (3, shape)
    if tap == "layer2:4x4":
        by_hand = net.maps(images(), "layer2").unflatten(3, (4, 2)).unflatten(2, (4, 2)).mean((3, 5))
        torch.testing.assert_close(found, by_hand.flatten(1))
    elif tap == "pool":
        assert torch.equal(found, net(images()).features)


def test_a_map_that_is_smaller_stays_as_it_is():
    """layer2 is 8 x 8: at most so many places, so that one setting serves every size."""
    assert torch.equal(at_tap(network(), images(), "layer2:9x9"), at_tap(network(), images(), "layer2"))


def test_one_place_of_the_last_stage_is_the_pool():
    """The average over all places."""
    torch.testing.assert_close(at_tap(network(), images(), "layer3:1x1"), at_tap(network(), images(), "pool"))


@pytest.mark.parametrize("name", ["small", "vae"])
def test_pixels_are_the_image_itself(name):
    """Of any network; normalised, as the network sees them; averaged where that is asked for."""
    net = network(name, hidden=5)
    assert torch.equal(at_tap(net, images(), "pixels"), images().flatten(1))
    torch.testing.assert_close(at_tap(net, images(), "pixels:1x1"), images().mean((2, 3)))
    pixels = torch.randint(256, (5, 3, 16, 16), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
    found = extract(net, pixels, Augment.of(IMAGES), "pixels", torch.device("cpu"))
    np.testing.assert_allclose(found, ((pixels / 255 - 0.5) / 0.25).flatten(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "tap", "message"),
    [
        ("small", "layer9:2x2", "layer9: not a stage of this network; known: stem"),
        ("small", "pool:2x2", "pool has one place already; give --tap pool"),
        ("small", "layer2:0x4", "--tap layer2:0x4: expected a stage, or one averaged to places as in layer2:4x4"),
        ("small", "layer2:4", "expected a stage"),
        ("vae", "pool:2x2", "pool has one place"),
        ("vae", "layer2:4x4", "layer2: not a stage of this network; known: pool"),
    ],
)
def test_a_tap_that_is_not_there_is_said(name, tap, message):
    """One line."""
    with pytest.raises(Misuse, match=message):
        at_tap(network(name, hidden=5), images(), tap)


def test_calibration_measures_the_images_and_moves_no_parameter():
    """After it the stem's output has, per channel, mean 0 and variance 1 before its gain: what batch norm is for."""
    net = network()
    before = {name: x.clone() for name, x in net.named_parameters()}
    batches = [5 * images(40) + 3, 5 * images(24) + 3]
    calibrate(net, batches)
    assert not net.training
    assert all(torch.equal(x, before[name]) for name, x in net.named_parameters())
    maps = [net.stages["stem"][0](batch) for batch in batches]
    mean = sum(x.mean((0, 2, 3)) for x in maps) / 2
    torch.testing.assert_close(net.stages["stem"][1].running_mean, mean, rtol=1e-4, atol=1e-4)
    assert {norm.momentum for norm in net.modules() if isinstance(norm, nn.BatchNorm2d)} == {0.1}


def test_calibration_leaves_a_network_without_batch_norm_alone():
    """Group norm needs none; batches are not even asked for."""

    def never():
        raise AssertionError
        yield

    calibrate(network(norm="group"), never())
