"""When does curation pay? The whole study: one mixed store a share, seven targets, every way to choose, equal budgets.

First as many steps of each training, which is as much computing; then as many seconds, the choosing included. Owns what
is run and in which order; `cells` does it, `figures` says what came out, `report` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curate.config.catalogue import parse_encoder
from curate.data.decode import Decoder, measure
from curate.data.image_store import ImageStore, ShardView
from curate.errors import Misuse
from curate.experiments.pays import cells, figures, mixed, presets, record, report
from curate.experiments.pays.cells import Choosing, Encoding, Scoring, Subset, Training
from curate.experiments.pays.presets import Arm, Options, Scale
from curate.experiments.sweep import Result, one_thread, run_cells
from shards.io.json_files import json_bytes, parse_json, write_json
from shards.shuffle import permutation
from shards.store import open_index

#: Images that the store's colours are measured on; all sets are normalised by them.
MEASURED = 1000


def pays(
    data: Path,
    out: Path,
    scale: str,
    *,
    targets: Sequence[str] | None = None,
    pretexts: Sequence[str] | None = None,
    selectors: Sequence[str] | None = None,
    processes: int = 1,
) -> dict[str, Any]:
    """Run what an earlier call left, and write ``pays.json``, ``pays.md``, the curves and the map.

    Args:
        data: the folder of sets, as `curate.experiments.pays.sources.pictures` has it.
        out: stores, runs and networks; what its pays.json says of other targets, pretexts and selectors stays.
        scale: a name in `presets.SCALES`.
        targets, pretexts, selectors: some of the scale's; None for all.
        processes: cells at a time.

    Returns:
        What pays.json says.

    Raises:
        Misuse: no such scale, target, pretext or selector; ``data`` lacks a set; ``out`` holds cells with other
            settings, or another study.
    """
    one_thread()
    size = presets.of(scale)
    wanted = (
        _some("targets", targets, size.targets),
        _some("pretexts", pretexts, size.pretexts),
        _some("selectors", selectors, (*size.trained, *size.chosen)),
    )
    found = {share: _of_share(data, out / f"share-{share}", size, share, *wanted, processes) for share in size.mixtures}
    new: dict[str, Any] = {
        "format": "pays",
        "version": 1,
        "scale": scale,
        "steps": size.steps,
        "labels": [presets.FEW, "all"],
        "stores": {share: one.store for share, one in found.items()},
        "cells": [cell for one in found.values() for cell in one.cells],
        "verdicts": [line for one in found.values() for line in one.verdicts],
        "selected": [line for one in found.values() for line in one.selected],
        "encoders": {share: one.encoders for share, one in found.items()},
    }
    whole = record.with_earlier(parse_json(json_bytes(new)), out / "pays.json")
    write_json(out / "pays.json", whole)
    report.write(out, whole)
    return whole


def _of_share(
    data: Path,
    out: Path,
    size: Scale,
    share: str,
    targets: Sequence[str],
    pretexts: Sequence[str],
    selectors: Sequence[str],
    processes: int,
) -> figures.Found:
    """One store, everything that is done with it."""
    mixture = size.mixtures[share]
    mixed.pack(data, out, mixture)
    colours = _colours(out / "store")
    run = partial(_cells, out, processes)
    encodings = {_encoding_name(one): one for one in _encodings(size, selectors)}
    encoded = run(cells.encode, encodings, "features")
    choosings = {
        f"{target}-{name}": Choosing(target, name, presets.CHOICES[name], mixture.inside)
        for name in presets.CHOICES
        if name in selectors and name in size.chosen
        for target in dict.fromkeys((*((size.targets[0],) if name in presets.OF_NO_TARGET else ()), *targets))
    }
    chosen = run(cells.choose, choosings, "choosing")
    arms = _arms(size, targets, pretexts, selectors)
    run(cells.subset, _subsets(arms, mixture.inside, size.seeds), "subsets")
    weighings = _weighings(arms, size, colours)
    chosen |= run(cells.choose, weighings, "weighing")
    trainings = {arm: _trainings(arm, size, colours, chosen) for arm in arms}
    trained = run(cells.train, {cells.network_name(one): one for row in trainings.values() for one in row}, "trainings")
    scorings = _scorings({arm: row for arm, row in trainings.items() if row}, targets)
    scored = run(cells.score, scorings, "scores")
    return figures.of(
        share,
        {arm: [trained[cells.network_name(one)] for one in row] for arm, row in trainings.items() if row},
        scored,
        chosen,
        encoded,
        size,
        open_index(str(out / "store")),
    )


def _cells(out: Path, processes: int, work: Any, wanted: Mapping[str, Any], label: str) -> dict[str, Result]:
    return run_cells(partial(work, out), wanted, out / "cells" / label, label, processes)


def _arms(size: Scale, targets: Sequence[str], pretexts: Sequence[str], selectors: Sequence[str]) -> list[Arm]:
    """What is trained: seven targets share the trainings of selectors that look at none."""
    arms = []
    for target in targets:
        for pretext in pretexts:
            number = size.pretexts.index(pretext)
            for selector in (name for name in size.trained if name in selectors):
                if selector in presets.WEIGHINGS and (number or target not in size.weighed):
                    continue
                more = size.lengths.get(selector, ()) if number == 0 else ()
                arms += [Arm(target, pretext, selector, steps) for steps in sorted({size.steps, *more})]
    return arms


def _encodings(size: Scale, selectors: Sequence[str]) -> list[Encoding]:
    """Each encoder once, the weighings' classifier included."""
    found: dict[Encoding, None] = {}
    for name in (*size.chosen, *size.trained):
        options = presets.CHOICES.get(name) or presets.WEIGHINGS.get(name) or {}
        if name in selectors and "encoder" in options:
            found[Encoding(options["encoder"], options.get("nets", 0))] = None
    return list(found)


def _encoding_name(cell: Encoding) -> str:
    return f"{parse_encoder(cell.encoder)[0]}-{cell.nets}"


def _subsets(arms: Sequence[Arm], inside: int, seeds: int) -> dict[str, Subset]:
    found = {f"in-domain-{arm.target}": Subset(arm.target, 0, 0) for arm in arms if arm.selector == "in-domain"}
    if any(arm.selector == "random" for arm in arms):
        found |= {f"random-{seed}": Subset("", inside, seed) for seed in range(seeds)}
    return found


def _weighings(arms: Sequence[Arm], size: Scale, colours: Options) -> dict[str, Choosing]:
    """A run a seed; each weighs with the pretext and the net that are trained with."""
    found = {}
    for arm in arms:
        if arm.selector in presets.WEIGHINGS:
            for seed in range(size.seeds):
                options = presets.PRETEXTS[arm.pretext] | colours | presets.WEIGHINGS[arm.selector] | {"seed": seed}
                found[f"{arm.target}-{arm.selector}-{seed}"] = Choosing(arm.target, arm.selector, options, 0)
    return found


def _trainings(arm: Arm, size: Scale, colours: Options, chosen: Mapping[str, Result]) -> list[Training]:
    """One a seed; none where a seed's selector kept nothing."""
    rows = []
    for seed in range(size.seeds):
        name = f"{size.targets[0] if arm.selector in presets.OF_NO_TARGET else arm.target}-{arm.selector}"
        name = f"{name}-{seed}" if arm.selector in presets.WEIGHINGS else name
        shards = {"raw": "store", "random": f"subsets/random-{seed}", "in-domain": f"subsets/in-domain-{arm.target}"}
        if arm.selector not in presets.PLAIN and not chosen[name]["kept"]:
            return []
        where = shards.get(arm.selector, f"chosen/{name}/curated")
        rows.append(Training(where, arm.steps, presets.PRETEXTS[arm.pretext] | colours | {"seed": seed}))
    return rows


def _scorings(trainings: Mapping[Arm, list[Training]], targets: Sequence[str]) -> dict[str, Scoring]:
    """Every arm on its target; and what no training gives: the networks as drawn, and the pixels."""
    found = {}
    for arm, rows in trainings.items():
        names = tuple(cells.network_name(one) for one in rows)
        found[figures.scoring_name(arm.target, arm.pretext, arm.selector, arm.steps)] = Scoring(
            arm.target, names, presets.TAPS[arm.pretext]
        )
        untrained = figures.scoring_name(arm.target, arm.pretext, "untrained", 0)
        found.setdefault(untrained, Scoring(arm.target, names, presets.TAPS[arm.pretext], untrained=True))
        found.setdefault(figures.scoring_name(arm.target, arm.pretext, "pixels", 0), Scoring(arm.target, names[:1], ()))
    return found


def _colours(store: Path) -> Options:
    """Mean and deviation of the store's pixels, which every set is normalised by."""
    index = open_index(str(store))
    rows = np.sort(permutation(0, "colours", 0, len(index))[:MEASURED])
    images = ImageStore(ShardView.whole(index), Decoder(24, "rgb"), 0, 0, torch.device("cpu"))
    mean, deviation = measure(images.sample(rows))
    return {"mean": mean, "deviation": deviation}


def _some(option: str, wanted: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """The wanted ones in the order of the known."""
    unknown = [name for name in wanted or () if name not in known]
    if unknown or (wanted is not None and not wanted):
        raise Misuse(f"--{option} {','.join(unknown)}: expected some of {', '.join(dict.fromkeys(known))}")
    return tuple(name for name in dict.fromkeys(known) if wanted is None or name in wanted)
