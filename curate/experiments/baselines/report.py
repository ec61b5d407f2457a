"""From the cells of `against` to intervals, differences and costs, and the page that shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.experiments.text_tables import Sheet, markdown, number
from curate.stats import paired

if TYPE_CHECKING:  # cells load torch, which reading what came of them needs not
    from curate.experiments.sweep import Result

TITLES = {"steps": "As many steps of each", "epochs": "As many epochs of each"}
#: What is not trained, and stands beside every set.
UNTRAINED = ("untrained", "pixels")


def cell_name(kind: str, regime: str, seed: int) -> str:
    """Name of a cell: of a training ``curated-epochs-0``, of what is not trained ``pixels-0``."""
    return f"{kind}-{seed}" if kind in UNTRAINED else f"{kind}-{regime}-{seed}"


def figures(
    regimes: Sequence[str],
    sets: Sequence[str],
    seeds: int,
    scored: Mapping[str, Result],
    subsets: Mapping[str, Result],
    curation: float,
) -> dict[str, Any]:
    """What against.json says of the trainings.

    Args:
        regimes: of `TITLES`.
        sets: names, the curated one first.
        scored: of each cell, by `cell_name`, of what is not trained, too; of the raw store equal epochs may lack, where
            they are the same as equal steps.
        subsets: what making each subset took, by its name.
        curation: seconds of the run.
    """
    record: dict[str, Any] = {key: {} for key in ("seconds", "images", "steps")}
    readings: dict[str, dict[str, Any]] = {}
    for regime in regimes:
        cells = {kind: _cells(scored, kind, regime, seeds) for kind in (*sets, *UNTRAINED)}
        trained = {kind: cells[kind] for kind in sets}
        record["seconds"][regime] = {kind: costs(kind, row, subsets, curation) for kind, row in trained.items()}
        record["images"][regime] = {kind: row[0]["images"] for kind, row in trained.items()}
        record["steps"][regime] = {kind: row[0]["steps"] for kind, row in trained.items()}
        for name in cells[sets[0]][0]["right"]:
            right = {kind: [cell["right"][name] for cell in row] for kind, row in cells.items()}
            for key, value in compared(right, sets[0]).items():
                readings.setdefault(name, {}).setdefault(key, {})[regime] = value
    return {**next(iter(readings.values())), "readings": readings, **record}


def compared(right: Mapping[str, Sequence[Sequence[float]]], ours: str) -> dict[str, Any]:
    """Accuracies, intervals and differences of sets, from a row of test images a seed; nothing is rounded."""
    differences = {kind: paired.difference(right[ours], rows) for kind, rows in right.items() if kind != ours}
    return {
        "accuracy": {kind: [100 * sum(row) / len(row) for row in rows] for kind, rows in right.items()},
        "interval": {kind: _plain(paired.estimate(rows)) for kind, rows in right.items()},
        "difference": {kind: _plain(found) | {"verdict": paired.words(found)} for kind, found in differences.items()},
    }


def _plain(found: paired.Estimate) -> dict[str, Any]:
    return {"mean": found.mean, "half_width": found.half_width, "images": found.images}


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


def page(record: Mapping[str, Any]) -> str:
    """The page against.md, Markdown, from what against.json holds."""
    images = next(iter(record["interval"][next(iter(record["steps"]))].values()))["images"]
    opening = (
        f"{record['kept']:,} of {record['store']:,} images were kept. Accuracy of logistic regression on {images:,} "
        f"test images, per cent: mean and 95 % interval over {record['seeds']} seed(s) and these images; differences "
        "are taken image by image and seed by seed. Untrained: the network as it was drawn, its batch norms "
        "calibrated; pixels: the image itself at 9x9. A verdict is of this budget: longer training wants less "
        "choosing. Seconds: choosing the images, and one training."
    )
    sheets = [sheet(record, regime, name) for regime in record["steps"] for name in record["readings"]]
    return markdown("Did curation pay?", [opening], sheets)


def sheet(record: Mapping[str, Any], regime: str, reading: str) -> Sheet:
    """The table of one regime and reading: accuracies, differences and costs, a row a set; verdicts as its notes."""
    found, rows = record["readings"][reading], []
    for kind, interval in found["interval"][regime].items():
        seconds, less = record["seconds"][regime].get(kind, {}), found["difference"][regime].get(kind)
        counts = (number(record[key][regime].get(kind), 0) for key in ("images", "steps"))
        spent = (number(seconds.get(part), 1) for part in ("curation", "training", "total"))
        rows.append((kind, shown(interval), "" if less is None else shown(less), *counts, *spent))
    header = ("shards", "accuracy", "curated less this", "images", "steps", "choosing s", "training s", "total s")
    return Sheet(f"{TITLES[regime]}: {reading}", header, tuple(rows), tuple(verdicts(record, regime, reading)))


def verdicts(record: Mapping[str, Any], regime: str, reading: str) -> list[str]:
    """Whether the curated shards are better than each other set, and what more or less they cost."""
    seconds, found, lines = record["seconds"][regime], record["readings"][reading], []
    trainings = found.get("accuracy", {}).get(regime, {})  # an accuracy a seed
    for kind, less in found["difference"][regime].items():
        alone = " (one seed: another training may say otherwise)" if len(trainings.get(kind, ())) == 1 else ""
        line = f"curated against {kind}: {less['verdict']}{alone}"
        if kind in seconds:
            more = seconds["curated"]["total"] - seconds[kind]["total"]
            line += f"; {abs(more):,.1f} s {'more' if more > 0 else 'less'} in all"
        lines.append(line)
    return lines


def shown(found: Mapping[str, float | None]) -> str:
    """A mean and its interval.

    >>> shown({"mean": 2.0, "half_width": 2.48}), shown({"mean": 2.0, "half_width": None})
    ('2.00 ± 2.48', '2.00')
    """
    half = "" if found["half_width"] is None else f" ± {found['half_width']:.2f}"
    return f"{number(found['mean'])}{half}"


def _cells(scored: Mapping[str, Result], kind: str, regime: str, seeds: int) -> list[Result]:
    """Of a set, by seed; equal epochs of the raw store may be its equal steps."""
    names = [cell_name(kind, regime, seed) for seed in range(seeds)]
    return [scored[name] if name in scored else scored[cell_name(kind, "steps", n)] for n, name in enumerate(names)]
