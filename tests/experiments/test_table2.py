"""`curate reproduce table2`: the data it finds, the numbers and what follows from them, resume, and how it is shown."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from table_scene import INSIDE, STL10, TINY, UNLABELLED, make_binaries, make_material, without_seconds, written
from toyset import indexed

from curate.cli import curate as command
from curate.config.schema import PAPER
from curate.errors import CurateError, Misuse
from curate.experiments import ranking
from curate.experiments.tables import paper_numbers, presets, table2_report
from curate.experiments.tables.datasets import OTHERS, open_datasets
from curate.experiments.tables.table2 import AUTHORS_ROW, METHODS, PROTOCOLS, table2
from curate.experiments.tables.trials import AUTHORS, Trial, in_turn, run_trials
from curate.experiments.text_tables import Sheet, latex, markdown, number
from curate.stats import friedman
from curate.stats.score_table import read_scores
from shards.indexing import domains

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
#: The data sets of the table here; the material has another domain.
NAMES = ["dtd", STL10]


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    """A scale that takes seconds, under a name of its own."""
    presets.SCALES["tiny"] = TINY
    yield
    del presets.SCALES["tiny"]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_material(tmp_path_factory.mktemp("table2") / "data")


@pytest.fixture(scope="module")
def done(material: Path) -> tuple[Path, dict[str, Any]]:
    """The table at the tiny scale: its folder and its JSON."""
    out = material.parent / "out"
    return out, table2(material, out, "tiny", NAMES, devices=["cpu"])


def test_every_method_has_a_number_for_every_data_set(done: tuple[Path, dict[str, Any]]) -> None:
    """A domain of the decathlon, and the folder in STL-10's layout under its own name."""
    _, said = done
    for protocol in PROTOCOLS:
        assert list(said[protocol]) == list(METHODS)
        for row in said[protocol].values():
            assert list(row) == NAMES
            assert all(0 <= accuracy <= 100 for accuracy in row.values())
    assert said["scale"] == "tiny"
    assert said["settings"]["training"] == TINY.training
    assert json.loads((done[0] / "table2.json").read_text()) == said


def test_accuracies_are_shares_of_the_test_images(done: tuple[Path, dict[str, Any]]) -> None:
    """12 and 15 images in test: twelfths and fifteenths, as two decimals of a per cent."""
    _, said = done
    for name, n in (("dtd", 12), (STL10, 15)):
        assert said["data"][name]["test"] == n
        possible = {round(100 * right / n, 2) for right in range(n + 1)}
        assert {said[p][m][name] for p in PROTOCOLS for m in METHODS} <= possible


def test_uniform_weights_are_trained_once_a_source(done: tuple[Path, dict[str, Any]]) -> None:
    """Two sources; all other methods once a target, the authors' configuration too."""
    out, _ = done
    found = sorted(path.stem for path in (out / "trainings").iterdir())
    others = [f"{name}-{each}" for name in ("bdw", "bdw-authors", "l2rw", "nn") for each in NAMES]
    assert found == sorted([*others, "uniform-imagenet12", f"uniform-{STL10}"])


def test_runs_are_in_paper_mode(done: tuple[Path, dict[str, Any]]) -> None:
    """Every constant of it, and of the authors' row theirs; an episode as the data set's, within the scale's."""
    out, _ = done
    for name, wanted in (("bdw-dtd", PAPER), ("bdw-authors-dtd", AUTHORS)):
        options = json.loads((out / "trainings" / f"{name}.json").read_text())["cell"]["options"]
        assert {key: options[key] for key in wanted} == wanted
        assert (options["ways"], options["shots"], options["queries"]) == (3, 1, 1)
        assert options["meta_loss"] == "prototypical"


def test_what_follows_from_the_accuracies_is_statistics_own(done: tuple[Path, dict[str, Any]]) -> None:
    """Means, ranks and tests from the JSON's own numbers, by numpy and curate.stats.friedman."""
    _, said = done
    for protocol in PROTOCOLS:
        values = np.array([[said[protocol][m][d] for m in METHODS] for d in NAMES])
        ranks = friedman.rank(values).mean(axis=0)
        assert list(said["ranks"][protocol].values()) == pytest.approx(ranks.tolist())
        assert list(said["average"][protocol].values()) == pytest.approx(values.mean(axis=0).tolist())
        assert said["comparison"][protocol]["friedman"]["chi2"] == friedman.friedman(friedman.rank(values)).chi2
        for method in METHODS:
            points = friedman.unofficial_decathlon_score(
                {"dtd": said[protocol][method]["dtd"]}, paper_numbers.DECATHLON_BASELINE
            )
            assert said["decathlon"][protocol][method] == pytest.approx(points)
        assert (done[0] / protocol / "critical_difference.png").exists()


def test_the_authors_configuration_is_beside_the_table(done: tuple[Path, dict[str, Any]]) -> None:
    """It has accuracies and no rank."""
    out, said = done
    assert list(said["extras"]["logistic"]) == [AUTHORS_ROW]
    assert AUTHORS_ROW not in said["ranks"]["logistic"]
    assert f"{AUTHORS_ROW} |" in (out / "table2.md").read_text()
    assert (out / "extras.csv").exists()


@pytest.mark.parametrize("page", ["table2.md", "table2.tex"])
def test_pages_hold_every_number(done: tuple[Path, dict[str, Any]], page: str) -> None:
    """As decimals: accuracies, means, ranks, points, shares pruned, seconds."""
    out, said = done
    text = (out / page).read_text()
    for group in (said, said["extras"]):
        for key in (*PROTOCOLS, "pruned"):
            shown = [number(value) for row in group[key].values() for value in row.values()]
            assert all(value in text for value in shown)
        spent = [number(s) for row in group["seconds"].values() for one in row.values() for s in one.values()]
        assert all(value in text for value in spent)
    for protocol in PROTOCOLS:
        for key, decimals in (("average", 2), ("ranks", 2), ("decathlon", 1)):
            assert all(number(value, decimals) in text for value in said[key][protocol].values())


def test_the_csv_is_what_compare_reads(done: tuple[Path, dict[str, Any]]) -> None:
    """A metric a column; the ranks are the JSON's."""
    out, said = done
    table = read_scores(out / "table2.csv", "finetuned")
    assert friedman.compare(table).ranks == pytest.approx(said["ranks"]["finetuned"])
    lines = list(csv.DictReader((out / "table2.csv").read_text().splitlines()))
    assert {line["pruned"] for line in lines if line["method"] == "uniform"} == {"0.0"}


def test_a_second_call_computes_nothing_again(material: Path, done: tuple[Path, dict[str, Any]]) -> None:
    """Only tables and diagrams are written anew, with the same JSON."""
    out, said = done
    before = written(out)
    assert table2(material, out, "tiny", NAMES, devices=["cpu"]) == said
    changed = {path for path, then in written(out).items() if before.get(path) != then}
    assert {path.parts[0] for path in changed} <= {
        *PROTOCOLS,
        "table2.json",
        "table2.md",
        "table2.csv",
        "table2.tex",
    } | {"extras.csv"}


def test_a_cell_that_is_gone_is_computed_alone(material: Path, done: tuple[Path, dict[str, Any]]) -> None:
    """Its run and search are gone too; every number comes back."""
    out, said = done
    copy = material.parent / "copy"
    shutil.copytree(out, copy)
    (copy / "trainings" / "bdw-dtd.json").unlink()
    (copy / "scorings" / "bdw-dtd.json").unlink()
    shutil.rmtree(copy / "runs" / "bdw-dtd")
    shutil.rmtree(copy / "searches" / "bdw-dtd")
    before = written(copy / "runs")
    again = table2(material, copy, "tiny", NAMES, devices=["cpu"])
    assert without_seconds(again) == without_seconds(said)
    changed = {path.parts[0] for path, then in written(copy / "runs").items() if before.get(path) != then}
    assert changed == {"bdw-dtd"}


def test_another_seed_in_the_same_folder_is_refused(material: Path, done: tuple[Path, dict[str, Any]]) -> None:
    """One line that says what differs."""
    with pytest.raises(Misuse, match="holds another experiment"):
        table2(material, done[0], "tiny", devices=["cpu"], seed=1)


@pytest.mark.slow
def test_several_processes_find_the_same(material: Path, done: tuple[Path, dict[str, Any]]) -> None:
    """Two at a time, in another folder, the domains in another order."""
    again = table2(material, material.parent / "two", "tiny", [STL10, "dtd"], processes=2, devices=["cpu", "cpu"])
    for protocol in PROTOCOLS:
        for method, row in again[protocol].items():
            assert row == {name: done[1][protocol][method][name] for name in (STL10, "dtd")}


def test_a_training_that_prunes_everything_is_a_hole_that_is_named(material: Path, tmp_path: Path) -> None:
    """CDF(0.6; 1, 1) = 0.6 > 0.5, so nothing is left after the first epoch, and there is no network to score."""
    (data,) = open_datasets(material, tmp_path, TINY, 0, [STL10])
    trial = Trial("bdw", "bdw", data, {"eta": 1e-6, "lam": 0.6, "rho": 0.5})
    found = run_trials([trial], TINY, tmp_path, devices=["cpu"], processes=1, seed=0)[trial.scoring]
    assert (found["epochs"], found["stopped"]) == (0, "nothing left")
    assert found["pruned"] == 100.0
    assert found["pruned_by_domain"] == {STL10: 100.0, OTHERS: 100.0}
    assert found["logistic"] is found["finetuned"] is None


def test_a_training_that_diverges_is_named(material: Path, tmp_path: Path) -> None:
    """A rate of 1e20."""
    (data,) = open_datasets(material, tmp_path, TINY, 0, [STL10])
    trial = Trial("uniform", "uniform", data, {"lr": 1e20})
    found = run_trials([trial], TINY, tmp_path, devices=["cpu"], processes=1, seed=0)[trial.scoring]
    assert found["stopped"] == "diverged"
    assert found["logistic"] is None


class TestDatasets:
    """What is found, packed and chosen."""

    def test_sizes_and_domains_are_recorded(self, material: Path, done: tuple[Path, dict[str, Any]]) -> None:
        """18 labelled images of a decathlon domain; STL-10's target whole: 30; a part of each source: 24."""
        _, said = done
        assert said["data"]["dtd"] == {
            **{"source": "imagenet12", "store": 24, "train": 9, "val": 9, "test": 12},
            "full": False,
        }
        assert said["data"][STL10]["train"] + said["data"][STL10]["val"] == 30

    def test_origins_become_domains_of_the_part(self, material: Path, tmp_path: Path) -> None:
        """Rows of the part are told by their keys, which end in their place among the unlabelled images."""
        (data,) = open_datasets(material, tmp_path, TINY, 0, [STL10])
        index = indexed(data.store)
        inside = [int(key[-6:]) < INSIDE for key in index.table["key"].to_pylist()]
        assert domains.load(index).own(STL10).tolist() == inside
        assert data.origins
        assert 0 < sum(inside) < len(inside) == 24

    def test_origins_of_another_number_are_refused(self, tmp_path: Path) -> None:
        """They would be of other images."""
        folder = make_binaries(tmp_path / "data" / "other")
        with (folder / "origin.csv").open("a") as file:
            file.write("unlabeled.zip,1.jpg,yes\n")
        with pytest.raises(CurateError, match=f"expected {UNLABELLED} unlabelled images, found {UNLABELLED + 1}"):
            open_datasets(tmp_path / "data", tmp_path / "out", TINY, 0, None)

    def test_a_small_scale_takes_the_first_and_the_last(self, material: Path, tmp_path: Path) -> None:
        """One of each layout, where there are both."""
        few = presets.SCALES["smoke"]
        assert [each.name for each in open_datasets(material, tmp_path, few, 0, None)] == ["dtd", STL10]

    def test_torchvisions_folder_is_stl10(self, tmp_path: Path) -> None:
        """stl10_binary is what its download unpacks to; too few images are not the paper's."""
        make_binaries(tmp_path / "data" / "stl10_binary")
        (data,) = open_datasets(tmp_path / "data", tmp_path / "out", presets.SCALES["paper"], 0, None)
        assert (data.name, data.full) == ("stl10", False)

    def test_nothing_to_find_is_one_line(self, tmp_path: Path) -> None:
        """An empty folder."""
        with pytest.raises(Misuse, match=r"expected decathlon-1.0/ or a folder with train_X\.bin"):
            open_datasets(tmp_path, tmp_path / "out", TINY, 0, None)

    def test_an_unknown_domain_is_misuse(self, material: Path, tmp_path: Path) -> None:
        """The message names those there are."""
        with pytest.raises(Misuse, match=f"--domains gtsrb: not in .*; there are dtd, svhn, {STL10}"):
            open_datasets(material, tmp_path, TINY, 0, ["gtsrb"])


class TestStandings:
    """From scores with a hole to means and ranks."""

    SCORES: ClassVar = {"A": {"dtd": 10.0, "svhn": 90.0, "x": 1.0}, "B": {"dtd": 20.0, "svhn": 90.0, "x": None}}

    def test_a_data_set_with_a_hole_counts_for_no_method(self) -> None:
        """By hand: means (10 + 90) / 2 and (20 + 90) / 2; ranks (2 + 1.5) / 2 and (1 + 1.5) / 2."""
        assert ranking.complete(self.SCORES) == ["dtd", "svhn"]
        assert ranking.averages(self.SCORES) == {"A": 50.0, "B": 55.0}
        assert ranking.mean_ranks(self.SCORES) == {"A": 1.75, "B": 1.25}

    def test_without_a_complete_data_set_there_is_nothing(self) -> None:
        """None, and no test."""
        scores = {"A": {"x": 1.0}, "B": {"x": None}}
        assert ranking.averages(scores) == ranking.mean_ranks(scores) == {"A": None, "B": None}
        assert ranking.compared(scores) is None
        assert ranking.decathlon(scores) == {"A": None, "B": None}

    def test_one_data_set_has_ranks_and_no_test(self) -> None:
        """Friedman needs two."""
        scores = {"A": {"dtd": 1.0}, "B": {"dtd": 2.0}}
        assert ranking.mean_ranks(scores) == {"A": 2.0, "B": 1.0}
        assert ranking.compared(scores) is None

    def test_the_papers_own_table_gives_the_papers_ranks(self) -> None:
        """RotNet, NN, L2RW, BDW: 3.6 2.8 2.2 1.4 and 2.8 2.6 3.3 1.3; means within the print's rounding."""
        for scores, ranks, means in (
            (paper_numbers.TABLE2_LOGISTIC, [3.6, 2.8, 2.2, 1.4], paper_numbers.TABLE2_LOGISTIC_MEAN),
            (paper_numbers.TABLE2_FINETUNED, [2.8, 2.6, 3.3, 1.3], paper_numbers.TABLE2_FINETUNED_MEAN),
        ):
            assert list(ranking.mean_ranks(scores).values()) == pytest.approx(ranks, abs=0.051)
            assert ranking.averages(scores) == pytest.approx(dict(means), abs=0.011)


class TestPages:
    """How a table is written down."""

    def test_marks_of_latex_are_escaped(self) -> None:
        """An underscore, a per cent sign and a backslash in a name."""
        text = latex([Sheet("100% a_b", ("n", "x"), (("c\\d", "1.00"),))])
        assert r"100\% a\_b." in text
        assert r"c\textbackslash{}d & 1.00 \\" in text

    def test_a_bar_in_a_name_is_no_column(self) -> None:
        """Markdown's own mark."""
        assert "| a\\|b | 1.00 |" in markdown("t", ["o"], [Sheet("s", ("n", "x"), (("a|b", "1.00"),))])

    def test_the_papers_numbers_are_under_ours_only_where_the_data_is_the_papers(
        self, done: tuple[Path, dict[str, Any]]
    ) -> None:
        """Else they are in a table that says what it is; a set of another name has none."""
        _, said = done
        pages = table2_report.sheets(said)
        theirs = next(page for page in pages if page.title.endswith("the paper, full data"))
        assert theirs.header == ("method", "dtd", "mean of all ten")
        assert theirs.rows[0] == ("paper: RotNet", "11.43", "34.68")
        assert "not to be compared" in theirs.notes[0]
        full = said | {"scale": "paper", "data": {name: one | {"full": True} for name, one in said["data"].items()}}
        pages = table2_report.sheets(full)
        assert not any("the paper" in page.title for page in pages)
        # A hole for the data set that the paper has not; mean, rank and points stand behind.
        assert pages[0].rows[-1] == ("paper: BDW", "18.87", "-", "39.60", "", "")
        assert all(len(row) == len(page.header) for page in pages for row in page.rows)

    def test_what_was_not_pruned_or_did_not_end_is_said(self, done: tuple[Path, dict[str, Any]]) -> None:
        """In the notes of the share pruned."""
        _, said = done
        said = json.loads(json.dumps(said))
        said["pruned"]["bdw"]["dtd"], said["stopped"]["bdw"][STL10], said["epochs"]["bdw"][STL10] = 0.0, "diverged", 1
        notes = table2_report.pruned_sheet(said).notes
        assert any(note.startswith("bdw pruned nothing for dtd") for note in notes)
        assert f"bdw on {STL10}: ended after epoch 1: diverged" in notes


def test_an_unknown_scale_is_misuse(material: Path, tmp_path: Path) -> None:
    """By the command line, and by the library."""
    words = ["reproduce", "table2", "--data", str(material), "--out", str(tmp_path / "out"), "--scale", "none"]
    assert CliRunner().invoke(command, words).exit_code == 2
    with pytest.raises(Misuse, match="--scale none: unknown; known: smoke, mini, paper"):
        table2(material, tmp_path / "out", "none")


def test_the_verb_prints_the_page(
    material: Path, done: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a scale on offer, made as small as the tiny one, so that its cells are there already."""
    monkeypatch.setitem(presets.SCALES, "smoke", TINY)
    shutil.copytree(done[0], tmp_path / "out")
    words = ["reproduce", "table2", "--data", str(material), "--out", str(tmp_path / "out"), "--scale", "smoke"]
    shown = CliRunner().invoke(command, [*words, "--domains", "dtd", "--device", "cpu"], catch_exceptions=False)
    assert shown.stdout == (tmp_path / "out" / "table2.md").read_text()
    assert shown.stdout.startswith("# Table 2 at smoke scale")


def test_cells_take_the_devices_in_turn() -> None:
    """Three cells on two devices."""
    assert in_turn(["a", "b", "c"], ["cuda:0", "cuda:1"]) == {"a": "cuda:0", "b": "cuda:1", "c": "cuda:0"}


def test_scales_on_offer_are_the_scales_there_are() -> None:
    """The command line lists them without importing torch."""
    from curate.cli.reproduce import SCALES

    assert set(SCALES) == set(presets.SCALES) - {"tiny"}


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no data at {SHARED}")
@pytest.mark.slow
def test_smoke_scale_on_real_images(tmp_path: Path) -> None:
    """One domain of each layout, through the command line in a process of its own; a second call says the same."""
    root = tmp_path / "data" / "decathlon-1.0"
    for part in ("annotations", "data"):
        (root / part).mkdir(parents=True)
    for name in ("imagenet12", "dtd"):
        (root / "data" / f"{name}.tar").symlink_to(SHARED / "decathlon-1.0" / "data" / f"{name}.tar")
        for split in ("train", "val"):
            shutil.copy(SHARED / "decathlon-1.0" / "annotations" / f"{name}_{split}.json", root / "annotations")
    binaries = tmp_path / "data" / "imagenette96"
    subprocess.run([sys.executable, SHARED / "make_stl10.py", SHARED / "imagenette96", binaries], check=True)
    call = [sys.executable, "-c", "from curate.cli import main; main()", "reproduce", "table2", "--scale", "smoke"]
    call += ["--device", "cpu", "--json", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    first, second = (
        subprocess.run(call, check=True, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        for _ in range(2)
    )
    said = json.loads(first.stdout)
    assert json.loads(second.stdout) == said
    assert list(said["finetuned"]["bdw"]) == ["dtd", "imagenette96"]
    assert said["data"]["dtd"]["store"] == 150
    assert all(seconds["training"] > 0 for row in said["seconds"].values() for seconds in row.values())
