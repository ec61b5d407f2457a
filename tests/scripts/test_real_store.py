"""scripts/real_store on a slice of real photographs and traffic signs, where the shared data is present."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "decathlon-1.0"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared decathlon-layout images are not beside the repository")
def test_small_scale_from_tars_to_tables(tmp_path):
    """Both pretexts, all sets scored at equal steps; the curated shards verify (the script asserts it)."""
    command = [sys.executable, ROOT / "scripts" / "real_store", "--data", DATA, "--out", tmp_path, "--scale", "small"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    record = json.loads((tmp_path / "results" / "results.json").read_text())
    assert record["store"]["images"] > 150
    assert set(record["weighed"]) == {"rotation", "reconstruction"}
    for weighed in record["weighed"].values():
        assert 0 < weighed["kept"] <= record["store"]["images"]
        assert 0 <= weighed["auroc"] <= 1
        assert set(weighed["accuracy"]) == {"raw", "curated", "random", "in-domain"}
    assert "| in-domain only |" in done.stdout
    assert (tmp_path / "results" / "rotation.png").read_bytes().startswith(b"\x89PNG")
