"""The fine-tuning grid: the paper's cells, who goes on in a halving, and which cell is picked."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import CurateError, Misuse
from curate.evaluation.grid import PAPER_GRID, Cell, Grid, Rung, Trace, picked, ranked, rungs
from curate.evaluation.search import work

FAST, SLOW, HOT = Cell(1e-2, 1e-4, 5), Cell(1e-4, 1e-4, 5), Cell(1e30, 0.0, 5)
GRID = Grid((SLOW, FAST), epochs=3, batch=16)


def test_the_papers_has_two_rates_two_decays_and_two_patiences() -> None:
    assert len(PAPER_GRID.cells) == 8
    assert {cell.lr for cell in PAPER_GRID.cells} == {1e-4, 1e-5}
    assert {cell.weight_decay for cell in PAPER_GRID.cells} == {1e-4, 0.0}
    assert {cell.patience for cell in PAPER_GRID.cells} == {50, 5}
    assert (PAPER_GRID.epochs, PAPER_GRID.batch, PAPER_GRID.halving) == (200, 64, False)


@given(n=st.integers(1, 20), epochs=st.integers(1, 300))
def test_halving_ends_with_one_cell_at_the_last_epoch(n: int, epochs: int) -> None:
    cells = tuple(Cell(1.0 + i, 0.0, 1) for i in range(n))
    steps = rungs(Grid(cells, epochs, halving=True))
    assert (steps[0].keep, steps[0].since) == (n, 0)
    assert (steps[-1].keep, steps[-1].until) == (1, epochs)
    for before, after in pairwise(steps):
        assert after.keep == -(-before.keep // 2)
        assert after.since == before.until <= after.until <= 2 * before.until


def test_without_halving_all_cells_are_trained_to_the_end() -> None:
    assert rungs(PAPER_GRID) == [Rung(8, 0, 200)]
    assert work(PAPER_GRID) == 8 * 200 + 200
    assert work(replace(PAPER_GRID, halving=True)) == 8 * 25 + 4 * 25 + 2 * 50 + 100 + 200


def test_the_best_by_val_is_picked_at_whatever_epoch_and_the_first_of_equals() -> None:
    traces = {SLOW: Trace((0.1, 0.7), (2, 1)), FAST: Trace((0.8, 0.2), (2, 1))}
    assert picked(traces, [SLOW, FAST]) == FAST
    assert picked(traces, [SLOW]) == SLOW  # halving cut the other
    level = {SLOW: Trace((0.1, 0.7), (2, 1)), FAST: Trace((0.7, 0.2), (2, 1))}
    assert picked(level, [SLOW, FAST]) == SLOW
    assert level[FAST].best_epoch == 1
    assert Trace((0.5, 0.7, 0.7), (1, 1, 1)).best_epoch == 2


def test_a_failed_cell_is_never_picked_and_all_failed_is_an_error() -> None:
    traces = {SLOW: Trace((0.1,), (2,)), HOT: Trace((0.9,), (2,), failed=2)}
    assert ranked(traces) == [SLOW]
    assert picked(traces, [HOT]) == SLOW  # the only finalist failed
    with pytest.raises(CurateError, match=r"no cell has a finite loss \(lr=1e\+30,decay=0,patience=5 at epoch 2\)"):
        picked({HOT: traces[HOT]}, [HOT])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"cells": ()}, r"^grid: expected one cell or more, each once, found 0; name the cells$"),
        ({"cells": (FAST, FAST)}, r"each once, found 2"),
        ({"epochs": 0}, r"^grid: expected 1 epoch and 2 images a batch at least, found 0 and 16$"),
        ({"batch": 1}, r"found 3 and 1$"),
    ],
)
def test_a_grid_that_cannot_be_meant_is_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(Misuse, match=text):
        replace(GRID, **wrong)
