"""The benchmarks run, on next to nothing: what they reach into moves, and nobody runs them every day."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def loaded(name: str):
    """A script as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.path.insert(0, str(SCRIPTS))
    try:
        loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPTS))
    return module


@pytest.mark.parametrize("workers", [1, 2])
def test_a_round_of_bench_workers(workers, tmp_path):
    loaded("bench_workers").write_store(tmp_path, 50)
    command = [sys.executable, str(SCRIPTS / "bench_workers"), "--round", str(tmp_path), str(workers)]
    times = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert times["wall"] > 0
    assert times["bound"] == max(times["own"], times["others"])
    assert not (tmp_path / "index.parquet").exists()


@pytest.mark.parametrize("name", sorted(path.name for path in SCRIPTS.glob("bench_*")))
def test_help_of_every_benchmark(name):
    """Each says what it measures; what it imports is still there."""
    done = subprocess.run([sys.executable, str(SCRIPTS / name), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    assert "usage" in done.stdout.lower()
