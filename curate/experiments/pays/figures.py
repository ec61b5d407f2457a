"""From the cells of the study to its numbers: accuracies at equal steps and at equal seconds, choices, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from curate.experiments.pays import presets
from curate.experiments.pays.presets import Arm, Scale
from curate.experiments.sweep import Result
from curate.stats import paired
from shards.indexing import domains
from shards.indexing.index import Index

#: What a selector's choice is held against.
AGAINST = ("raw", "random", "in-domain", "classifier-3")


@dataclass(frozen=True)
class Found:
    """The numbers of one store.

    Args:
        store: images of each set.
        cells: a line each target, pretext, selector, reading and budget.
        verdicts: a line each target, pretext and selector that chooses: its gain over `AGAINST`.
        selected: a line each choice: who is kept.
        encoders: seconds and images a second of each.
    """

    store: dict[str, int]
    cells: list[Result]
    verdicts: list[Result]
    selected: list[Result]
    encoders: dict[str, Result]


def scoring_name(target: str, pretext: str, selector: str, steps: int) -> str:
    """Of a scoring."""
    return f"{target}-{pretext}-{selector}-{steps}"


def of(
    share: str,
    trained: Mapping[Arm, Sequence[Result]],
    scored: Mapping[str, Result],
    chosen: Mapping[str, Result],
    encoded: Mapping[str, Result],
    size: Scale,
    index: Index,
) -> Found:
    """Put the results of all cells together.

    Args:
        trained: arm -> what its trainings took, by seed.
        scored: by `scoring_name`.
        chosen: by target and selector, and the seed of what is weighed.
        encoded: by encoder.
    """
    lines: list[Result] = []
    for arm, rows in trained.items():
        lines += _lines(share, arm, rows, scored, chosen, encoded, size)
    for target, pretext in dict.fromkeys((arm.target, arm.pretext) for arm in trained):
        for name in ("untrained", "pixels"):
            lines += _beside(share, target, pretext, name, scored)
    whole = domains.load(index)
    counts = dict(zip(whole.names, np.bincount(whole.codes, minlength=len(whole.names)).tolist()))
    selected = [
        {"share": share, "choice": name, **{key: one[key] for key in sorted(one)}} for name, one in chosen.items()
    ]
    encoders = {
        name: one | {"images_per_second": round(one["images"] / max(one["seconds"], 1e-9), 1)}
        for name, one in encoded.items()
    }
    limits = _at_equal_seconds(lines, size)
    return Found(counts, lines + limits, _verdicts(share, trained, scored, size), selected, encoders)


def _lines(
    share: str,
    arm: Arm,
    rows: Sequence[Result],
    scored: Mapping[str, Result],
    chosen: Mapping[str, Result],
    encoded: Mapping[str, Result],
    size: Scale,
) -> list[Result]:
    """An arm's accuracies, a line each reading."""
    picked = _choices(arm, chosen, size.seeds)
    choosing = float(np.mean([one["seconds"] for one in picked])) if picked else 0.0
    choosing += _features_seconds(arm.selector, encoded)
    right = scored[scoring_name(arm.target, arm.pretext, arm.selector, arm.steps)]["right"]
    kept = float(np.mean([one["images"] for one in rows]))
    facts: Result = {
        "kept": round(kept, 1),
        "purity": _mean(picked, "purity") if picked else None,
        "auroc": _mean(picked, "auroc") if picked else None,
        "seconds": round(choosing + float(np.mean([one["seconds"] for one in rows])), 2),
        "choosing_seconds": round(choosing, 2),
    }
    return [
        {**_key(share, arm.target, arm.pretext, arm.selector, reading), "budget": "equal-steps", "steps": arm.steps}
        | _accuracy(shares)
        | facts
        for reading, shares in right.items()
    ]


def _beside(share: str, target: str, pretext: str, name: str, scored: Mapping[str, Result]) -> list[Result]:
    """What no training gives, under the names of the pretext's taps."""
    right = scored[scoring_name(target, pretext, name, 0)]["right"]
    nothing = {"budget": "equal-steps", "steps": 0, "seconds": 0.0, "choosing_seconds": 0.0}
    return [
        {**_key(share, target, pretext, name, reading), **nothing, **_accuracy(shares)}
        | dict.fromkeys(("kept", "purity", "auroc"))
        for reading, shares in right.items()
    ]


def _key(share: str, target: str, pretext: str, selector: str, reading: str) -> Result:
    tap, _, labels = reading.partition(", ")
    return {
        "share": float(share),
        "target": target,
        "pretext": pretext,
        "selector": selector,
        "tap": tap,
        "labels": labels,
    }


def _accuracy(shares: Sequence[Sequence[float]]) -> Result:
    """Per cent: mean over the seeds, its standard error, half the 95 % interval over seeds and test images."""
    each = [100 * float(np.mean(row)) for row in shares]
    whole = paired.estimate(shares)
    se = float(np.std(each, ddof=1)) / len(each) ** 0.5 if len(each) > 1 else None
    return {
        "seeds": len(each),
        "mean": round(whole.mean, 3),
        "se": None if se is None else round(se, 3),
        "half_width": None if whole.half_width is None else round(whole.half_width, 3),
    }


def _at_equal_seconds(lines: Sequence[Result], size: Scale) -> list[Result]:
    """For what the raw store takes for each of its lengths: every selector's longest training that ends by then."""
    found = []
    names = ("target", "pretext", "tap", "labels")
    for raw in (line for line in lines if line["selector"] == "raw"):
        same = [line for line in lines if all(line[name] == raw[name] for name in names) and line["steps"]]
        for selector in dict.fromkeys(line["selector"] for line in same if line["selector"] in size.lengths):
            affordable = [line for line in same if line["selector"] == selector and line["seconds"] <= raw["seconds"]]
            if affordable:
                longest = max(affordable, key=lambda line: line["steps"])
                found.append(longest | {"budget": "equal-seconds", "limit": raw["seconds"]})
    return found


def _verdicts(
    share: str, trained: Mapping[Arm, Sequence[Result]], scored: Mapping[str, Result], size: Scale
) -> list[Result]:
    """At the scale's steps and the pretext's own tap: gains, image by image and seed by seed, with their intervals."""
    found = []
    for arm in trained:
        if arm.steps != size.steps or arm.selector in presets.SHARED:
            continue
        ours = scored[scoring_name(arm.target, arm.pretext, arm.selector, arm.steps)]["right"]
        for reading in ours:
            line = _key(share, arm.target, arm.pretext, arm.selector, reading)
            for other in AGAINST:
                name = scoring_name(arm.target, arm.pretext, other, arm.steps)
                if name in scored and other != arm.selector:
                    less = paired.difference(ours[reading], scored[name]["right"][reading])
                    line[f"less {other}"] = {
                        "mean": round(less.mean, 3),
                        "half_width": None if less.half_width is None else round(less.half_width, 3),
                        "verdict": paired.words(less),
                    }
            found.append(line)
    return found


def _choices(arm: Arm, chosen: Mapping[str, Result], seeds: int) -> list[Result]:
    """What the arm's selector kept, a result a seed where it has any."""
    name = f"{arm.target}-{arm.selector}"
    return [chosen[one] for one in (name, *(f"{name}-{seed}" for seed in range(seeds))) if one in chosen]


def _features_seconds(selector: str, encoded: Mapping[str, Result]) -> float:
    """Of the store's features, as a part of what choosing takes."""
    options = presets.CHOICES.get(selector) or presets.WEIGHINGS.get(selector) or {}
    name = f"{options['encoder']}-{options.get('nets', 0)}" if "encoder" in options else ""
    return float(encoded[name]["seconds"]) if name in encoded else 0.0


def _mean(picked: Sequence[Result], key: str) -> float | None:
    values = [one[key] for one in picked if one[key] is not None]
    return round(float(np.mean(values)), 4) if values else None
