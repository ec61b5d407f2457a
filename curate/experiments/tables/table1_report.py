"""Table 1 from the cells' curves: JSON, CSV and markdown, ours beside the paper's, and three ways to compare.

A method's loss is that of the epoch which val picks. Epochs, steps and seconds are three different budgets: beside each
other stand the losses under BDW's own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from curate.experiments.sweep import Result, plain
from curate.experiments.tables.paper_numbers import TABLE1, TABLE1_NAMES
from curate.experiments.tables.table1_cell import Cell
from shards.io.atomic import write_bytes

#: How the paper calls the sets that have a name of their own here.
PAPER_SETS = {"mnist": "mnist", "fashion-mnist": "fmnist", "kmnist": "kmnist"}
#: The budgets under which two methods are compared, and the curve that counts each.
BUDGETS = {"epochs": None, "steps": "steps", "seconds": "cpu"}
COLUMNS = ("test_loss", "seconds", "wall_seconds", "epoch", "images", "kept_in", "kept_out", "auroc")


def results(found: Mapping[str, Result], cells: Mapping[str, Cell], scale: str) -> dict[str, Any]:
    """What table1.json says.

    Args:
        found: what each cell found.
        cells: the cells, by the same names.
        scale: its name.

    Returns:
        ``targets``: target -> method -> means over the seeds (``seconds``: the thread's processor time of all training
        steps; ``images``: visits); ``budgets``: target -> budget -> method -> test loss; ``settings``.
    """
    targets: dict[str, Any] = {}
    budgets: dict[str, Any] = {}
    for own in dict.fromkeys(cell.own for cell in cells.values()):
        runs = [found[name] for name, cell in cells.items() if cell.own == own]
        methods = list(runs[0])
        targets[own] = {name: averaged([summary(run[name]) for run in runs]) for name in methods}
        budgets[own] = {budget: under_budget(runs, methods, counted) for budget, counted in BUDGETS.items()}
    any_cell = next(iter(cells.values()))
    settings = {key: value for key, value in plain(any_cell).items() if key not in ("own", "seed")}
    return {
        "scale": scale,
        "seeds": len(cells) // len(targets),
        "settings": settings,
        "targets": targets,
        "budgets": budgets,
    }


def summary(run: Result) -> Result:
    """The numbers of one run: test loss at the epoch with the least val loss; seconds and images of the whole run."""
    curve = run["curve"]
    best = selected(curve["val"])
    return {
        "test_loss": curve["test"][best],
        "seconds": curve["cpu"][-1],
        "wall_seconds": curve["wall"][-1],
        "epoch": best + 1,
        "epochs": len(curve["val"]),
        "images": curve["images"][-1],
        **{name: run[name] for name in ("kept_in", "kept_out", "auroc", "kept", "stopped")},
    }


def selected(val: list[float]) -> int:
    """The index of the least val loss, the earliest of equals."""
    return min(range(len(val)), key=lambda index: (val[index], index))


def averaged(rows: list[Result]) -> Result:
    """Means over seeds; the deviation of the test loss beside where there are several."""
    found: Result = {}
    for name, first in rows[0].items():
        values = [row[name] for row in rows]
        if isinstance(first, dict):
            found[name] = {key: mean(value[key] for value in values) for key in first}
        elif isinstance(first, str):
            found[name] = "; ".join(value for value in values if value)
        else:
            found[name] = None if None in values else mean(values)
    if len(rows) > 1:
        found["test_loss_deviation"] = stdev(row["test_loss"] for row in rows)
    return found


def under_budget(runs: list[Result], methods: list[str], counted: str | None) -> dict[str, float]:
    """The mean test loss of each method within what BDW spent in the same cell; a method that spends less has all."""
    losses: dict[str, list[float]] = {name: [] for name in methods}
    for run in runs:
        for name in methods:
            curve = run[name]["curve"]
            limit = run["bdw"]["curve"][counted][-1] if counted else None
            within = [e for e in range(len(curve["val"])) if limit is None or curve[counted][e] <= limit] or [0]
            losses[name].append(curve["test"][selected([curve["val"][e] for e in within])])
    return {name: mean(values) for name, values in losses.items()}


def write(out: Path, record: dict[str, Any]) -> None:
    """Write table1.csv and table1.md from what table1.json holds."""
    write_bytes(out / "table1.csv", as_csv(record).encode())
    write_bytes(out / "table1.md", as_markdown(record).encode())


def as_csv(record: dict[str, Any]) -> str:
    """A line a target and method, the paper's two numbers last."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["target", "method", *COLUMNS, "paper_test_loss", "paper_seconds"])
    for target, methods in record["targets"].items():
        for method, row in methods.items():
            printed = printed_of(target, method)
            writer.writerow([target, method, *(row[name] for name in COLUMNS), *(printed or (None, None))])
    return text.getvalue()


def as_markdown(record: dict[str, Any]) -> str:
    """The table, the comparison under three budgets, and what was run."""
    settings = record["settings"]
    lines = [
        f"# Table 1 at {record['scale']} scale",
        "",
        f"Sets: {', '.join(settings['sets'])}. {settings['epochs']} epochs, {record['seeds']} seed(s), "
        f"target batch {settings['common']['target_batch']}. Seconds are the thread's processor time of all training "
        "steps. The loss is that of the epoch which val picks.",
        "",
        "| target | method | test loss | seconds | over uniform | image visits | kept in domain | kept outside | AUROC "
        "| paper: loss | paper: seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for target, methods in record["targets"].items():
        lines += [_row(target, name, row, methods["uniform"]) for name, row in methods.items()]
    lines += [
        "",
        "Test loss under three budgets, each what BDW used: the same epochs, the same steps, the same seconds.",
        "",
        "| target | method | equal epochs | equal steps | equal seconds |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for target, budgets in record["budgets"].items():
        for method in budgets["epochs"]:
            losses = " | ".join(f"{budgets[budget][method]:.2f}" for budget in BUDGETS)
            lines.append(f"| {target} | {method} | {losses} |")
    stopped = [
        f"{target}, {name}: {row['stopped']}"
        for target, methods in record["targets"].items()
        for name, row in methods.items()
        if row["stopped"]
    ]
    lines += ["", "Methods and their options:", ""]
    lines += [f"- {name}: {_options(options)}" for name, options in settings["methods"].items()]
    lines += ["", *(f"Stopped early: {line}" for line in stopped)]
    return "\n".join(lines).rstrip() + "\n"


def printed_of(target: str, method: str) -> tuple[float, int] | None:
    """The paper's test loss and seconds, where it has that row."""
    if target not in PAPER_SETS or method not in TABLE1_NAMES:
        return None
    cell = TABLE1[PAPER_SETS[target]][TABLE1_NAMES[method]]
    return cell.loss, cell.seconds


def _row(target: str, name: str, row: Result, uniform: Result) -> str:
    loss = f"{row['test_loss']:.2f}"
    if "test_loss_deviation" in row:
        loss += f" ± {row['test_loss_deviation']:.2f}"
    printed = printed_of(target, name)
    theirs = f"{printed[0]:.2f} | {printed[1]:,}" if printed else "- | -"
    auroc = "-" if row["auroc"] is None else f"{row['auroc']:.3f}"
    return (
        f"| {target} | {name} | {loss} | {row['seconds']:.1f} | {row['seconds'] / uniform['seconds']:.2f} | "
        f"{row['images']:,.0f} | {row['kept_in']:.1%} | {row['kept_out']:.1%} | {auroc} | {theirs} |"
    )


def _options(options: Result) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())
