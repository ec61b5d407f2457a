"""`curate reproduce table3`: its rows, the paper's beside them, what was pruned by origin, resume, and the pages."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_scene import STL10, TINY, make_binaries, without_seconds, written

from curate.errors import Misuse
from curate.experiments.tables import paper_numbers, presets, table3_report
from curate.experiments.tables.table3 import table3, trials_of
from curate.experiments.text_tables import number
from curate.ledger import ledger
from shards.indexing import domains
from shards.store import open_index

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
#: eta x rho x lambda of the tiny scale, the two that prune nothing, and the authors'.
ROWS = ["bdw-10-0.5-0.1", "bdw-10-0.5-0.25", "bdw-100-0.5-0.1", "bdw-100-0.5-0.25", "uniform", "l2rw", "bdw-authors"]
MEASURED = ("finetuned", "logistic", "pruned", "pruned_in", "pruned_out")


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    """A scale that takes seconds; so large a rate that its few steps prune some images."""
    presets.SCALES["tiny3"] = replace(TINY, training={**TINY.training, "epochs": 3, "lr": 1.0})
    yield
    del presets.SCALES["tiny3"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The table at the tiny scale: its folder and its JSON."""
    folder = tmp_path_factory.mktemp("table3")
    make_binaries(folder / "data" / STL10)
    return folder / "out", table3(folder / "data", folder / "out", "tiny3", devices=["cpu"])


def test_rows_are_the_grid_and_what_stands_beside_it(done: tuple[Path, dict[str, Any]]) -> None:
    """Each with its constants and the paper's row; the authors' configuration has none."""
    out, said = done
    assert [row["row"] for row in said["rows"]] == ROWS
    assert said["set"] == STL10
    by_name = {row["row"]: row for row in said["rows"]}
    assert [by_name["bdw-100-0.5-0.25"][key] for key in ("eta", "rho", "lam")] == [100.0, 0.5, 0.25]
    # The paper's rows as docs/method.md quotes them.
    assert by_name["bdw-100-0.5-0.25"]["paper"] == {"finetuned": 66.11, "pruned": 83.56, "seconds": 53931}
    assert by_name["uniform"]["paper"] == {"finetuned": 68.19, "pruned": 0.0, "seconds": 21093}
    assert by_name["bdw-authors"]["paper"] is None
    assert json.loads((out / "table3.json").read_text()) == said


def test_every_row_of_the_paper_has_a_row_at_paper_scale(done: tuple[Path, dict[str, Any]]) -> None:
    """Eight of the grid, uniform, L2RW: its ten; and the authors' own."""
    from curate.experiments.tables.table3 import printed

    full = presets.SCALES["paper"]
    trials = trials_of(full, None)  # type: ignore[arg-type]  # only kept, never looked at
    found = [printed(t.method, {name: t.options.get(name) for name in ("eta", "rho", "lam")}) for t in trials[:-1]]
    assert [one["finetuned"] for one in found if one] == [line.accuracy for line in paper_numbers.TABLE3]
    assert trials[-1].name == "bdw-authors"


def test_shares_pruned_are_the_ledgers_by_origin(done: tuple[Path, dict[str, Any]]) -> None:
    """Of all, of the target's classes and of the others, counted from weights.parquet."""
    out, said = done
    store = out / "data" / f"{STL10}-24"
    inside = domains.load(open_index(str(store))).own(STL10)
    for row in said["rows"]:
        gone = ~ledger.final(out / "runs" / f"{row['row']}-{STL10}")["kept"].to_numpy()
        expected = [np.mean(gone), np.mean(gone[inside]), np.mean(gone[~inside])]
        assert [row[key] for key in ("pruned", "pruned_in", "pruned_out")] == pytest.approx(
            [100 * share for share in expected], abs=0.005
        )
    shares = [row["pruned"] for row in said["rows"]]
    assert max(shares) > 0
    assert shares[ROWS.index("uniform")] == shares[ROWS.index("l2rw")] == 0


@pytest.mark.parametrize("page", ["table3.md", "table3.tex"])
def test_pages_hold_every_number(done: tuple[Path, dict[str, Any]], page: str) -> None:
    """Ours, the paper's, and the seconds."""
    out, said = done
    text = (out / page).read_text()
    for row in said["rows"]:
        assert all(number(row[key]) in text for key in MEASURED)
        assert all(number(value) in text for value in row["seconds"].values())
        if row["paper"]:
            assert number(row["paper"]["finetuned"]) in text
            assert f"{row['paper']['seconds']:,}" in text


def test_the_csv_has_a_line_a_row(done: tuple[Path, dict[str, Any]]) -> None:
    """Numbers in full."""
    out, said = done
    lines = list(csv.DictReader((out / "table3.csv").read_text().splitlines()))
    assert [line["row"] for line in lines] == ROWS
    assert [float(line["finetuned"]) for line in lines] == [row["finetuned"] for row in said["rows"]]
    assert lines[0]["paper_seconds"] == "106058"


def test_the_page_says_whether_the_data_is_the_papers(done: tuple[Path, dict[str, Any]]) -> None:
    """STL-10 whole, at paper scale, under its own name; nothing else."""
    _, said = done
    assert "ours is on other or fewer images" in table3_report.opening(said)[1]
    one = {**said["data"][STL10], "full": True}
    assert not table3_report.is_full(said | {"data": {STL10: one}})
    assert table3_report.is_full(said | {"scale": "paper", "set": "stl10", "data": {"stl10": one}})


def test_a_run_that_pruned_nothing_or_ended_early_is_named(done: tuple[Path, dict[str, Any]]) -> None:
    """In the notes, by its constants; a hole is a dash."""
    said = json.loads(json.dumps(done[1]))
    said["rows"][0].update(pruned=0.0, pruned_in=None)
    said["rows"][1].update(stopped="nothing left", epochs=0, finetuned=None, logistic=None)
    sheet = table3_report.results_sheet(said)
    assert "bdw 10 0.5 0.1: pruned nothing" in sheet.notes
    assert "bdw 10 0.5 0.25: ended after epoch 0: nothing left" in sheet.notes
    assert sheet.rows[1][4:6] == ("-", "-")


def test_a_second_call_computes_nothing_again(done: tuple[Path, dict[str, Any]]) -> None:
    """Only the tables are written anew."""
    out, said = done
    before = written(out)
    assert table3(out.parent / "data", out, "tiny3", devices=["cpu"]) == said
    changed = {str(path) for path, then in written(out).items() if before.get(path) != then}
    assert changed == {"table3.json", "table3.md", "table3.csv", "table3.tex"}


@pytest.mark.slow
def test_the_same_seed_finds_the_same(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """In another folder, but for the seconds."""
    out, said = done
    assert without_seconds(
        table3(out.parent / "data", tmp_path / "again", "tiny3", devices=["cpu"])
    ) == without_seconds(said)


def test_another_seed_in_the_same_folder_is_refused(done: tuple[Path, dict[str, Any]]) -> None:
    """Before anything is packed or trained."""
    with pytest.raises(Misuse, match=r"holds another experiment \(seed was 0, is 1"):
        table3(done[0].parent / "data", done[0], "tiny3", devices=["cpu"], seed=1)


def test_several_folders_are_to_be_chosen_from(tmp_path: Path) -> None:
    """By name; an unknown one is refused, and so is none at all."""
    (tmp_path / "empty").mkdir()
    for name in ("a", "b"):
        make_binaries(tmp_path / "data" / name)
    for data, domain, message in (
        ("data", None, "expected one folder of STL-10's binary files, found a, b; name one with --domains"),
        ("data", "c", "expected c, found a, b"),
        ("empty", None, "found none"),
    ):
        with pytest.raises(Misuse, match=message):
            table3(tmp_path / data, tmp_path / "out", "tiny3", domain, devices=["cpu"])


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no data at {SHARED}")
@pytest.mark.slow
def test_smoke_scale_on_real_images(tmp_path: Path) -> None:
    """Through the command line: four rows, with origins."""
    binaries = tmp_path / "data" / "imagenette96"
    subprocess.run([sys.executable, SHARED / "make_stl10.py", SHARED / "imagenette96", binaries], check=True)
    shutil.copy(SHARED / "imagenette96" / "origin.csv", binaries)
    call = [sys.executable, "-c", "from curate.cli import main; main()", "reproduce", "table3", "--scale", "smoke"]
    call += ["--device", "cpu", "--json", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    done = subprocess.run(call, check=True, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    said = json.loads(done.stdout)
    assert [row["row"] for row in said["rows"]] == ["bdw-10-0.5-0.25", "bdw-100-0.5-0.25", "uniform", "l2rw"]
    assert all(row["pruned_in"] is not None for row in said["rows"])
