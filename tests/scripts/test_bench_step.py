"""scripts/bench_step: its JSON, its arithmetic, and that the steps it compares compute the same."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from curate.models.networks import functional
from curate.training import engine, evaluators, lookahead

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
CPU = torch.device("cpu")


def load_benchmarks():
    """The module beside the script, which is in no package."""
    spec = importlib.util.spec_from_file_location("benchmarks", SCRIPTS / "benchmarks.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["benchmarks"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


benchmarks = load_benchmarks()
TINY = benchmarks.Workload("small", 16, 4, 2, 3, 3)


def test_floor_and_r_of_the_main_workload():
    """50 target images to 64 source images; 3 + 3 r + 2 forwards over 3, by hand: 5/3 + 50/64 = 2.448."""
    workload = benchmarks.Workload("resnet18", 64, 16, 5, 5, 5)
    assert workload.r == 50 / 64
    assert workload.floor == pytest.approx(2.4479, abs=1e-4)


def test_the_three_evaluators_agree_on_one_batch():
    """Forward mode, double backward of the losses, and double backward through the step; float32, so 1e-4."""
    setup = benchmarks.open_setup(TINY, CPU)
    batch = benchmarks.noise_batches(setup)[0]
    found = {}
    for name, directional in (("forward", lookahead.forward_mode), ("double", lookahead.double_backward)):
        state = benchmarks.begin(setup, "bdw")
        bind = [functools.partial(functional, module) for module in (setup.network, setup.bare)]
        state.evaluator = evaluators.Tangent(*bind, setup.bare, directional)
        setup.network.train()
        setup.bare.train()
        found[name] = engine.meta_gradient(setup, state, batch)
    expected = benchmarks.double_backward_steps(setup, benchmarks.begin(setup, "bdw"), [batch])
    assert expected.abs().min() > 0
    for h in found.values():
        assert torch.linalg.norm(h - expected) / torch.linalg.norm(expected) < 1e-4


def test_bdw_and_double_backward_steps_end_at_the_same_parameters_and_beliefs():
    """After two steps: float32 rounding apart, which training spreads to about 1e-4."""
    setup = benchmarks.open_setup(TINY, CPU)
    ends = []
    for name in ("bdw", "double_backward"):
        method, steps = benchmarks.VARIANTS[name]
        state = benchmarks.begin(setup, method)
        steps(setup, state, benchmarks.noise_batches(setup)[:2])
        assert state.step == 2
        ends.append(state)
    for name, x in ends[0].theta.items():
        torch.testing.assert_close(x, ends[1].theta[name], rtol=1e-3, atol=1e-4)
    assert ends[0].method.log_a.abs().max() > 0
    torch.testing.assert_close(ends[0].method.log_a, ends[1].method.log_a, rtol=1e-2, atol=1e-3)


def test_every_round_times_every_step_and_the_warm_up_is_left_out():
    """Three kinds of step, as many times as rounds asked for, all positive."""
    seconds = benchmarks.time_steps(benchmarks.open_setup(TINY, CPU), rounds=2, block=2)
    assert list(seconds) == ["plain", "bdw", "double_backward"]
    assert all(len(values) == 2 and min(values) > 0 for values in seconds.values())


def test_signals_are_timed_in_turns():
    """Two rounds after two of warm-up, of the plain step and of one by a signal."""
    seconds = benchmarks.time_signals(TINY, CPU, {"plain": ("plain", "group"), "head": ("head", "group")}, 2)
    assert list(seconds) == ["plain", "head"]
    assert all(len(values) == 2 and min(values) > 0 for values in seconds.values())


def test_a_ratio_of_one_round_has_no_spread():
    """Its quartiles are the ratio itself."""
    assert benchmarks.ratio([3.0], [2.0]) == (1.5, (1.5, 1.5))


@pytest.mark.slow
def test_quick_run_writes_every_figure(tmp_path):
    """The script as a person calls it; wall-clock ratios are only held to be positive."""
    out = tmp_path / "step.json"
    done = subprocess.run(
        [sys.executable, SCRIPTS / "bench_step", "--quick", "--json", out],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert {"device", "versions", "small"} <= figures.keys()
    for part in (figures, figures["small"]):
        assert part["floor"] == pytest.approx(5 / 3 + part["r"], abs=1e-3)
        assert part["bdw_over_plain"] > 0
        assert part["double_backward_over_plain"] > 0
        assert min(part[f"{name}_s"] for name in ("plain", "bdw", "double_backward")) > 0
        assert min(part["peak_memory"].values()) > 2**20
        assert part["n"] == 3
    assert list(figures["signals"]) == ["exact", "preconditioned", "head", "reference-net"]
    assert min(figures["signals"].values()) > 0
    assert "over plain" in done.stdout


def test_an_unknown_network_is_wrong_usage():
    """Exit 2, and the known ones."""
    done = subprocess.run(
        [sys.executable, SCRIPTS / "bench_step", "--network", "vgg"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "resnet18" in done.stderr
