"""Table 1: the whole experiment at smoke scale on real images, and how its numbers are made from the curves."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from curate.errors import Misuse
from curate.experiments.tables import table1 as experiment
from curate.experiments.tables import table1_report as report
from curate.experiments.tables.table1 import choose_sets, table1
from curate.experiments.tables.table1_cell import Cell
from shards.errors import ShardError

IDX = Path(__file__).resolve().parents[3] / "shared" / "data" / "idx"
real = pytest.mark.skipif(not IDX.is_dir(), reason="the MNIST-layout sets of the shared data are not here")


def curve(val, test, steps, cpu):
    """A method's curve; visits are 10 a step."""
    images = [10 * s for s in steps]
    return {"val": val, "test": test, "steps": steps, "images": images, "cpu": cpu, "wall": [2 * s for s in cpu]}


def run_of(curve, **changes):
    return {
        "curve": curve,
        "kept": {"a": 1.0, "b": 0.5},
        "kept_in": 1.0,
        "kept_out": 0.5,
        "auroc": 0.9,
        "stopped": "",
        **changes,
    }


def two_seeds():
    """Uniform takes 4 steps an epoch, BDW fewer and fewer; val picks the last but one epoch of uniform."""
    uniform = run_of(curve([5, 3, 4], [50, 30, 20], [4, 8, 12], [1.0, 2.0, 3.0]), auroc=None)
    bdw = run_of(curve([5, 4, 2], [48, 38, 28], [4, 6, 7], [2.0, 2.5, 2.75]))
    other = run_of(curve([5, 4, 2], [50, 40, 32], [4, 6, 7], [2.0, 2.5, 2.75]), auroc=0.7)
    return [{"uniform": uniform, "bdw": bdw}, {"uniform": uniform, "bdw": other}]


def said():
    runs = two_seeds()
    cells = {f"a-{seed}": Cell("a", ("a", "b"), seed, 3, {}, {"target_batch": 8}, {"bdw": {}}) for seed in (0, 1)}
    return report.results(dict(zip(cells, runs)), cells, "smoke")


def test_a_methods_loss_is_that_of_the_epoch_that_val_picks():
    """Not the last, nor the least on test; seconds and visits are those of all epochs; means over the seeds."""
    row = said()["targets"]["a"]["uniform"]
    assert (row["test_loss"], row["epoch"], row["seconds"], row["images"]) == (30, 2, 3.0, 120)
    assert row["auroc"] is None
    bdw = said()["targets"]["a"]["bdw"]
    assert bdw["test_loss"] == 30  # (28 + 32) / 2
    assert bdw["test_loss_deviation"] == pytest.approx(8**0.5)  # of 28 and 32
    assert bdw["auroc"] == pytest.approx(0.8)


def test_three_budgets():
    """BDW took 7 steps and 2.75 seconds: within these uniform ends at its first and at its second epoch."""
    budgets = said()["budgets"]["a"]
    assert budgets["epochs"] == {"uniform": 30, "bdw": 30}
    assert budgets["steps"] == {"uniform": 50, "bdw": 30}
    assert budgets["seconds"] == {"uniform": 30, "bdw": 30}


def test_csv_and_markdown_hold_the_numbers_of_the_json():
    results = said()
    rows = list(csv.DictReader(report.as_csv(results).splitlines()))
    assert [(row["target"], row["method"]) for row in rows] == [("a", "uniform"), ("a", "bdw")]
    for row in rows:
        held = results["targets"]["a"][row["method"]]
        assert float(row["test_loss"]) == held["test_loss"]
        assert float(row["seconds"]) == held["seconds"]
    text = report.as_markdown(results)
    assert "| a | bdw | 30.00 ± 2.83 | 2.8 | 0.92 |" in text
    assert "| a | uniform | 30.00 | 50.00 | 30.00 |" in text


def test_the_papers_numbers_stand_beside_its_own_sets_only():
    assert report.printed_of("mnist", "bdw") == (192.64, 6005)  # method.md section 6
    assert report.printed_of("fashion-mnist", "uniform") == (171.46, 6876)
    assert report.printed_of("ahcd", "bdw") is None
    assert report.printed_of("mnist", "uniform-half") is None


def test_sets_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(Misuse, match="expected folders of MNIST-layout files"):
        choose_sets(tmp_path, None)
    with pytest.raises(Misuse, match="--scale big: unknown; known: smoke, mini, paper"):
        table1(tmp_path, tmp_path / "out", "big")


@real
def test_the_three_largest_sets_are_taken_unless_named():
    """60,000 Fashion and MNIST (by name), then 13,440 of AHCD; notMNIST has 8,000."""
    assert choose_sets(IDX, None) == ["fashion-mnist", "mnist", "ahcd"]
    assert choose_sets(IDX, ["notmnist", "ahcd"]) == ["notmnist", "ahcd"]
    with pytest.raises(Misuse, match="--sets mnist,kmnist: expected two or more of"):
        choose_sets(IDX, ["mnist", "kmnist"])


@pytest.mark.slow
@real
def test_smoke_scale_runs_whole_and_resumes(tmp_path, monkeypatch):
    """All methods on three targets; a second call computes nothing, and what was stopped half-way ends the same."""
    found = table1(IDX, tmp_path / "whole", "smoke")
    assert set(found["targets"]) == {"fashion-mnist", "mnist", "ahcd"}
    for methods in found["targets"].values():
        assert {"oracle", "uniform", "dw", "bdw"} <= set(methods)
        for name, row in methods.items():
            assert np.isfinite(row["test_loss"]), name
            assert row["seconds"] > 0
        assert (methods["oracle"]["kept_in"], methods["oracle"]["kept_out"]) == (1, 0)
        assert (methods["uniform"]["kept_in"], methods["uniform"]["kept_out"]) == (1, 1)
        # The first epoch of DW trains nothing: all weights start at 0.
        assert methods["dw"]["test_loss"] > methods["uniform"]["test_loss"]
    held = json.loads((tmp_path / "whole" / "table1.json").read_text())
    assert held == found
    for own in found["targets"]:
        for part in "ab":
            assert (tmp_path / "whole" / f"figure1{part}-{own}.svg").stat().st_size > 1000
            assert (tmp_path / "whole" / f"figure1{part}-{own}.png").read_bytes()[:4] == b"\x89PNG"
    resumed_after_a_stop(tmp_path, found, monkeypatch)


def resumed_after_a_stop(tmp_path, whole, monkeypatch):
    """Stopped in the middle of an epoch of the second target; then called again."""
    from curate.experiments.tables import table1_cell

    calls, go_on = [], table1_cell.go_on

    def stop(run, epoch):
        calls.append(epoch)
        if len(calls) == 20:
            raise KeyboardInterrupt
        go_on(run, epoch)

    with monkeypatch.context() as patched:
        patched.setattr(table1_cell, "go_on", stop)
        with pytest.raises(KeyboardInterrupt):
            table1(IDX, tmp_path / "halves", "smoke")
    with pytest.raises(Misuse, match="holds an experiment with other settings; name a new --out"):
        table1(IDX, tmp_path / "halves", "smoke", seed=5)
    again = table1(IDX, tmp_path / "halves", "smoke")
    with monkeypatch.context() as patched:
        patched.setattr(table1_cell, "go_on", lambda run, epoch: pytest.fail("computed again"))
        assert table1(IDX, tmp_path / "halves", "smoke") == again
    for own, methods in whole["targets"].items():
        for name, row in methods.items():
            for number in ("test_loss", "images", "kept_in", "kept_out", "auroc"):
                assert again["targets"][own][name][number] == row[number], (own, name, number)


def test_a_folder_that_is_not_asked_for_is_not_read(tmp_path):
    """One bad set among the data does not stand in the way of others."""
    for name in ("good", "other", "bad"):
        (tmp_path / name).mkdir()
        for part, dims in (("images-idx3", (3, 2, 2)), ("labels-idx1", (3,))):
            head = bytes([0, 0, 8, len(dims)]) + b"".join(n.to_bytes(4, "big") for n in dims)
            body = bytes(np.prod(dims)) if name != "bad" else b""
            (tmp_path / name / f"train-{part}-ubyte").write_bytes(head + body)
    assert choose_sets(tmp_path, ["other", "good"]) == ["other", "good"]
    with pytest.raises(ShardError, match="bad"):
        choose_sets(tmp_path, None)


def test_uniform_at_half_the_weight_is_half_the_learning_rate():
    """What makes the control one: without momentum and decay the options differ in the rate alone."""
    control = experiment.CONTROL["uniform-half"]
    assert control == {"method": "uniform", "lr": 1e-4 / 2}
