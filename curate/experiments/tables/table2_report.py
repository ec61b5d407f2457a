"""Table 2 for people: markdown, LaTeX and CSV of what table2.json says, the paper's numbers beside ours.

The paper's stand under ours where every data set that bears a name of the paper's is as large as the paper's, and the
scale is the paper's; else in a table of their own, which says that ours is on less.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.experiments import ranking
from curate.experiments.tables import paper_numbers
from curate.experiments.text_tables import Sheet, as_csv, latex, markdown, number
from curate.stats.comparison import in_words
from curate.stats.friedman import compare
from curate.stats.score_table import table_of
from shards.io.atomic import write_bytes

TITLES = {"logistic": "Logistic regression on frozen features", "finetuned": "Fine-tuned network"}
PRINTED = {
    "logistic": (paper_numbers.TABLE2_LOGISTIC, paper_numbers.TABLE2_LOGISTIC_MEAN),
    "finetuned": (paper_numbers.TABLE2_FINETUNED, paper_numbers.TABLE2_FINETUNED_MEAN),
}
COLUMNS = ("logistic", "finetuned", "pruned", "epoch", "epochs")
SPENT = ("training", "cpu", "logistic", "finetuned")


def write(out: Path, record: Mapping[str, Any]) -> None:
    """Write table2.md, .tex and .csv, and the authors' configuration to extras.csv where it was run."""
    pages = sheets(record)
    write_bytes(out / "table2.md", markdown(f"Table 2 at {record['scale']} scale", opening(record), pages).encode())
    write_bytes(out / "table2.tex", latex(pages).encode())
    write_bytes(out / "table2.csv", csv_of(record).encode())
    if record["extras"]["logistic"]:
        write_bytes(out / "extras.csv", csv_of(record["extras"]).encode())


def sheets(record: Mapping[str, Any]) -> list[Sheet]:
    """The tables in order: both protocols, the paper's numbers, the shares pruned, the seconds."""
    found = [scores_sheet(record, protocol) for protocol in TITLES]
    if not is_full(record):
        found += [printed_sheet(record, protocol) for protocol in TITLES if printed_names(record)]
    return [*found, pruned_sheet(record), *(seconds_sheet(record, part) for part in SPENT)]


def opening(record: Mapping[str, Any]) -> list[str]:
    """The opening lines of table2.md: what the numbers are, sizes of the data sets, options of every run."""
    sizes = [
        f"- {name}: {one['train']:,} train, {one['val']:,} val, {one['test']:,} test; source {one['source']}, "
        f"{one['store']:,} images; {'as large as' if one['full'] else 'not of the size of'} the paper's"
        for name, one in record["data"].items()
    ]
    options = ", ".join(f"{key} {value}" for key, value in record["settings"]["training"].items())
    return [
        "Accuracies on test, per cent. Each network is the one that its method trained; logistic regression picked the "
        "epoch. Means and ranks are over the data sets on which every method has a number.",
        "\n".join(sizes),
        f"Every run: rotation, paper mode; {options}.",
    ]


def scores_sheet(record: Mapping[str, Any], protocol: str) -> Sheet:
    """Our accuracies, and the paper's below where they are comparable."""
    names = list(record["data"])
    rows = [
        (
            shown(method),
            *(number(row[name]) for name in names),
            number(record["average"][protocol][method]),
            number(record["ranks"][protocol][method]),
            number(record["decathlon"][protocol][method], 1),
        )
        for method, row in record[protocol].items()
    ]
    rows += [
        (method, *(number(row[name]) for name in names), "", "", "")
        for method, row in record["extras"][protocol].items()
    ]
    if is_full(record):
        rows += [(*row, "", "") for row in printed_rows(record, protocol)]
    header = ("method", *names, "mean", "mean rank", "decathlon points (unofficial)")
    return Sheet(TITLES[protocol], header, tuple(rows), tuple(tests(record, protocol)))


def tests(record: Mapping[str, Any], protocol: str) -> list[str]:
    """The tests of one protocol in words, and the data sets that they leave out."""
    over = ranking.complete(record[protocol])
    lines = [f"left out of means and ranks: {name}" for name in record["data"] if name not in over]
    comparison = ranking.compared(record[protocol])
    return lines if comparison is None else [*lines, *in_words(comparison), *comparison.warnings]


def printed_sheet(record: Mapping[str, Any], protocol: str) -> Sheet:
    """The paper's accuracies, on the full data."""
    header = ("method", *printed_names(record), "mean of all ten")
    note = "ours above is on other or fewer images, or of another network: the two are not to be compared"
    tests = in_words(compare(table_of(PRINTED[protocol][0])))
    title = f"{TITLES[protocol]}: the paper, full data"
    return Sheet(title, header, tuple(printed_rows(record, protocol)), (note, *(f"all ten: {line}" for line in tests)))


def printed_rows(record: Mapping[str, Any], protocol: str) -> list[tuple[str, ...]]:
    """The paper's numbers of the data sets that bear its names; all of ours where the data is the paper's."""
    accuracies, means = PRINTED[protocol]
    names = list(record["data"]) if is_full(record) else printed_names(record)
    return [
        (f"paper: {method}", *(number(row.get(name)) for name in names), number(means[method]))
        for method, row in accuracies.items()
    ]


def printed_names(record: Mapping[str, Any]) -> list[str]:
    """The data sets of which the paper has numbers."""
    return [name for name in record["data"] if name in paper_numbers.DOMAINS]


def is_full(record: Mapping[str, Any]) -> bool:
    """Whether scale, store and targets are the paper's, so that the accuracies are comparable."""
    names = printed_names(record)
    return record["scale"] == "paper" and bool(names) and all(record["data"][name]["full"] for name in names)


def pruned_sheet(record: Mapping[str, Any]) -> Sheet:
    """Per cent of the source that each run pruned, and the trainings that ended early."""
    names, rows, notes = list(record["data"]), [], []
    for part in (record, record["extras"]):
        for method, row in part["pruned"].items():
            rows.append((shown(method), *(number(row[name]) for name in names)))
        notes += [
            f"{method} on {name}: ended after epoch {part['epochs'][method][name]}: {why}"
            for method, row in part["stopped"].items()
            for name, why in row.items()
            if why
        ]
    idle = [name for name, share in record["pruned"]["bdw"].items() if share == 0]
    notes += [f"bdw pruned nothing for {', '.join(idle)}"] if idle else []
    return Sheet("Pruned, per cent of the source", ("method", *names), tuple(rows), tuple(notes))


def seconds_sheet(record: Mapping[str, Any], part: str) -> Sheet:
    """The table of the seconds of one part of the work, by method and data set."""
    titles = {
        "training": "Seconds of training (of a network with uniform weights once a source)",
        "cpu": "Seconds of processor time of the training's steps",
        "logistic": "Seconds of logistic regression, all epochs",
        "finetuned": "Seconds of fine-tuning, all settings",
    }
    names = list(record["data"])
    rows = [
        (shown(method), *(number(row[name].get(part)) for name in names))
        for group in (record, record["extras"])
        for method, row in group["seconds"].items()
    ]
    return Sheet(titles[part], ("method", *names), tuple(rows))


def csv_of(record: Mapping[str, Any]) -> str:
    """A line a data set and method, as `curate compare --metric` reads it."""
    lines = [
        [name, method, *(record[key][method][name] for key in COLUMNS), *(seconds.get(part) for part in SPENT)]
        for method, row in record["seconds"].items()
        for name, seconds in row.items()
    ]
    return as_csv(["domain", "method", *COLUMNS, *(f"seconds_{part}" for part in SPENT)], lines)


def shown(method: str) -> str:
    """A method's name here, and in the paper.

    >>> shown("uniform"), shown("bdw-authors")
    ('uniform (RotNet)', 'bdw-authors')
    """
    name = paper_numbers.TABLE2_NAMES.get(method, method)
    return method if name.lower() == method else f"{method} ({name})"
