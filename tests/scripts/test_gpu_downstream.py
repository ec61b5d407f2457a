"""scripts/gpu_check downstream on the CPU: the part at toy sizes on real photographs, and how its figures are shown."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"


def load(path: Path) -> ModuleType:
    """A script as a module, whatever its suffix; its neighbours can be imported meanwhile."""
    loader = importlib.machinery.SourceFileLoader(path.name.partition(".")[0], str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(path.parent))
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
        sys.path.remove(str(path.parent))
    return module


gpu_check = load(ROOT / "scripts" / "gpu_check")


def test_the_check_ends_within_six_minutes() -> None:
    """The part's limit, and 20 seconds for installing the wheels."""
    assert gpu_check.LIMITS["downstream"] + 20 <= 360


def test_the_sizes_are_the_papers() -> None:
    """ResNet-18, 84 of 96 px, 32 images in four rotations, 10-way 10-shot with 10 queries (docs/method.md 3, 4)."""
    part = load(ROOT / "scripts" / "gpu_parts_downstream.py")
    from curate.experiments.tables import presets, protocols

    domain = protocols.of("stl10")
    sizes = presets.training_options(part.PAPER, domain) | presets.episode_options(part.PAPER, domain)
    expected = {"network": "resnet18", "size": 96, "crop": 84, "batch": 32, "ways": 10, "shots": 10, "queries": 10}
    assert {name: sizes[name] for name in expected} == expected
    assert part.PAPER.source is part.PAPER.labelled is None
    assert [method for _, method, _ in part.ROWS] == ["uniform", "l2rw", "bdw", "bdw"]


def test_figures_are_shown_in_a_line_a_training() -> None:
    """Bytes as GiB; a training that left nothing has holes."""
    row = {"row": "bdw", "logistic": 40.0, "finetuned": None, "pruned": 100.0, "pruned_in": None, "pruned_out": 99.0}
    row |= {"seconds": {"training": 9.6}, "images_per_second": 1234.5, "peak_memory": 3 * 2**29}
    assert gpu_check.row_in_short(row) == (
        "bdw: logistic 40.0, fine-tuned None, pruned 100.0 % (in ?, out 99.0), 10 s, 1234 images/s, 1.50 GiB"
    )


@pytest.mark.skipif(not (SHARED / "make_stl10.py").exists(), reason=f"no data at {SHARED}")
@pytest.mark.slow
def test_the_part_at_toy_sizes(tmp_path: Path) -> None:
    """Four trainings with all their figures; of BDW's what was pruned in and out of the target's classes."""
    words = ["downstream", "--device", "cpu", "--quick", "--out", str(tmp_path)]
    where = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    call = [sys.executable, str(ROOT / "scripts" / "gpu_check"), *words]
    done = subprocess.run(call, capture_output=True, text=True, env=where, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "downstream.json").read_text())
    assert said["images"] == {"store": 64, "train": 400, "val": 400, "test": 600}
    assert [row["row"] for row in said["rows"]] == ["uniform", "l2rw", "bdw-10-0.5-0.25", "bdw-100-0.5-0.1"]
    for row in said["rows"]:
        assert row["epochs"] == said["epochs"] == 2
        assert min(row["logistic"], row["finetuned"], row["images_per_second"], row["peak_memory"]) > 0
        assert None not in (row["pruned_in"], row["pruned_out"])
    assert "images/s" in (tmp_path / "summary.md").read_text()
