"""A checkpoint holds everything a run goes on from, counts only with its marker, and is thinned out behind."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from curate.config.defaults import applicable, resolve
from curate.config.schema import from_options
from curate.errors import CurateError
from curate.methods import METHODS
from curate.methods.base import MethodInputs
from curate.models.networks import build
from curate.pretexts import PRETEXTS
from curate.rng import generator
from curate.runs import checkpoint
from curate.runs.checkpoint import Examples
from curate.training import engine

CPU = torch.device("cpu")
N = 6
OPTIONS = {"crop": 8, "size": 8, "width": 4, "colour": "grey", "meta_momentum": 0.9, "reference": "none"}


def parts(seed=0, **changes):
    """A network, a state and examples that have been moved away from their start by random numbers of ``seed``."""
    config = resolve(
        from_options({"store": "s", "target": "t", **applicable(changes.get("method", "bdw"), OPTIONS), **changes}),
        labelled=True,
    )
    network = build(config.network, config.images, generator(0, "network"))
    setup = engine.Setup(config, network, PRETEXTS["rotation"](None, config.network), None, CPU)
    state = engine.begin(setup, METHODS[config.method](MethodInputs(N, config.belief, 0, CPU)))
    examples = Examples(np.ones(N, np.bool_), np.zeros(N, np.int16), np.zeros(N, np.uint8))
    return network, state, examples


def moved(seed=0, **changes):
    network, state, examples = parts(**changes)
    g = torch.Generator().manual_seed(seed)
    state.theta = {n: torch.randn(x.shape, generator=g).requires_grad_() for n, x in state.theta.items()}
    state.velocity = {n: torch.randn(x.shape, generator=g) for n, x in state.velocity.items()}
    for name, x in network.named_buffers():
        x.copy_(torch.tensor(seed + 3) if name.endswith("tracked") else torch.rand(x.shape, generator=g))
    for x in state.method.state().values():
        x.copy_(torch.randn(x.shape, generator=g) if x.is_floating_point() else torch.arange(len(x)))
    state.signal.square, state.signal.weight = torch.tensor([0.1, 3.0], dtype=torch.float64)
    state.signal.mean_u = {n: torch.randn(x.shape, generator=g) for n, x in state.theta.items()}
    state.step = 17 + seed
    examples.kept[[1, 4]] = False
    examples.visits[:] = np.arange(N)
    examples.error[3] = 7
    return network, state, examples


def write(run, epoch, network, state, examples, generation=0):
    checkpoint.save(run, epoch, network, state, examples)
    checkpoint.finish(run, epoch, state, generation)


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name].detach(), two[name].detach()), name


@pytest.mark.parametrize("changes", [{}, {"meta_momentum": 0.0}, {"method": "uniform"}], ids=str)
def test_what_is_loaded_is_what_was_saved(tmp_path, changes):
    """To the bit: parameters, statistics, velocities, beliefs, examples, signal and counters."""
    network, state, examples = moved(**changes)
    write(tmp_path, 2, network, state, examples, generation=1)
    other, fresh, blank = parts(**changes)
    said = checkpoint.load(tmp_path, 2, other, fresh, blank)
    assert (said["epoch"], said["generation"], fresh.step) == (2, 1, 17)
    assert_same(fresh.theta, state.theta)
    assert_same(fresh.velocity, state.velocity)
    assert_same(dict(other.named_buffers()), dict(network.named_buffers()))
    assert_same(fresh.method.state(), state.method.state())
    assert_same(fresh.signal.mean_u, state.signal.mean_u)
    # The signal pairs parameters by their order, and a safetensors file has another.
    assert list(fresh.signal.mean_u) == list(fresh.velocity) == list(fresh.theta) == list(state.theta)
    assert_same(fresh.signal.scalars(), state.signal.scalars())
    for name in ("kept", "visits", "error"):
        assert np.array_equal(getattr(blank, name), getattr(examples, name))
    assert all(x.requires_grad and x.is_leaf for x in fresh.theta.values())


def test_parameters_keep_the_networks_memory_layout(tmp_path):
    """Sums run in another order in another layout: on CUDA a run is channels-last before and after a resume."""
    network, state, examples = moved()
    write(tmp_path, 1, network, state, examples)
    other, fresh, blank = parts()
    other.to(memory_format=torch.channels_last)
    checkpoint.load(tmp_path, 1, other, fresh, blank)
    weight = fresh.theta["stages.layer1.conv1.weight"]
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(weight.detach(), state.theta["stages.layer1.conv1.weight"].detach())


def test_the_files_do_not_depend_on_the_memory_layout(tmp_path):
    """The same bytes from a channels-last state."""
    network, state, examples = moved()
    checkpoint.save(tmp_path / "plain", 1, network, state, examples)
    state.theta = {
        n: x.detach().to(memory_format=torch.channels_last) if x.dim() == 4 else x for n, x in state.theta.items()
    }
    checkpoint.save(tmp_path / "last", 1, network, state, examples)
    for name in ("model", "optimizer", "weights", "signal"):
        one, two = (checkpoint.folder(tmp_path / k, 1) / f"{name}.safetensors" for k in ("plain", "last"))
        assert one.read_bytes() == two.read_bytes()


def test_a_checkpoint_counts_only_with_its_marker(tmp_path):
    """Killed between save and finish, the epoch was never done."""
    write(tmp_path, 1, *moved())
    checkpoint.save(tmp_path, 2, *moved(1))
    assert checkpoint.finished(tmp_path) == [1]
    checkpoint.finish(tmp_path, 2, moved(1)[1], 0)
    assert checkpoint.finished(tmp_path) == [1, 2]
    assert checkpoint.finished(tmp_path / "nowhere") == []


def test_every_model_stays_and_the_rest_of_the_last_two_epochs(tmp_path):
    """Selection needs the models; going on needs the last, and the one before is for a damaged disk."""
    for epoch in (1, 2, 3, 4):
        write(tmp_path, epoch, *moved(epoch))
    held = {epoch: sorted(p.name for p in checkpoint.folder(tmp_path, epoch).iterdir()) for epoch in (1, 2, 3, 4)}
    thin = ["model.safetensors", "state.json"]
    whole = ["model.safetensors", "optimizer.safetensors", "signal.safetensors", "state.json", "weights.safetensors"]
    assert held == {1: thin, 2: thin, 3: whole, 4: whole}


def test_every_running_scalar_is_in_the_marker_in_full(tmp_path):
    """0.1 reads back as 0.1, not as its six digits."""
    write(tmp_path, 1, *moved())
    said = json.loads((checkpoint.folder(tmp_path, 1) / "state.json").read_text())
    assert len(said.pop("checksum")) == 64
    assert sorted(said.pop("files")) == [f"{name}.safetensors" for name in ("model", "optimizer", "signal", "weights")]
    assert said == {
        "format": "checkpoint",
        "version": 1,
        "epoch": 1,
        "step": 17,
        "generation": 0,
        "signal": {"square": 0.1, "weight": 3.0, "help": 0.0, "help_weight": 0.0, "mean_weight": 0.0},
    }


@pytest.mark.parametrize("name", ["model", "optimizer", "weights", "signal"])
def test_a_missing_or_damaged_file_is_named(tmp_path, name):
    """A cut file is damage, whichever it is."""
    network, state, examples = moved()
    write(tmp_path, 1, network, state, examples)
    path = checkpoint.folder(tmp_path, 1) / f"{name}.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CurateError, match=rf"{name}\.safetensors: is damaged .*; remove its folder"):
        checkpoint.load(tmp_path, 1, *parts())
    path.unlink()
    with pytest.raises(CurateError, match=rf"{name}\.safetensors: is missing"):
        checkpoint.load(tmp_path, 1, *parts())


def test_another_format_is_refused(tmp_path):
    """Both numbers are shown."""
    write(tmp_path, 1, *moved())
    path = checkpoint.folder(tmp_path, 1) / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2}))
    with pytest.raises(CurateError, match="version 2, this release reads 1"):
        checkpoint.load(tmp_path, 1, *parts())


def test_a_model_of_another_network_is_refused(tmp_path):
    """It names the file and what does not fit."""
    network, state, examples = moved()
    write(tmp_path, 1, network, state, examples)
    with pytest.raises(CurateError, match=r"model\.safetensors: is of another network \(.*size mismatch"):
        checkpoint.load_model(checkpoint.folder(tmp_path, 1) / "model.safetensors", parts(width=5)[0])
