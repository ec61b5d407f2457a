"""The examples for Slurm: bash reads them, and their commands, run as an array would, make what one machine makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import toyset

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "slurm"
NAMES = sorted(path.name for path in SCRIPTS.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_bash_reads_it(name):
    """And Slurm's own lines come before the first command, after which sbatch reads none."""
    subprocess.run(["bash", "-n", SCRIPTS / name], check=True)
    text = (SCRIPTS / name).read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "#SBATCH" in text.partition("set -euo pipefail")[0]
    assert "#SBATCH" not in text.partition("set -euo pipefail")[2]


def run(name: str, folder: Path, *words: str, **array: int) -> None:
    """A script as a task of an array runs it."""
    (folder / "bin").mkdir(exist_ok=True)
    command = folder / "bin" / "curate"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m curate "$@"\n')
    command.chmod(0o755)
    own = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in array.items()}
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **own, "PATH": path, "SLURM_CPUS_PER_TASK": "1"}
    subprocess.run(["bash", SCRIPTS / name, *words], check=True, env=environment, cwd=folder, capture_output=True)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_four_tasks_in_any_order_make_what_one_call_makes(tmp_path):
    """Index, report, features and hashes, byte for byte; then the duplicates."""
    for name in ("one", "many"):
        toyset.make_store(tmp_path / name / "store", 112)
    whole = [sys.executable, "-m", "curate"]
    for words in (
        ["index", "store"],
        ["features", "store", "--workers", "0"],
        ["dedup", "store", "--out", "copies", "--workers", "1"],
    ):
        subprocess.run([*whole, *words], cwd=tmp_path / "one", check=True, capture_output=True)
    folder = tmp_path / "many"
    for task in (2, 0, 3, 1):
        run("index.sh", folder, "store", ID=task, COUNT=4, MIN=0)
    run("join.sh", folder, "store")
    for task in (14, 10, 16, 12):
        run("features.sh", folder, "store", ID=task, COUNT=4, MIN=10, STEP=2)
    assert not (folder / "copies").exists()
    subprocess.run([*whole, "dedup", "store", "--out", "copies"], cwd=folder, check=True, capture_output=True)
    one, many = (files(tmp_path / name) for name in ("one", "many"))
    del many["bin/curate"]
    assert many == one
