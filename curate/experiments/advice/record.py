"""What advice says: the record of advice.json, from what the classifier found and what the pilot came to. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from curate.experiments.advice import pilot, plans
from curate.experiments.advice.plans import Budget
from curate.experiments.advice.tried import Tried
from curate.experiments.advice.verdict import Look, Verdict, decide, without_pilot

#: The verdicts for people.
TITLES = {"curate": "Curate", "dont": "Do not curate", "undecided": "Undecided"}


@dataclass(frozen=True)
class Advice:
    """What was found, and what to do.

    Args:
        verdict: curate, dont or undecided.
        sentence: the same in plain words, and why.
        command: what curates; empty for dont.
        pi, kept, purity, auroc, store: as `curate.experiments.advice.verdict.Look`.
        expected_gain: points of accuracy of the best curated network over the best without curation, in the pilot;
            None where there was none, as in what follows.
        interval: its 95 % interval over seeds and scored images.
        pretext, against: of that network, and the set that it gained least on.
        steps, seeds, labels: of the pilot: of each training, trainings of each set, labels a class.
        repetitions: how often the pilot saw each curated image.
        pilot: pretext -> ``accuracy``, ``interval`` and ``difference`` of each set, in per cent.
        hours: of each plan at the budget, and ``budget_steps``, the steps that it buys: none where none were timed.
        budget_repetitions: how often the budget would see each curated image.
        notes: what is to be known.
        sheets: contact sheets.
        page: the same for people.
        seconds: of this call.
    """

    verdict: str
    sentence: str
    command: str
    pi: float
    kept: int
    purity: float | None
    auroc: float
    store: int
    expected_gain: float | None = None
    interval: tuple[float, float] | None = None
    pretext: str | None = None
    against: str | None = None
    steps: int | None = None
    seeds: int | None = None
    labels: int | None = None
    repetitions: float | None = None
    pilot: dict[str, Any] = field(default_factory=dict)
    hours: dict[str, float | None] = field(default_factory=dict)
    budget_steps: int | None = None
    budget_repetitions: float | None = None
    notes: tuple[str, ...] = ()
    sheets: tuple[str, ...] = ()
    page: str = ""
    seconds: float = 0.0


def advice(look: Look, tried: Tried | None, budget: Budget, classifying: float, command: str) -> Advice:
    """All of it but files and seconds.

    Args:
        tried: None where the classifier alone decides.
        classifying: seconds of features and classifier.
        command: what curates.
    """
    found = decide(look, tried.gained if tried else None, tried.unscored if tried else "")
    return Advice(
        verdict=found.word,
        sentence=_sentence(found, tried),
        command="" if found.word == "dont" else command,
        pi=round(look.pi, 1),
        kept=look.kept,
        purity=look.purity,
        auroc=look.auroc,
        store=look.store,
        **(_of_the_pilot(tried, look.kept) if tried else {"notes": (without_pilot(look),)}),
        **(_of_the_budget(tried, look, budget, classifying) if tried else {}),
    )


def _of_the_pilot(tried: Tried, kept: int) -> dict[str, Any]:
    gained = tried.gained
    if gained is None:
        return {}
    return {
        "expected_gain": gained.mean,
        "interval": None if gained.low is None or gained.high is None else (gained.low, gained.high),
        "pretext": gained.pretext,
        "against": gained.against,
        "steps": tried.steps,
        "seeds": gained.seeds,
        "labels": pilot.LABELS,
        "repetitions": round(tried.steps * pilot.BATCHES[tried.pretext] / kept, 1),
        "pilot": tried.sets,
        "notes": tried.notes,
    }


def _of_the_budget(tried: Tried, look: Look, budget: Budget, classifying: float) -> dict[str, Any]:
    steps, batch = budget.of(tried.step.raw), pilot.BATCHES[tried.pretext]
    return {
        "hours": plans.hours(steps, tried.step, classifying, look.store, batch),
        "budget_steps": steps,
        "budget_repetitions": round(steps * batch / look.kept, 1),
    }


def _sentence(found: Verdict, tried: Tried | None) -> str:
    length = f" (pilot of {tried.steps} steps, {pilot.LABELS} labels a class)" if tried and tried.gained else ""
    return f"{TITLES[found.word]}: {found.why}{length}."
