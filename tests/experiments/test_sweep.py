"""Cells of an experiment: computed once, resumed, refused where they are another experiment's, in processes too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

from curate.errors import CurateError, Misuse
from curate.experiments.sweep import run_cells


@dataclass(frozen=True)
class Square:
    number: int


def square(cell: Square) -> dict[str, int]:
    """A cell's work, and the process that did it."""
    return {"square": cell.number**2, "process": os.getpid()}


CELLS = {f"of/{number}": Square(number) for number in (2, 3)}


@pytest.mark.parametrize("processes", [1, 2])
def test_each_cell_is_computed_once_in_the_order_asked(tmp_path, processes):
    found = run_cells(square, CELLS, tmp_path, "squares", processes)
    assert [result["square"] for result in found.values()] == [4, 9]
    assert all((result["process"] == os.getpid()) == (processes == 1) for result in found.values())
    again = run_cells(lambda cell: pytest.fail("computed again"), dict(reversed(CELLS.items())), tmp_path, "squares")
    assert list(again) == ["of/3", "of/2"]
    assert again == found


def test_a_cell_with_other_settings_is_refused(tmp_path):
    run_cells(square, CELLS, tmp_path, "squares")
    with pytest.raises(Misuse, match=r"3.json: holds another experiment \(number differ\); name a new --out"):
        run_cells(square, {"of/3": Square(4)}, tmp_path, "squares")


@pytest.mark.parametrize("text", ["", "[1]", '{"cell": 3, "result": {}}', '{"cell": {"number": 3}}'])
def test_a_damaged_cell_is_named(tmp_path, text):
    (tmp_path / "of").mkdir()
    (tmp_path / "of" / "3.json").write_text(text)
    with pytest.raises(CurateError, match=r"3.json: is damaged .*; remove it, and its cell is computed again"):
        run_cells(square, CELLS, tmp_path, "squares")


def test_a_failed_cell_ends_the_call_and_keeps_what_was_done(tmp_path):
    def failing(cell):
        if cell.number == 3:
            raise ValueError("three")
        return square(cell)

    with pytest.raises(ValueError, match="three"):
        run_cells(failing, CELLS, tmp_path, "squares")
    assert (tmp_path / "of" / "2.json").exists()
    assert not (tmp_path / "of" / "3.json").exists()


SLEEPERS = """
import os, time, pathlib, sys
from dataclasses import dataclass
from curate.experiments.sweep import run_cells
@dataclass(frozen=True)
class Cell:
    name: str
def sleep(cell):
    pathlib.Path(sys.argv[1], cell.name).write_text(str(os.getpid()))
    time.sleep(60)
if __name__ == "__main__":
    run_cells(sleep, {n: Cell(n) for n in "ab"}, pathlib.Path(sys.argv[1], "out"), "sleeping", 2)
"""


@pytest.mark.slow
def test_processes_end_with_the_one_that_was_killed(tmp_path):
    """SIGKILL gives the parent no chance to say so; what it started must not go on behind its back."""
    script = tmp_path / "sleepers.py"
    script.write_text(SLEEPERS)
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        children = [int(wait_for(tmp_path / name)) for name in "ab"]
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 20
    while any(map(alive, children)) and time.monotonic() < deadline:
        pass
    assert not any(map(alive, children))


def wait_for(path: Path) -> str:
    """The text of a file that another process is about to write."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
    raise AssertionError(f"{path.name} was never written")


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended and waits to be counted does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def fit_and_count(cell: Square) -> dict[str, int]:
    """Fit, and count the threads of every pool that is loaded by then."""
    from sklearn.linear_model import LogisticRegression

    LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    return {"threads": max(pool["num_threads"] for pool in threadpool_info())}


def test_libraries_that_a_cell_loads_have_one_thread(tmp_path, monkeypatch):
    """In a process of cells scipy and scikit-learn come with pools of their own, at the first fit."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = run_cells(fit_and_count, CELLS, tmp_path, "fits", 2)
    assert [result["threads"] for result in found.values()] == [1, 1]
