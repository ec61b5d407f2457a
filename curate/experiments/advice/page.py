"""Advice for people: one page of Markdown, the sentence first. Pure."""

from __future__ import annotations

from typing import Any

from curate.experiments.advice.plans import BDW_PASSES, REPETITIONS
from curate.experiments.advice.record import TITLES, Advice
from curate.experiments.baselines.report import shown
from curate.experiments.text_tables import Sheet, markdown, number


def text(found: Advice) -> str:
    """advice.json for people."""
    opening = [found.sentence]
    if found.command:
        opening.append(f"    {found.command}")
    sheets = [_look(found), *(_pilot(name, sets) for name, sets in found.pilot.items())]
    sheets += [_hours(found)] if found.hours else []
    if notes := [*found.notes, *_of_the_budget(found)]:
        opening.append("\n".join(f"- {note}" for note in notes))
    pictures = "Look for yourself: " + ", ".join(found.sheets)
    return markdown(TITLES[found.verdict], opening, sheets) + f"\n{pictures}\n"


def _look(found: Advice) -> Sheet:
    rows = (
        ("images of the store", number(found.store, 0)),
        ("like the target, at most about", number(found.pi, 0)),
        ("kept by the classifier", number(found.kept, 0)),
        ("of these like the target, estimated", "-" if found.purity is None else f"{found.purity:.0%}"),
        ("AUROC of held-out target images", f"{found.auroc:.3f}"),
    )
    ceiling = 1 - min(1.0, found.pi / max(1, found.store)) / 2
    note = f"the AUROC's ceiling is about {ceiling:.3f}: what is like the target cannot be told from it"
    return Sheet("What looks like the target", ("", "classifier"), rows, (note,))


def _pilot(pretext: str, sets: dict[str, Any]) -> Sheet:
    rows = []
    for kind, interval in sets["interval"].items():
        less = sets["difference"].get(kind)
        rows.append(
            (kind, shown(interval), "" if less is None else shown(less), "" if less is None else less["verdict"])
        )
    return Sheet(f"The pilot: {pretext}", ("shards", "accuracy", "curated less this", "so curated is"), tuple(rows))


def _hours(found: Advice) -> Sheet:
    rows = tuple((plan, number(hours, 3)) for plan, hours in found.hours.items())
    notes = (
        "with the pilot's small network, from its step times on this machine: a network whose step takes ten times as "
        "long takes ten times the hours (`curate run --dry-run` times one)",
        f"BDW weighs in {BDW_PASSES} passes over the store, none dropped before the end: an upper bound",
    )
    return Sheet(f"Hours of {found.budget_steps:,} steps", ("plan", "hours"), rows, notes)


def _of_the_budget(found: Advice) -> list[str]:
    """A verdict is of its budget."""
    if found.steps is None:
        return []
    lines = [
        f"a verdict is of its budget: {found.steps} steps, in which each curated image was seen {found.repetitions:g} "
        "times; more training wants milder filters, and with enough of it none"
    ]
    if found.budget_repetitions is not None and found.budget_repetitions > REPETITIONS:
        lines.append(
            f"at the budget of {found.budget_steps:,} steps each would be seen {found.budget_repetitions:,.0f} times; "
            f"beyond some {REPETITIONS} the unfiltered store has been found better (arXiv 2404.07177): train less, "
            "keep more (`curate run --keep`), or let `curate compare-baselines` try the full length"
        )
    return lines
