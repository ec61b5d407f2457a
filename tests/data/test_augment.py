"""Crops, mirrors, turns and normalisation against slices, torch.rot90 and the formula."""

from __future__ import annotations

import pytest
import torch

from curate.config.schema import ImageConfig
from curate.data import augment
from curate.data.augment import (
    STRENGTHS,
    Augment,
    Strength,
    centre_crop,
    crop_and_mirror,
    normalise,
    resized_crop,
    rotations,
    toned,
)
from curate.rng import generator


def pixels(k, size, channels=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(256, (k, channels, size, size), generator=g, dtype=torch.uint8)


def places(image, crop, found):
    """Every (top, left, mirrored) whose slice of ``image`` is ``found``."""
    size = image.shape[-1]
    return [
        (top, left, mirrored)
        for top in range(size - crop + 1)
        for left in range(size - crop + 1)
        for mirrored in (False, True)
        if torch.equal(_slice(image, top, left, crop, mirrored), found)
    ]


def _slice(image, top, left, crop, mirrored):
    cut = image[:, top : top + crop, left : left + crop]
    return cut.flip(2) if mirrored else cut


@pytest.mark.parametrize("channels", [1, 3])
def test_each_image_is_a_slice_of_itself(channels):
    """All positions and both mirrors are reached, each by one draw an image; 400 draws over 3 x 3 x 2 places."""
    images = pixels(400, 7, channels)
    out = crop_and_mirror(images, 5, True, generator(0, "view"))
    assert out.shape == (400, channels, 5, 5)
    assert out.dtype == torch.uint8
    found = [places(image, 5, cut) for image, cut in zip(images, out)]
    assert all(len(places_of_one) == 1 for places_of_one in found)
    assert len({place for (place,) in found}) == 18


def test_without_mirror_nothing_is_mirrored():
    """The crops stay those of the same key with mirror."""
    images = pixels(60, 7)
    with_, without = (crop_and_mirror(images, 5, mirror, generator(0, "view")) for mirror in (True, False))
    for image, one, two in zip(images, with_, without):
        ((top, left, mirrored),) = places(image, 5, two)
        assert not mirrored
        assert places(image, 5, one)[0][:2] == (top, left)


def test_a_crop_of_the_whole_size_only_mirrors():
    """The edge: one position."""
    images = pixels(40, 6)
    assert torch.equal(crop_and_mirror(images, 6, False, generator(0, "view")), images)
    out = crop_and_mirror(images, 6, True, generator(0, "view"))
    mirrored = [torch.equal(cut, image.flip(2)) for image, cut in zip(images, out)]
    assert {True, False} == set(mirrored)


def test_the_draws_after_a_crop_do_not_depend_on_the_mirror():
    """The VAE's noise comes from the same generator: it must not move when the mirror is switched on."""
    after = []
    for crop, mirror in ((6, False), (6, True)):
        g = generator(0, "view")
        crop_and_mirror(pixels(4, 6), crop, mirror, g)
        after.append(torch.rand(2, generator=g))
    assert torch.equal(after[0], after[1])


def test_the_same_key_gives_the_same_view():
    """And another another."""
    images = pixels(8, 9)
    one, two, other = (crop_and_mirror(images, 5, True, generator(0, "view", 1, step)) for step in (3, 3, 4))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("size", "crop", "first"), [(8, 4, 2), (9, 4, 2), (5, 5, 0)])
def test_the_centre_crop_is_the_middle(size, crop, first):
    """Of an odd margin the larger part lies right and below."""
    images = pixels(2, size)
    assert torch.equal(centre_crop(images, crop), images[:, :, first : first + crop, first : first + crop])


def test_turns_are_exact():
    """torch.rot90 by 0, 1, 2, 3 quarter turns, one turn of the whole batch after the other; four turns are none."""
    images = pixels(3, 6)
    expected = torch.cat([torch.rot90(images, turn, (2, 3)) for turn in range(4)])
    assert torch.equal(rotations(images), expected)
    assert torch.equal(torch.rot90(rotations(images)[9:], 1, (2, 3)), images)


def test_normalise_is_the_formula():
    """(x / 255 - mean) / deviation, channel by channel, in float32."""
    images, mean, deviation = pixels(2, 4), (0.1, 0.5, 0.9), (0.2, 0.25, 1.0)
    expected = (images.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(deviation).view(3, 1, 1)
    found = normalise(images, mean, deviation)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-6)


def test_mean_and_deviation_of_a_half_reach_from_minus_one_to_one():
    """What the VAE's tanh can draw (docs/method.md)."""
    ends = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    assert normalise(ends, (0.5,), (0.5,)).flatten().tolist() == pytest.approx([-1.0, 1.0])


def test_an_augmentation_is_its_parts():
    """`Augment` binds crop, mirror and statistics of a configuration."""
    images = ImageConfig(size=8, crop=6, colour="grey", mirror=True, mean=(0.3,), deviation=(0.2,))
    augment, x = Augment.of(images), pixels(5, 8, 1)
    expected = crop_and_mirror(x, 6, True, generator(0, "view"))
    assert torch.equal(augment.training(x, generator(0, "view")), expected)
    assert torch.equal(augment.centre(x), centre_crop(x, 6))
    assert torch.equal(augment.normalise(x), normalise(x, (0.3,), (0.2,)))


NOTHING = Strength(area=1.0, tone=0.0, tint=0.0, grey=0.0)


def test_a_view_that_changes_nothing_is_the_image(monkeypatch):
    """The whole of a square image, of no other tone, at its own size."""
    monkeypatch.setattr(augment, "ASPECT", 1.0)
    images = pixels(5, 8)
    torch.testing.assert_close(
        resized_crop(images, 8, False, NOTHING, generator(0, "v")), images.float(), atol=1e-3, rtol=0
    )
    assert torch.equal(toned(images.float(), NOTHING, generator(0, "v")), images.float())


@pytest.mark.parametrize("strength", STRENGTHS)
def test_a_crop_shows_its_share_of_a_ramp(strength):
    """On a ramp along the columns a crop's slope is its width over the image's, and its area is in range: what the
    slopes of two ramps, across and down, multiply to."""
    ramp = torch.arange(64, dtype=torch.uint8).expand(400, 1, 64, 64)
    how = STRENGTHS[strength]
    found = [resized_crop(x, 16, False, how, generator(3, "v")) for x in (ramp, ramp.transpose(2, 3))]
    across = (found[0][:, 0, 8, 9] - found[0][:, 0, 8, 6]) * 16 / 3 / 64
    down = (found[1][:, 0, 9, 8] - found[1][:, 0, 6, 8]) * 16 / 3 / 64
    assert across.max() <= 1.001
    area = across * down
    assert how.area - 0.02 <= area.min() < how.area + 0.1
    assert area.max() <= 1.001
    assert ((across / down > 0.74) & (across / down < 1.35)).all()


@pytest.mark.parametrize("mirror", [False, True])
def test_crops_are_mirrored_only_where_they_may_be(mirror):
    """A ramp falls in about half of 400 crops, or in none."""
    ramp = torch.arange(64, dtype=torch.uint8).expand(400, 1, 64, 64)
    found = resized_crop(ramp, 16, mirror, STRENGTHS["mild"], generator(3, "v"))
    falling = int((found[:, 0, 8, 9] < found[:, 0, 8, 6]).sum())
    assert (150 < falling < 250) if mirror else falling == 0


def test_grey_images_stay_grey_and_some_colours_go():
    """One channel has no tint; of "strong" a fifth of 500 colour images end with three equal channels."""
    assert toned(pixels(3, 8, 1).float(), STRENGTHS["strong"], generator(0, "v")).shape == (3, 1, 8, 8)
    x = toned(pixels(500, 8).float(), STRENGTHS["strong"], generator(0, "v"))
    grey = int((x.amax(1) - x.amin(1)).flatten(1).amax(1).lt(1e-3).sum())
    assert 70 < grey < 130
    assert x.min() >= 0
    assert x.max() <= 255
