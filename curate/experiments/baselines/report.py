"""From the cells of `against` to intervals, differences and costs, and the page that shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from curate.experiments.sweep import Result
from curate.experiments.text_tables import Sheet, markdown, number

TITLES = {"epochs": "As many epochs of each", "steps": "As many steps of each, the raw store's"}
LEVEL = 0.95


def cell_name(kind: str, regime: str, seed: int) -> str:
    """Of a training: curated-epochs-0."""
    return f"{kind}-{regime}-{seed}"


def figures(
    sets: Sequence[str], seeds: int, trained: Mapping[str, Result], subsets: Mapping[str, Result], curation: float
) -> dict[str, Any]:
    """What against.json says of the trainings.

    Args:
        sets: names, the curated one first.
        trained: of each cell, by `cell_name`; the raw store has those of equal epochs alone.
        subsets: what making each subset took, by its name.
        curation: seconds of the run.
    """
    said: dict[str, Any] = {key: {} for key in ("accuracy", "interval", "difference", "seconds", "images", "steps")}
    for regime in TITLES:
        cells = {kind: _cells(trained, kind, regime, seeds) for kind in sets}
        values = {kind: [cell["accuracy"] for cell in row] for kind, row in cells.items()}
        said["accuracy"][regime] = values
        said["interval"][regime] = {kind: interval(row) for kind, row in values.items()}
        said["difference"][regime] = {
            kind: interval([ours - theirs for ours, theirs in zip(values[sets[0]], row)])
            for kind, row in values.items()
            if kind != sets[0]
        }
        said["seconds"][regime] = {kind: costs(kind, row, subsets, curation) for kind, row in cells.items()}
        said["images"][regime] = {kind: row[0]["images"] for kind, row in cells.items()}
        said["steps"][regime] = {kind: row[0]["steps"] for kind, row in cells.items()}
    return said


def interval(values: Sequence[float]) -> dict[str, float | None]:
    """Mean of one value a seed, and half the width of its 95 % t-interval, None of a single value.

    >>> interval([1.0, 2.0, 3.0])
    {'mean': 2.0, 'half_width': 2.48}
    """
    mean = round(float(np.mean(values)), 2)
    if len(values) < 2:
        return {"mean": mean, "half_width": None}
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return {"mean": mean, "half_width": round(float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error, 2)}


def costs(kind: str, cells: Sequence[Result], subsets: Mapping[str, Result], curation: float) -> dict[str, float]:
    """Seconds of choosing the images and of one training, on average over the seeds, and of both."""
    made = [result["seconds"] for name, result in subsets.items() if name == kind or name.startswith(f"{kind}-")]
    choosing = curation if kind == "curated" else float(np.mean(made)) if made else 0.0
    training = float(np.mean([cell["seconds"] for cell in cells]))
    return {
        "curation": round(choosing, 2),
        "training": round(training, 2),
        "total": round(choosing + training, 2),
    }


def page(said: Mapping[str, Any]) -> str:
    """against.json for people."""
    opening = (
        f"{said['kept']:,} of {said['store']:,} images were kept. Accuracy of logistic regression on test, per cent: "
        f"mean and 95 % interval over {said['seeds']} seed(s); differences are taken seed by seed. Equal epochs: "
        f"{said['epochs']}. Seconds: choosing the images, and one training."
    )
    return markdown("Did curation pay?", [opening], [sheet(said, regime) for regime in TITLES])


def sheet(said: Mapping[str, Any], regime: str) -> Sheet:
    """A line a set, and what follows for the curated one."""
    rows = []
    for kind, found in said["interval"][regime].items():
        seconds, less = said["seconds"][regime][kind], said["difference"][regime].get(kind)
        counts = (number(said[key][regime][kind], 0) for key in ("images", "steps"))
        spent = (number(seconds[part], 1) for part in ("curation", "training", "total"))
        rows.append((kind, shown(found), "" if less is None else shown(less), *counts, *spent))
    header = ("shards", "accuracy", "curated less this", "images", "steps", "choosing s", "training s", "total s")
    return Sheet(TITLES[regime], header, tuple(rows), tuple(verdicts(said, regime)))


def verdicts(said: Mapping[str, Any], regime: str) -> list[str]:
    """Whether the curated shards are better than each other set, and what more or less they cost."""
    seconds = said["seconds"][regime]
    lines = []
    for kind, less in said["difference"][regime].items():
        mean, half = less["mean"], less["half_width"]
        told = half is not None and abs(mean) > half
        better = ("better" if mean > 0 else "worse") if told else "not told apart in accuracy"
        more = seconds["curated"]["total"] - seconds[kind]["total"]
        lines.append(f"curated against {kind}: {better}; {abs(more):,.1f} s {'more' if more > 0 else 'less'} in all")
    return lines


def shown(found: Mapping[str, float | None]) -> str:
    """A mean and its interval.

    >>> shown({"mean": 2.0, "half_width": 2.48}), shown({"mean": 2.0, "half_width": None})
    ('2.00 ± 2.48', '2.00')
    """
    half = "" if found["half_width"] is None else f" ± {found['half_width']:.2f}"
    return f"{number(found['mean'])}{half}"


def _cells(trained: Mapping[str, Result], kind: str, regime: str, seeds: int) -> list[Result]:
    names = (cell_name(kind, "epochs" if kind == "raw" else regime, seed) for seed in range(seeds))
    return [trained[name] for name in names]
