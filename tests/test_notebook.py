"""The notebook runs from its first cell to its last, in seconds, by the public API and the command line alone."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import curate
import shards

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "examples" / "curate.ipynb"


def cells() -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # of Jupyter's own
def test_the_notebook_runs(tmp_path, monkeypatch):
    """Digits are told from patches, pictures are drawn, and the rewritten shards have no fault."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    digits = re.search(r"the better half has +(\d+) digits of 300", said)
    assert digits is not None
    assert int(digits[1]) >= 270
    assert "faults: []" in said
    pictures = [o for cell in notebook.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
    assert len(pictures) == 4
    assert (tmp_path / "curated-digits" / "half" / "curated.json").is_file()


def test_the_notebook_is_kept_without_outputs():
    """What a person's machine drew is no part of the repository."""
    assert all(not cell.outputs and cell.execution_count is None for cell in cells())


def test_the_notebook_uses_public_names_only():
    """Whatever it takes from the two packages is listed in their `__all__`."""
    source = "\n".join(cell.source for cell in cells())
    assert not re.findall(r"^(?:from (?:curate|shards)|import (?:curate|shards)\.)", source, re.MULTILINE)
    for package in (curate, shards):
        used = set(re.findall(rf"\b{package.__name__}\.(\w+)\(", source))
        assert used
        assert used <= set(package.__all__)
