"""`curate compare`: what CSV files it reads, what it says of those it does not, what it prints and writes."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.cli import curate
from curate.errors import CurateError, Misuse
from curate.experiments.tables import paper_numbers
from curate.stats.comparison import as_markdown, compare_results, in_words
from curate.stats.friedman import compare
from curate.stats.score_table import METHOD_HEADINGS, SUMMARIES, ScoreTable, read_scores, table_of

WIDE = "domain,A,B\nsvhn,1,2\ndtd,3.5,4\n"
LONG = "domain,method,accuracy\nsvhn,A,1\nsvhn,B,2\ndtd,A,3.5\ndtd,B,4\n"

NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=8).filter(
    lambda name: name.lower() not in SUMMARIES
)
METHODS = NAMES.filter(lambda name: name.lower() not in METHOD_HEADINGS)


def file(folder: Path, text: str | bytes) -> Path:
    path = folder / "results.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def wide_text(scores: Mapping[str, Mapping[str, float]]) -> str:
    lines = [
        f"{domain}," + ",".join(str(column[domain]) for column in scores.values()) for domain in paper_numbers.DOMAINS
    ]
    return "\n".join(["domain," + ",".join(scores), *lines]) + "\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(curate, ["compare", *map(str, arguments)])


def same(found: ScoreTable, domains: Any, methods: Any, values: Any) -> bool:
    return (found.domains, found.methods, found.values.tolist()) == (tuple(domains), tuple(methods), values)


@pytest.mark.parametrize(
    "text",
    [
        WIDE,
        WIDE.replace("\n", "\r\n"),
        WIDE.replace("\n", "\r"),
        "\ufeff" + WIDE,
        WIDE.replace(",", ";"),
        WIDE.replace(",", ";").replace(".", ","),
        WIDE.replace(",", "\t"),
        WIDE.replace("\n", "\n\n , ,\n"),
        WIDE.replace("\n", ",,\n"),
        WIDE.replace(",", " , "),
        WIDE.replace("domain", ""),
        WIDE.replace("domain", "model"),
        'domain,"A","B"\n"svhn",1,2\n"dtd",3.5,4',
        LONG,
        LONG.replace("domain", "Dataset").replace("method", "ALGORITHM"),
        "\ufeff" + LONG.replace(",", ";").replace("\n", "\r\n"),
        "accuracy,method,domain\n1,A,svhn\n2,B,svhn\n4,B,dtd\n3.5,A,dtd\n",
    ],
)
def test_a_table_is_read_however_it_was_exported(tmp_path: Path, text: str) -> None:
    """Two methods on two data sets, in every layout, separator and line end."""
    assert same(read_scores(file(tmp_path, text)), ["svhn", "dtd"], "AB", [[1.0, 2.0], [3.5, 4.0]])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_table_written_as_csv_comes_back(tmp_path: Path, data: st.DataObject) -> None:
    """Names with quotes, separators and letters of any script; both layouts; every separator."""
    domains = data.draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    methods = data.draw(st.lists(METHODS, min_size=2, max_size=4, unique=True))
    number = st.floats(-1e100, 1e100)
    values = [[data.draw(number) for _ in methods] for _ in domains]
    rows: list[list[object]] = [["scores of", *methods], *([name, *row] for name, row in zip(domains, values))]
    if data.draw(st.booleans()):
        cells = [[d, m, value] for d, row in zip(domains, values) for m, value in zip(methods, row)]
        rows = [["domain", "method", "score"], *cells]
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=data.draw(st.sampled_from(",;\t")), quoting=csv.QUOTE_ALL).writerows(rows)
    assert same(read_scores(file(tmp_path, written.getvalue())), domains, methods, values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a heading and a line for each data set"),
        ("domain,A,B\n\n", "expected a heading and a line for each data set"),
        ("domain,A,B\nsvhn,1,high\n", r"line 2, svhn, B: expected a number, found 'high'"),
        ("domain,A,B\n\nsvhn,1,\n", r"line 3, svhn, B: expected a number, found 'nothing'"),
        ("domain,A,B\nsvhn,1,nan\n", r"line 2, svhn, B: expected a number, found 'nan'"),
        ("domain,A,B\nsvhn,1,-inf\n", r"found '-inf'"),
        ("domain,A,B\nsvhn,1,1e308\n", r"svhn, B: a score of 1e\+308, expected 1e\+100 at most"),
        ("domain,A,B\nsvhn,1,1_0\n", r"found '1_0'"),
        ('domain,A,B\nsvhn,1,"1,387"\n', r"found '1,387'"),
        ("domain,A,B\nsvhn,1\n", r"line 2: 2 cells under 3 headings"),
        ("domain,A,B\nsvhn,1,2,3\n", r"line 2: 4 cells under 3 headings"),
        ("domain,A,B\nsvhn,1,2\ndtd,1,2\nsvhn,1,2\n", r"line 4: svhn, A was on line 2 too"),
        ("domain,A,B\nsvhn,1,2\nMean,1,2\n", r"line 3: 'Mean' sums up the data sets"),
        ("domain,A,B\n,1,2\n", r"line 2: a score without a data set or method"),
        ("domain,A,A\nsvhn,1,2\n", r"expected a heading of its own for each method, found 'A, A'"),
        ("domain,,B\nsvhn,1,2\n", r"expected a heading of its own for each method"),
        (LONG + "gtsrb,A,1\n", r"gtsrb, B: no score"),
        (LONG + "dtd,A,5\n", r"line 6: dtd, A was on line 4 too; average them"),
        (WIDE.encode("utf-16"), r"expected a CSV file in UTF-8"),
        ('domain,A,B\nsvhn,1,"2\n', r"expected a CSV file in UTF-8, found unexpected end of data"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(CurateError, match=message):
        read_scores(file(tmp_path, text))


def test_the_metric_is_chosen_where_there_are_several(tmp_path: Path) -> None:
    path = file(tmp_path, "domain,method,accuracy,seconds\nsvhn,A,1,9\nsvhn,B,2,8\n")
    assert read_scores(path, "seconds").values.tolist() == [[9.0, 8.0]]
    with pytest.raises(Misuse, match="found accuracy, seconds; choose one with --metric"):
        read_scores(path)
    with pytest.raises(Misuse, match="one column 'loss', found accuracy, seconds"):
        read_scores(path, "loss")
    with pytest.raises(Misuse, match="no metric 'accuracy' to choose"):
        read_scores(file(tmp_path, WIDE), "accuracy")
    with pytest.raises(Misuse, match="one column of scores, found none"):
        read_scores(file(tmp_path, "domain,method\nsvhn,A\n"))


def test_json_is_strict_and_has_the_papers_numbers(tmp_path: Path) -> None:
    """The keys are a contract; the figures those of the method's description, section 8."""
    result = run(file(tmp_path, wide_text(paper_numbers.TABLE2_LOGISTIC)), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert found["ranks"] == pytest.approx({"RotNet": 3.6, "NN": 2.8, "L2RW": 2.2, "BDW": 1.4})
    assert found["friedman"] == pytest.approx({"chi2": 15.60, "p": 0.00137}, rel=1e-3)
    assert found["iman_davenport"] == pytest.approx({"f": 9.75, "p": 1.575e-4}, rel=1e-3)
    assert found["cd"] == pytest.approx(1.4832, abs=5e-5)
    assert len(found["pairs"]) == 6
    assert found["pairs"][2] == {
        "first": "BDW",
        "second": "RotNet",
        "difference": pytest.approx(2.2),
        "p": pytest.approx(0.0008, abs=5e-5),
        "significant": True,
    }
    assert found["cliques"] == [["BDW", "L2RW", "NN"], ["L2RW", "NN", "RotNet"]]
    assert len(found["warnings"]) == 1


def test_an_infinite_f_is_null_in_json_and_a_word_for_people(tmp_path: Path) -> None:
    """Both data sets rank B over A, so F has no value; p is 1 of 2 arrangements."""
    path = file(tmp_path, WIDE)
    assert json.loads(run(path, "--json").stdout, parse_constant=pytest.fail)["iman_davenport"] == {"f": None, "p": 0.5}
    assert "F = infinite (df 1, 1), p = 0.5" in run(path).stdout


def test_lower_is_better_turns_the_ranks_and_alpha_moves_the_difference(tmp_path: Path) -> None:
    path = file(tmp_path, WIDE)
    assert json.loads(run(path, "--json").stdout)["ranks"] == {"B": 1.0, "A": 2.0}
    assert json.loads(run(path, "--json", "--lower-is-better").stdout)["ranks"] == {"A": 1.0, "B": 2.0}
    # q of two methods is the normal distribution's: 1.6449 at 0.1, times sqrt(2 * 3 / (6 * 2)).
    assert json.loads(run(path, "--json", "--alpha", 0.1).stdout)["cd"] == pytest.approx(
        1.6449 * np.sqrt(0.5), abs=1e-4
    )


def test_data_go_to_stdout_and_warnings_to_stderr(tmp_path: Path) -> None:
    result = run(file(tmp_path, wide_text(paper_numbers.TABLE2_FINETUNED)))
    assert "BDW     1.30" in result.stdout
    assert "different (the better first): BDW - RotNet; BDW - L2RW" in result.stdout
    assert "not told apart: BDW, NN; NN, RotNet, L2RW" in result.stdout
    assert "warning" not in result.stdout
    assert "warning: 10 data sets and 4 methods" in result.stderr


def test_out_holds_diagram_and_table_the_same_bytes_each_time(tmp_path: Path) -> None:
    path = file(tmp_path, wide_text(paper_numbers.TABLE2_LOGISTIC))
    for _ in range(2):
        assert run(path, "--out", tmp_path / "a").exit_code == 0
    compare_results(path, tmp_path / "b")
    names = ["comparison.md", "critical_difference.png", "critical_difference.svg"]
    assert sorted(item.name for item in (tmp_path / "a").iterdir()) == names
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_markdown_table_marks_the_best_and_adds_means_and_ranks() -> None:
    """Equal bests are both marked; a bar in a name does not end its cell."""
    table = table_of({"a|b": {"svhn": 106058.0, "dtd": 1.5}, "B": {"svhn": 106058.0, "dtd": 2.0}})
    lines = as_markdown(table, compare(table, "lowest"), "lowest").splitlines()
    assert lines[:6] == [
        "|  | a\\|b | B |",
        "|:--|--:|--:|",
        "| svhn | **106058** | **106058** |",
        "| dtd | **1.5** | 2 |",
        "| mean | 5.303e+04 | 5.303e+04 |",
        "| mean rank | 1.25 | 1.75 |",
    ]
    assert "| dtd | 1.5 | **2** |" in as_markdown(table, compare(table))
    assert all(f"- {said}".replace("|", "\\|") in lines for said in in_words(compare(table, "lowest")))


def test_names_are_no_markup_in_the_markdown_table() -> None:
    """Tags, entities, emphasis, code and links are shown as they are written; numbers keep their own emphasis."""
    names = {"<b>": "\\<b>", "&amp;": "\\&amp;", "*a*": "\\*a\\*", "_b_": "\\_b\\_", "c_d": "c_d", "`e`": "\\`e\\`"}
    table = ScoreTable(("[x](y)", "a\\|b"), tuple(names), np.arange(12.0).reshape(2, 6))
    found = as_markdown(table, compare(table))
    assert found.splitlines()[0] == f"|  | {' | '.join(names.values())} |"
    assert "| \\[x\\](y) | 0 | 1 | 2 | 3 | 4 | **5** |" in found
    assert "| a\\\\\\|b | 6 |" in found
    assert "- different" in found
    assert not {"<b>", "&amp;"} & set(found.replace(", ", " ").split())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--alpha", "1"], 2), (["--alpha", "1e-17"], 2), (["--alpha", "0"], 2), (["--metric", "loss"], 2), ([], 0)],
)
def test_exit_codes(tmp_path: Path, arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from curate import cli

    monkeypatch.setattr(sys, "argv", ["curate", "compare", str(file(tmp_path, WIDE)), *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code


def test_one_method_is_one_line_and_exit_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from curate import cli

    monkeypatch.setattr(sys, "argv", ["curate", "compare", str(file(tmp_path, "domain,A\nsvhn,1\ndtd,2\n"))])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.strip().endswith("found 1 on 2; add what is missing")
