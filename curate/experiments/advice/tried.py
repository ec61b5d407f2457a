"""What a pilot came to: the gain of the best curated network, what stands beside it, and the seconds of a step."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from curate.config.schema import RunConfig
from curate.data.target import TargetIndex
from curate.experiments.advice import pilot, scored, verdict
from curate.experiments.advice.pilot import Pilot, Place
from curate.experiments.advice.plans import StepSeconds
from curate.experiments.baselines.report import compared
from curate.experiments.sweep import Result
from curate.runs import provenance
from curate.stats import paired

Rows = dict[str, list[list[float]]]


@dataclass(frozen=True)
class Tried:
    """What the pilot came to.

    Args:
        step: seconds of a step with the network of ``pretext``: that of the best curated network, or the first asked
            for.
        gained: None without a pilot; ``unscored`` says why then, and all that follows is empty.
        steps: of each training.
        sets: pretext -> `curate.experiments.baselines.report.compared` of all sets.
        notes: what is to be known of it.
    """

    pretext: str
    step: StepSeconds
    gained: verdict.Gain | None = None
    unscored: str = ""
    steps: int = 0
    sets: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def try_out(config: RunConfig, target: TargetIndex, out: Path, asked: Pilot, kept: int) -> Tried:
    """Time a step, and where the target can score it train and score the pilot.

    Args:
        config: of the classifier's run, which is in ``out``/run.
        kept: how many it keeps.
    """
    images = provenance.read_config(out / "run").images
    place = Place(config.store, config.target, out, config.index, config.machine.device, images.mean, images.deviation)
    timed, first = pilot.timings(place, asked.pretexts), asked.pretexts[0]
    try:
        held = scored.draw(target, pilot.decoder(), asked.seed)
    except scored.Unscorable as error:
        plain = timed[first]["plain"]
        return Tried(first, StepSeconds(plain, plain, timed[first]["bdw"]), unscored=str(error))
    scored.save(out / "scored.npz", held)
    processes = asked.processes or min(2, len(os.sched_getaffinity(0)))
    steps = pilot.length(place, asked, timed, processes)
    seeds = range(asked.seed, asked.seed + asked.seeds)
    pilot.random_sets(place, kept, seeds)
    cells = pilot.run(place, asked.pretexts, seeds, steps, processes)
    right = {pretext: rows_of(cells, pretext, seeds) for pretext in asked.pretexts}
    gained = verdict.gain({pretext: {kind: rows[kind] for kind in pilot.SETS} for pretext, rows in right.items()})
    return Tried(
        gained.pretext,
        _step(cells, gained.pretext, seeds, timed[gained.pretext]),
        gained,
        steps=steps,
        sets={pretext: compared(rows, "curated") for pretext, rows in right.items()},
        notes=(*held.notes, *untaught(right[gained.pretext])),
    )


def rows_of(cells: dict[str, Result], pretext: str, seeds: range) -> Rows:
    """Of each set, and of what stands beside, a row a seed; the pixels are the same by every seed."""
    kinds = (*pilot.SETS, "untrained")
    found = {kind: [cells[f"{pretext}/{kind}-{seed}"]["right"] for seed in seeds] for kind in kinds}
    return found | {"pixels": [cells["pixels"]["right"] for _ in seeds]}


def untaught(right: Rows) -> tuple[str, ...]:
    """Where the curated network is not told to be better than what takes no training at all."""
    words = {"untrained": "the network as it was drawn", "pixels": "the pixels themselves"}
    less = {kind: paired.difference(right["curated"], right[kind]) for kind in words}
    return tuple(
        f"the curated network is {'worse than' if found.differs else 'not told to be better than'} {words[kind]} "
        f"({found.mean:+.1f} points): at this length pre-training itself does not pay; "
        "a longer pilot (--steps) tells more"
        for kind, found in less.items()
        if not (found.differs and found.mean > 0)
    )


def _step(cells: dict[str, Result], pretext: str, seeds: range, timed: Result) -> StepSeconds:
    """Means of the pilot's trainings; BDW's step is as much dearer than a plain one as when both were timed."""
    raw, curated = (
        float(np.mean([cell["seconds"] / cell["steps"] for cell in (cells[f"{pretext}/{kind}-{n}"] for n in seeds)]))
        for kind in ("raw", "curated")
    )
    return StepSeconds(raw, curated, None if timed["bdw"] is None else raw * timed["bdw"] / timed["plain"])
