"""What every pretext must hold, over the registry; then each against its formula."""

from __future__ import annotations

import pytest
import torch

from curate.config.schema import ImageConfig, NetworkConfig
from curate.data.augment import Augment
from curate.models.networks import Outputs, build
from curate.pretexts import PRETEXTS
from curate.rng import generator

IMAGES = ImageConfig(size=9, crop=8, colour="grey", mirror=True, mean=(0.5,), deviation=(0.5,))
#: The network that goes with each; group norm, so that no image depends on another.
CONFIGS = {
    "rotation": NetworkConfig(network="small", norm="group", width=4),
    "reconstruction": NetworkConfig(network="vae", hidden=7, latent=3),
    "simclr": NetworkConfig(network="small", norm="group", width=4, projection=6, temperature=0.5),
}
every_pretext = pytest.mark.parametrize("name", PRETEXTS)


def pretext(name):
    return PRETEXTS[name](Augment.of(IMAGES), CONFIGS[name])


def network(name):
    return build(CONFIGS[name], IMAGES, generator(0, "network"))


def pixels(k=5):
    return torch.randint(256, (k, 1, 9, 9), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)


def tensors(view):
    return (view,) if isinstance(view, torch.Tensor) else tuple(view)


@every_pretext
def test_there_is_one_loss_an_image(name):
    """Shape (k,), finite, non-negative, with gradients."""
    losses = pretext(name).losses(network(name), pretext(name).view(pixels(), generator(0, "view")))
    assert losses.shape == (5,)
    assert losses.requires_grad
    assert torch.isfinite(losses).all()
    assert (losses >= 0).all()


@every_pretext
@pytest.mark.parametrize("kind", ["view", "plain_view"])
def test_a_view_depends_on_its_key_alone(name, kind):
    """Everything random is drawn in the view."""
    draw = getattr(pretext(name), kind)
    one, two = (tensors(draw(pixels(), generator(0, "view", 1, 7))) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(one, two))


@every_pretext
def test_another_step_has_another_view(name):
    """Fresh augmentation at every step."""
    one, two = (tensors(pretext(name).view(pixels(), generator(0, "view", 1, step))) for step in (7, 8))
    assert any(not torch.equal(x, y) for x, y in zip(one, two))


@every_pretext
def test_losses_are_a_pure_function_of_network_and_view(name):
    """The tangent evaluates them again, and must see the same."""
    net, view = network(name), pretext(name).view(pixels(), generator(0, "view"))
    before = [x.clone() for x in tensors(view)]
    assert torch.equal(pretext(name).losses(net, view), pretext(name).losses(net, view))
    assert all(torch.equal(x, y) for x, y in zip(before, tensors(view)))


@every_pretext
def test_a_plain_view_has_centre_crops(name):
    """No draw of places: every image is its own middle, the first 8 of 9 pixels."""
    found = tensors(pretext(name).plain_view(pixels(), generator(0, "view")))[0][:5]
    torch.testing.assert_close(found, (pixels()[:, :, :8, :8].float() / 255 - 0.5) / 0.5)


@every_pretext
def test_an_images_loss_does_not_depend_on_its_place(name):
    """Without batch norm, another order of the images gives the same losses in that order, coupled or not."""
    net, turn = network(name), torch.tensor([3, 0, 4, 1, 2])
    view = pretext(name).plain_view(pixels(), generator(0, "view"))
    if name == "reconstruction":
        turned = type(view)(view.images[turn], view.noise[turn])
    else:
        turned = view.view(-1, 5, *view.shape[1:])[:, turn].flatten(0, 1)
    torch.testing.assert_close(pretext(name).losses(net, turned), pretext(name).losses(net, view)[turn])


@every_pretext
def test_a_pretext_says_whether_it_couples(name):
    """Without batch norm, one image less changes the other losses of a task that couples, and of no other."""
    net, view = network(name), pretext(name).plain_view(pixels(), generator(0, "view"))
    if name == "reconstruction":
        fewer = type(view)(view.images[:4], view.noise[:4])
    else:
        fewer = view.view(-1, 5, *view.shape[1:])[:, :4].flatten(0, 1)
    same = torch.allclose(pretext(name).losses(net, fewer), pretext(name).losses(net, view)[:4], rtol=1e-4)
    assert same != pretext(name).couples


def test_the_contrastive_loss_is_nt_xent():
    """Chen et al. 2020, equation 1, by two loops over projections of our choice; image i is at i and i + k."""
    k, heat = 3, CONFIGS["simclr"].temperature
    z = torch.randn(2 * k, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = pretext("simclr").losses(lambda x: Outputs(x, logits=z), torch.zeros(2 * k, 1, 8, 8))
    unit = z / z.norm(dim=1, keepdim=True)
    for i in range(k):
        terms = []
        for one, two in ((i, i + k), (i + k, i)):
            others = sum((unit[one] @ unit[j] / heat).exp() for j in range(2 * k) if j != one)
            terms.append(-((unit[one] @ unit[two] / heat).exp() / others).log())
        torch.testing.assert_close(found[i], sum(terms) / 2)


def test_two_views_of_an_image_differ_and_come_from_it():
    """Of images of one grey each: a view is one grey too, within the mild tones of its own image's."""
    flat = torch.tensor([40, 120, 180], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 1, 9, 9)
    view = pretext("simclr").view(flat, generator(0, "view"))
    assert view.shape == (6, 1, 8, 8)
    assert not torch.allclose(view[:3], view[3:])
    greys = (view * 0.5 + 0.5) * 255
    assert (greys.amax((1, 2, 3)) - greys.amin((1, 2, 3))).max() < 1e-2
    ratio = greys.mean((1, 2, 3)) / torch.tensor([40, 120, 180.0]).repeat(2)
    assert ((ratio > 0.7) & (ratio < 1.3)).all()


def test_rotations_are_four_exact_turns_of_one_crop():
    """torch.rot90 of the first quarter of the view, turn by turn."""
    view = pretext("rotation").view(pixels(), generator(0, "view"))
    assert view.shape == (20, 1, 8, 8)
    for turn, part in enumerate(view.split(5)):
        assert torch.equal(part, torch.rot90(view[:5], turn, (2, 3)))


def test_a_rotation_loss_is_the_mean_of_its_four_cross_entropies():
    """By the definition -log softmax(logits)[turn], logits of our choice; image i is at i, i + k, i + 2 k ..."""
    k = 3
    logits = torch.randn(4 * k, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = pretext("rotation").losses(lambda x: Outputs(x, logits=logits), torch.zeros(4 * k, 1, 8, 8))
    for i in range(k):
        terms = [-(logits[i + turn * k].exp() / logits[i + turn * k].exp().sum()).log()[turn] for turn in range(4)]
        torch.testing.assert_close(found[i], sum(terms) / 4)


def test_a_network_that_knows_the_turn_has_no_loss():
    """Labels match the turns: logits read off the pixels of an image with one bright corner."""
    image = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    image[:, :, :4, :4] = 255
    view = pretext("rotation").plain_view(image, generator(0, "view"))

    def corners(x):
        # Bright at top left, bottom left, bottom right, top right after 0, 1, 2, 3 counter-clockwise turns.
        bright = torch.stack([x[:, 0, 0, 0], x[:, 0, -1, 0], x[:, 0, -1, -1], x[:, 0, 0, -1]], 1)
        return Outputs(x, logits=100 * bright)

    assert pretext("rotation").losses(corners, view).item() < 1e-6


def test_the_vaes_loss_is_the_negative_elbo():
    """Squared error summed over pixels, and KL of torch.distributions, the code's from the standard normal."""
    net = network("reconstruction")
    view = pretext("reconstruction").view(pixels(), generator(0, "view"))
    out = net(view.images, view.noise)
    code = torch.distributions.Normal(out.mean, (0.5 * out.log_variance).exp())
    kl = torch.distributions.kl_divergence(code, torch.distributions.Normal(0.0, 1.0)).sum(1)
    error = ((out.reconstruction - view.images.flatten(1)) ** 2).sum(1)
    torch.testing.assert_close(pretext("reconstruction").losses(net, view), error + kl)


def test_the_vaes_noise_is_standard_normal():
    """Mean and variance of 2000 x 3 draws within 5 standard errors (1 / sqrt n and sqrt(2 / n))."""
    view = pretext("reconstruction").view(pixels(1).expand(2000, 1, 9, 9), generator(0, "view"))
    assert view.noise.shape == (2000, 3)
    n = view.noise.numel()
    assert abs(view.noise.mean()) < 5 / n**0.5
    assert abs(view.noise.var() - 1) < 5 * (2 / n) ** 0.5
