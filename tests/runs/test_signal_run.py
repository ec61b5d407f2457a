"""Whole runs by other signals than the meta-gradient: stopped and gone on to the byte; what their checkpoint holds."""

from __future__ import annotations

import pytest
import toyset
from test_run_resume import StopAt, Stopped

from curate.config.catalogue import SIGNALS
from curate.runs import checkpoint

COUNT = 64
OTHERS = [name for name in SIGNALS if name != "exact"]
#: Two epochs after the warm-up; a target batch every second step.
OPTIONS = {
    "epochs": 3,
    "reference": "quantile",
    "eta_scale": "raw",
    "eta": 10.0,
    "meta_every": 2,
    "lam": 0.35,
    "warmup": 1,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    toyset.make_store(folder / "store", COUNT)
    toyset.make_target(folder / "target")
    return folder


@pytest.mark.parametrize("signal", OTHERS)
def test_stopped_and_gone_on_is_one_run(data, tmp_path, signal):
    """In the midst of an epoch, and after one that learnt."""
    toyset.run_on(data, tmp_path / "whole", signal=signal, **OPTIONS)
    whole = toyset.same_run(tmp_path / "whole")
    assert [line["meta_loss"] > 0 for line in whole["metrics.jsonl"]] == [False, True, True]
    for name, stop in (("midst", {"step": 6}), ("after", {"epoch": 2})):
        with pytest.raises(Stopped):
            toyset.run_on(data, tmp_path / name, StopAt(**stop), signal=signal, **OPTIONS)
        toyset.run_on(data, tmp_path / name, signal=signal, **OPTIONS)
        assert toyset.same_run(tmp_path / name) == whole
    held = checkpoint.read(checkpoint.folder(tmp_path / "whole", 3) / "signal.safetensors")
    assert held
    assert all(name.startswith("running/") for name in held)
    assert all(value.isfinite().all() for value in held.values())


def test_the_meta_gradient_every_other_step_moves_half_of_the_images(data, tmp_path):
    """The rest keep the belief that they had."""
    toyset.run_on(data, tmp_path / "run", epochs=1, meta_every=2)
    found = toyset.partition(tmp_path / "run", 1, "a", "b")
    assert sum((a, b) == (1.0, 1.0) for a, b in found) == COUNT / 2
