"""The engine on a card: the properties that other files prove on the CPU, in small.

CURATE_TEST_DEVICE names another device, so that these tests can themselves be tried without a card.
"""

from __future__ import annotations

import os

import pytest
import torch
from toyset import config, make_store, make_target, rows_of

from curate.config.schema import BeliefConfig, ImageConfig, MetaConfig, NetworkConfig
from curate.data.augment import Augment
from curate.ledger.ledger import path_of
from curate.metalosses import META_LOSSES
from curate.metalosses.base import TargetImages
from curate.methods.base import MethodInputs
from curate.methods.bdw import Bdw
from curate.models.networks import build, functional, without_state
from curate.pretexts import PRETEXTS
from curate.rng import generator
from curate.runs.run import run
from curate.training import lookahead, precision, reference

DEVICE = torch.device(os.environ.get("CURATE_TEST_DEVICE", "cuda"))
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="no CUDA device"),
]
IMAGES = ImageConfig(size=12, crop=10, colour="rgb", mean=(0.5,) * 3, deviation=(0.25,) * 3, mirror=True)
NETWORK = NetworkConfig(network="small", width=4)
PIXELS = torch.randint(256, (40, 3, 12, 12), generator=torch.Generator().manual_seed(5), dtype=torch.uint8)
RATES = (0.05, 0.9, 1e-3)


def parts(meta_name, device=DEVICE):
    """Pretext and meta-loss on ``device``."""
    augment = Augment.of(IMAGES)
    pretext = PRETEXTS["rotation"](augment, NETWORK)
    target = TargetImages(PIXELS.to(device), torch.arange(40) % 4)
    meta = MetaConfig(ways=3, shots=3, queries=2, target_batch=7)
    return pretext, META_LOSSES[meta_name](target, meta, augment, pretext, 3)


def cast(batch, dtype):
    """A view or an episode with its floating tensors in ``dtype``."""
    if isinstance(batch, torch.Tensor):
        return batch.to(dtype) if batch.is_floating_point() else batch
    return type(batch)(*(cast(part, dtype) for part in batch))


def scene(meta_name, dtype, layout):
    """Architecture, theta, velocity, weights, source and target losses on the device."""
    g = torch.Generator().manual_seed(7)
    network = build(NETWORK, IMAGES, generator(1, "network")).to(dtype)
    away = {name: x.detach() + 0.1 * torch.randn(x.shape, generator=g, dtype=dtype)
            for name, x in network.named_parameters()}  # fmt: skip
    network.load_state_dict(away, strict=False)
    network = network.to(DEVICE, memory_format=layout)
    theta = {name: x.detach().clone().requires_grad_() for name, x in network.named_parameters()}
    velocity = {name: 0.1 * torch.randn(x.shape, generator=g, dtype=dtype).to(DEVICE) for name, x in theta.items()}
    pretext, meta = parts(meta_name)
    view = cast(pretext.view(PIXELS[:6].to(DEVICE), generator(1, "view")), dtype)
    batch = cast(meta.batch(1, 1), dtype)
    weights = torch.rand(6, generator=g, dtype=dtype).to(DEVICE)
    return (
        without_state(network).train(), theta, velocity, weights,
        lambda net: pretext.losses(net, view), lambda net: meta.loss(net, batch),
    )  # fmt: skip


def by_look_ahead(module, theta, velocity, weights, source, target, directional=lookahead.forward_mode):
    """The meta-gradient as the engine computes it, from the public pieces."""
    grads = lookahead.gradient((weights * source(functional(module, theta))).sum() / len(weights), theta)
    ahead, _ = lookahead.sgd_step(theta, velocity, grads, *RATES)
    u = lookahead.gradient(target(functional(module, ahead)), ahead)
    return -(RATES[0] / len(weights)) * directional(module, theta, source, u)


def distance(found, expected):
    """Relative error in the 2-norm."""
    return float(torch.linalg.norm(found - expected) / torch.linalg.norm(expected))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("meta_name", ["prototypical", "self-supervised"])
def test_meta_gradient_equals_double_backward_in_float64(meta_name, layout, monkeypatch):
    """With batch norm in training mode, momentum and weight decay; 1e-10 is the bound the project promises."""
    given = scene(meta_name, torch.float64, layout)
    found = by_look_ahead(*given)
    # Second derivatives by torch's own kernels: cuDNN's batch norm is not sure to have them.
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    expected, _ = reference.meta_gradient(*given, RATES)
    assert distance(found, expected) < 1e-10


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_meta_gradient_in_float32(layout):
    """The same in float32 without TF32, by cuDNN's kernels; 1e-3 allows for its other order of sums."""
    precision.use("float32")
    given = scene("prototypical", torch.float32, layout)
    expected = by_look_ahead(*given, directional=lookahead.double_backward)
    assert distance(by_look_ahead(*given), expected) < 1e-3


def test_crops_and_mirrors_are_those_of_the_cpu():
    """The same bytes: what is random is drawn on the CPU."""
    augment = Augment.of(IMAGES)
    here = augment.training(PIXELS, generator(0, "view", 1, 2))
    there = augment.training(PIXELS.to(DEVICE), generator(0, "view", 1, 2))
    assert torch.equal(here, there.cpu())


@pytest.mark.parametrize("meta_name", ["prototypical", "self-supervised"])
def test_target_batches_are_those_of_the_cpu(meta_name):
    """The same images in the same order; float32 normalisation may differ in its last bit (values below 2)."""
    batches = [parts(meta_name, device)[1].batch(1, 3) for device in (torch.device("cpu"), DEVICE)]
    here, there = (batch if isinstance(batch, torch.Tensor) else batch.images for batch in batches)
    torch.testing.assert_close(here, there.cpu(), rtol=0, atol=1e-6)


def test_weights_are_those_of_the_cpu():
    """An epoch's draws from the beliefs, bit for bit."""
    rows = torch.arange(0, 50, 3)
    drawn = []
    for device in (torch.device("cpu"), DEVICE):
        method = Bdw(MethodInputs(50, BeliefConfig(eta=1.0), 4, device))
        method.begin_epoch(rows.to(device), torch.zeros_like(rows).to(device), 2)
        drawn.append(method.weights(rows.to(device)).cpu())
    assert torch.equal(*drawn)


def test_two_epochs_of_a_run_agree_with_the_cpu(tmp_path):
    """In float32: the same visits, and beliefs that differ by rounding alone (E[w] within 0.01)."""
    store, target = make_store(tmp_path / "store"), make_target(tmp_path / "target")
    found = {}
    for device in ("cpu", str(DEVICE)):
        settings = config(store, target, epochs=2, device=device, precision="float32", rewrite="end")
        out = tmp_path / f"run-{device}"
        run(settings, out)
        found[device] = rows_of(path_of(out, 1), "key", "visits", "mean")
    for here, there in zip(found["cpu"], found[str(DEVICE)], strict=True):
        assert here[:2] == there[:2]
        assert here[2] == pytest.approx(there[2], abs=0.01)
