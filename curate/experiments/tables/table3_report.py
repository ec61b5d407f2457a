"""Table 3 for people: markdown, LaTeX and CSV of what table3.json says, the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.experiments.text_tables import HOLE, Sheet, as_csv, latex, markdown, number
from shards.io.atomic import write_bytes

CONSTANTS = ("eta", "rho", "lam")
COLUMNS = ("finetuned", "logistic", "pruned", "pruned_in", "pruned_out", "epoch", "epochs")
SPENT = ("training", "cpu", "logistic", "finetuned")
PRINTED = ("finetuned", "pruned", "seconds")


def write(out: Path, record: Mapping[str, Any]) -> None:
    """Write table3.md, .tex and .csv from what table3.json holds."""
    pages = [results_sheet(record), seconds_sheet(record)]
    write_bytes(out / "table3.md", markdown(f"Table 3 at {record['scale']} scale", opening(record), pages).encode())
    write_bytes(out / "table3.tex", latex(pages).encode())
    write_bytes(out / "table3.csv", csv_of(record).encode())


def opening(record: Mapping[str, Any]) -> list[str]:
    """The opening lines of table3.md: sizes of the data set, what the numbers are, options of every run."""
    one = record["data"][record["set"]]
    options = ", ".join(f"{key} {value}" for key, value in record["settings"]["training"].items())
    return [
        f"{record['set']}: {one['train']:,} train, {one['val']:,} val, {one['test']:,} test; {one['store']:,} images "
        "in the source. Accuracies on test and shares of the source, per cent; seconds are of training.",
        "The paper's columns are of STL-10 whole"
        + (": the same data." if is_full(record) else "; ours is on other or fewer images, or of another network."),
        f"Every run: rotation, paper mode but for the row's constants; {options}.",
    ]


def is_full(record: Mapping[str, Any]) -> bool:
    """Whether scale, store and target are the paper's, so that the accuracies are comparable."""
    return bool(record["scale"] == "paper" and record["set"] == "stl10" and record["data"]["stl10"]["full"])


def results_sheet(record: Mapping[str, Any]) -> Sheet:
    """A line a run: its constants, accuracies, what was pruned, and the paper's."""
    ours = ("fine-tuned", "logistic", "pruned", "pruned in the target's classes", "pruned outside", "seconds")
    header = ("method", "eta", "rho", "lambda", *ours, "paper: fine-tuned", "paper: pruned", "paper: seconds")
    rows = []
    for row in record["rows"]:
        theirs = row["paper"] or dict.fromkeys(PRINTED)
        found = (number(row[name]) for name in COLUMNS[:5])
        printed = (number(theirs[name], 0 if name == "seconds" else 2) for name in PRINTED)
        rows.append((named(row), *constants(row), *found, number(row["seconds"]["training"]), *printed))
    stopped = [
        f"{named(row)} {' '.join(constants(row))}: ended after epoch {row['epochs']}: {row['stopped']}"
        for row in record["rows"]
        if row["stopped"]
    ]
    idle = [row for row in record["rows"] if row["method"] == "bdw" and row["pruned"] == 0]
    notes = [*stopped, *(f"{named(row)} {' '.join(constants(row))}: pruned nothing" for row in idle)]
    return Sheet("Accuracy and pruning", header, tuple(rows), tuple(notes))


def seconds_sheet(record: Mapping[str, Any]) -> Sheet:
    """The table of seconds by stage, a line a run."""
    header = ("method", "eta", "rho", "lambda", "training", "processor time of its steps", "logistic", "fine-tuning")
    rows = (
        (named(row), *constants(row), *(number(row["seconds"].get(part)) for part in SPENT)) for row in record["rows"]
    )
    return Sheet("Seconds", header, tuple(rows))


def csv_of(record: Mapping[str, Any]) -> str:
    """table3.csv: a line a run, with its constants and every number."""
    lines = [
        [
            *(row[name] for name in ("row", "method", *CONSTANTS, *COLUMNS)),
            *(row["seconds"].get(part) for part in SPENT),
            *((row["paper"] or {}).get(name) for name in PRINTED),
        ]
        for row in record["rows"]
    ]
    spent, printed = (f"seconds_{part}" for part in SPENT), (f"paper_{name}" for name in PRINTED)
    return as_csv(["row", "method", *CONSTANTS, *COLUMNS, *spent, *printed], lines)


def named(row: Mapping[str, Any]) -> str:
    """The method of a row as it is shown; the authors' own configuration is marked."""
    return str(row["row"] if row["row"].endswith("authors") else row["method"])


def constants(row: Mapping[str, Any]) -> tuple[str, ...]:
    """eta, rho and lambda as they are shown."""
    return tuple(HOLE if row[name] is None else f"{row[name]:g}" for name in CONSTANTS)
