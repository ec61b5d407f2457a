"""The public calls on a run's record: the summary of its ledger, the grid of thresholds, its weights written again."""

from __future__ import annotations

import numpy as np
import pytest
import toyset

import curate
from curate.errors import CurateError, Misuse


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two epochs on a store with two images that do not decode."""
    folder = tmp_path_factory.mktemp("summary")
    toyset.make_store(folder / "store", 48, broken={3: b"no image", 11: b""})
    toyset.make_target(folder / "target", 30)
    toyset.run_on(folder, folder / "run", epochs=2)
    return curate.open_run(folder / "run")


def test_the_summary_is_that_of_the_ledger(run):
    """Counts and means, held against the table that the ledger gives back."""
    found = curate.ledger_summary(run)
    assert [line["epoch"] for line in found] == [1, 2]
    for line in found:
        table = run.ledger(line["epoch"]).to_pydict()
        assert line["live"] == len(table["row"])
        assert line["kept"] == sum(table["kept"])
        assert line["undecodable"] == sum(error is not None for error in table["error"])
        known = [mean for mean in table["mean"] if mean is not None]
        assert line["mean"] == pytest.approx(float(np.mean(known)), rel=1e-6)
    assert found[0]["undecodable"] == 2
    assert found == curate.ledger_summary(str(run.path))


def test_the_grid_says_what_pruning_would_keep(run):
    """Each share is that of `prune` at the same thresholds, of the images that decode."""
    grid = curate.prune_grid(run)
    assert np.shape(grid.kept) == (len(grid.lams), len(grid.rhos))
    for row, column in ((0, 0), (2, 2), (-1, -1)):
        kept = len(curate.prune(run, lam=grid.lams[row], rho=grid.rhos[column]))
        assert grid.kept[row][column] == pytest.approx(kept / 46, abs=1e-6)


def test_weights_are_written_again_as_they_were(run):
    """Byte for byte, by one who has lost the file."""
    path = run.path / "weights.parquet"
    before = path.read_bytes()
    path.unlink()
    assert curate.write_weights(run) == path
    assert path.read_bytes() == before


@pytest.mark.parametrize("call", [curate.ledger_summary, curate.write_weights, curate.prune_grid])
def test_a_folder_that_is_no_run_is_said(call, tmp_path):
    """An error of a run, not of the system."""
    with pytest.raises(CurateError):
        call(tmp_path)


def test_methods_are_compared_by_ranks(tmp_path):
    """The best has the highest score, or the lowest where lower is better; ``out`` gets the diagram."""
    scores = tmp_path / "scores.csv"
    scores.write_text("data,a,b,c\n1,1,2,3\n2,1,3,2\n3,1,2,3\n4,1,2,3\n")
    assert curate.compare(scores).ranks == {"c": 1.25, "b": 1.75, "a": 3.0}
    assert curate.compare(scores, lower_is_better=True, out=tmp_path / "out").ranks == {"a": 1.0, "b": 2.25, "c": 2.75}
    assert (tmp_path / "out" / "comparison.md").is_file()


def test_an_option_that_a_comparison_would_not_read_is_refused(run):
    """As an evaluation refuses it."""
    with pytest.raises(Misuse, match="--patience: not with --epoch"):
        curate.compare_baselines(run, "target", epoch=1, patience=1)
