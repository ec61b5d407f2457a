"""scripts/gpu_check on the CPU: its parts at toy sizes, and what it says where something is missing or fails."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toyset import indexed, make_store, make_target

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gpu_check"
DOMAINS = ROOT.parent / "shared" / "data" / "decathlon-1.0" / "data"


def load_script():
    """The script as a module; its name has no suffix."""
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


gpu_check = load_script()


def call(*words, timeout=200):
    """Run a script of ours with this Python."""
    where = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, timeout=timeout, env=where, check=False
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_card_it_says_so_in_one_line(tmp_path):
    """Exit 1, and nothing is written."""
    done = call(SCRIPT, "engine", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no CUDA device" in done.stderr
    assert not (tmp_path / "out").exists()


def test_full_sizes_are_refused_on_the_cpu(tmp_path):
    """They would take hours; the line says what to add."""
    done = call(SCRIPT, "engine", "--device", "cpu", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "add --quick" in done.stderr


@pytest.mark.parametrize(
    ("program", "outcome"),
    [("print('well')", "passed"), ("print('ill'); raise SystemExit(3)", "failed"), ("while True: pass", "out of time")],
)
def test_a_part_passes_fails_or_runs_out_of_time(program, outcome):
    """And what it printed is kept; a second is enough to print, and an endless loop is ended."""
    result = gpu_check.part([sys.executable, "-c", program], 1 if "while" in program else 60, dict(os.environ))
    assert result["outcome"] == outcome
    assert result["said"].strip() == {"passed": "well", "failed": "ill"}.get(outcome, "")


def test_a_part_that_fails_takes_no_other_with_it(tmp_path, monkeypatch):
    """The first of two fails; the second runs and its figures are read."""
    good = "import sys, json; json.dump({'epochs': [{'images_per_second': 7.0}], 'kept': 1, 'examples': 2}, "
    parts = {
        "agreement": [sys.executable, "-c", "raise SystemExit('broken')"],
        "run": [sys.executable, "-c", good + "open(sys.argv[2], 'w'))"],
    }
    monkeypatch.setattr(gpu_check, "calls", lambda device, toy, data: parts)
    monkeypatch.setattr(gpu_check, "BAGGAGE", tmp_path / "baggage")
    (tmp_path / "baggage" / "data").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    results = gpu_check.engine("cpu", True, tmp_path / "out", tmp_path)
    assert [result["outcome"] for result in results.values()] == ["failed", "passed"]
    text = gpu_check.summary(results)
    assert "kept 1 of 2, 7 images/s" in text
    assert "broken" in text


def test_limits_leave_time_within_four_minutes():
    """If every part took all of its time: 60 for the tests, four benches, agreement and run; the sum in seconds."""
    names = gpu_check.calls("cuda", [], Path("data"))
    assert len(names) + 1 <= 8, "a folder of eight files at most comes back from the machine"
    assert sum(gpu_check.LIMITS.get(name, gpu_check.LIMITS["bench"]) for name in names) <= 240


@pytest.mark.skipif(not DOMAINS.is_dir(), reason=f"no data at {DOMAINS}")
@pytest.mark.slow
def test_packed_data_is_a_store_and_a_target(tmp_path):
    """800 + 645 validation images of two domains; 43 classes of 60 in splits of 24, 12 and 24 (data/README.md)."""
    gpu_check.pack_data(tmp_path / "data", DOMAINS)
    assert len(indexed(tmp_path / "data" / "source")) == 1445
    counts = [len(indexed(tmp_path / "data" / "target" / split)) for split in ("train", "val", "test")]
    assert counts == [43 * 24, 43 * 12, 43 * 24]


def test_without_the_shared_data_digits_and_patches_are_packed(tmp_path):
    """From scikit-learn alone: 700 of each in the store."""
    gpu_check.pack_data(tmp_path / "data", tmp_path / "absent")
    assert len(indexed(tmp_path / "data" / "source")) == 1400


@pytest.mark.slow
def test_agreement_of_the_arithmetics_at_a_toy_size(tmp_path):
    """On the CPU TF32 is float32 itself, and bf16 close to it."""
    done = call(ROOT / "scripts" / "gpu_parts.py", "agreement", "--device", "cpu", "--quick", "--json", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    for pair in json.loads((tmp_path / "a").read_text())["with_float32"].values():
        assert pair["tf32"] == {"cosine": pytest.approx(1.0), "relative_error": 0.0}
        assert 0 < pair["bf16"]["relative_error"] < 0.5
        assert pair["bf16"]["cosine"] > 0.9


@pytest.mark.slow
def test_the_real_run_at_a_toy_size(tmp_path):
    """Two epochs over 96 digits, every figure there."""
    data = tmp_path / "data"
    make_store(data / "source")
    make_target(data / "target")
    words = ("run", "--device", "cpu", "--quick", "--data", data, "--json", tmp_path / "run.json")
    done = call(ROOT / "scripts" / "gpu_parts.py", *words)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "run.json").read_text())
    assert figures["examples"] == 96
    assert [epoch["epoch"] for epoch in figures["epochs"]] == [1, 2]
    assert figures["arithmetic"]["precision"] == "float32"
