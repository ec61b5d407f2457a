"""Experiments: advice before anything is paid for, the demo, the paper's tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from curate.api.paths import here
from curate.config.schema import from_options
from curate.errors import Misuse
from curate.runs.inputs import check_inputs

if TYPE_CHECKING:
    from curate.api.paths import PathLike
    from curate.experiments.advice.record import Advice
    from curate.progress import Progress


def advise(
    store: PathLike,
    target: PathLike,
    *,
    out: PathLike,
    budget: str = "1h",
    pretexts: Sequence[str] = ("rotation", "simclr"),
    seeds: int = 5,
    steps: int | None = None,
    seed: int = 0,
    processes: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Advice:
    """Say before anything is paid for whether curating a store for a target is worth it; goes on where it was stopped.

    Args:
        store: the shards.
        target: with labels a small pilot is trained and scored on its val; without, what the images look like decides.
        out: its folder: index, features, the classifier's run, the pilot, contact sheets, ``advice.json``, ``.md``.
        budget: of the real training, in steps ("20000") or hours ("12h").
        pretexts: that the real training may have, of rotation and simclr.
        seeds: trainings of each set in the pilot.
        steps: of each; None for what fits in about two minutes.
        seed: of every draw.
        processes: trainings at a time; None for two, where there are as many cores.
        options: of the classifier's run: ``encoder``, ``nets``, ``features``, ``index``, ``image``, ``device``,
            ``workers``, ``allow_pipe``.

    Returns:
        Verdict, expected gain and its interval, hours of each plan, and what the classifier found.

    Raises:
        Misuse: an option that is unknown or out of its range; ``out`` holds something else.
        RunMismatch: ``out`` holds advice on another store or target, or asked for otherwise.

    >>> advise("store", "target", out="advice").verdict        # doctest: +SKIP
    """
    if idle := sorted(set(options) - set(_ADVICE)):
        raise Misuse(f"{', '.join(idle)}: not an option of advice; it has {', '.join(_ADVICE)}")
    asked = {"store": os.fspath(store), "target": os.fspath(target), **options}
    check_inputs(from_options({**asked, "method": "classifier", "seed": seed}))
    from curate.experiments.advice.advise import advise as find_out
    from curate.experiments.advice.pilot import Pilot
    from curate.experiments.advice.plans import Budget

    pilot = Pilot(tuple(pretexts), seeds, steps, seed, processes)
    return find_out(asked, here(out), pilot, Budget.parse(budget), progress)


#: What the classifier of `advise` is told; its cut is its own.
_ADVICE = ("encoder", "nets", "features", "index", "image", "device", "workers", "allow_pipe")


def demo(
    *, out: PathLike, pretext: Literal["reconstruction", "rotation"] = "reconstruction", seed: int = 0
) -> dict[str, Any]:
    """Hide handwritten digits among patches of photographs, find them again, and train on what was found; minutes.

    Args:
        out: where everything goes: new, or of an unfinished demo.
        pretext: by which BDW weighs the images, beside the choice by the classifier.

    Returns:
        What ``results.json`` holds: accuracies, differences, shares kept, seconds.

    Raises:
        Misuse: ``out`` holds something else, or a demo with other settings.

    >>> demo(out="demo")["kept"]        # doctest: +SKIP
    """
    from curate.experiments.demo.demo import demo as show

    return show(here(out), pretext, seed)


def reproduce_pays(
    data: PathLike,
    *,
    out: PathLike,
    scale: Literal["smoke", "mini", "shares", "full"] = "mini",
    targets: Sequence[str] | None = None,
    pretexts: Sequence[str] | None = None,
    selectors: Sequence[str] | None = None,
    processes: int = 1,
) -> dict[str, Any]:
    """When does curation pay? Mix a store of real images, choose from it in every way, train, score, compare.

    Args:
        data: the folder of the study's sets.
        out: stores, runs, networks, tables and figures; a call for other targets goes on in it.
        scale: how large.
        targets, pretexts, selectors: some of the scale's; None for all.
        processes: cells at a time.

    Returns:
        What ``pays.json`` says: ``cells``, ``verdicts``, ``selected``.

    >>> reproduce_pays("data", out="pays", scale="smoke")["cells"]        # doctest: +SKIP
    """
    from curate.experiments.pays.study import pays

    some = {"targets": targets, "pretexts": pretexts, "selectors": selectors}
    return pays(Path(data), here(out), scale, **some, processes=processes)


def reproduce_table1(
    data: PathLike,
    *,
    out: PathLike,
    scale: Literal["smoke", "mini", "paper", "signals"] = "mini",
    sets: Sequence[str] | None = None,
    epochs: int | None = None,
    seeds: int | None = None,
    processes: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Repeat the paper's Table 1 and Figure 1: a VAE on a mix of MNIST-like sets, weighed for one of them.

    Args:
        data: a folder of folders of MNIST-layout files.
        out: gets ``table1.json``, ``.csv``, ``.md``, figures and every run; the same call goes on in it.
        scale: how large.
        sets: names of three folders; None for the three with the most images.
        epochs, seeds: of every method, and runs of each target; None for the scale's.
        processes: targets at a time.

    Returns:
        What ``table1.json`` holds.

    Raises:
        Misuse: no such scale or sets, or ``out`` holds another experiment.

    >>> reproduce_table1("idx", out="table1", scale="smoke")        # doctest: +SKIP
    """
    from curate.experiments.tables.table1 import table1

    return table1(Path(data), here(out), scale, sets, processes, seed, epochs, seeds)


def reproduce_table2(
    data: PathLike,
    *,
    out: PathLike,
    scale: Literal["smoke", "mini", "paper"] = "mini",
    domains: Sequence[str] | None = None,
    processes: int = 1,
    devices: Sequence[str] = ("auto",),
    seed: int = 0,
) -> dict[str, Any]:
    """Repeat the paper's Table 2 and Figure 2: rotation features under four weightings, scored on many targets.

    Args:
        data: a folder with ``decathlon-1.0/``, folders of STL-10's binary files, or both.
        out: gets ``table2.json``, ``.csv``, ``.md``, ``.tex``, diagrams and every run; the same call goes on in it.
        scale: how large.
        domains: the targets; None for all there are.
        processes: trainings at a time.
        devices: taken in turn by the trainings.

    Returns:
        What ``table2.json`` holds.

    Raises:
        Misuse: no such scale or data set, or ``out`` holds another experiment.

    >>> reproduce_table2("data", out="table2", scale="smoke")        # doctest: +SKIP
    """
    from curate.experiments.tables.table2 import table2

    return table2(Path(data), here(out), scale, domains, processes=processes, devices=devices, seed=seed)


def reproduce_table3(
    data: PathLike,
    *,
    out: PathLike,
    scale: Literal["smoke", "mini", "paper"] = "mini",
    domain: str | None = None,
    processes: int = 1,
    devices: Sequence[str] = ("auto",),
    seed: int = 0,
) -> dict[str, Any]:
    """Repeat the paper's Table 3: what eta, rho and lambda do on STL-10.

    Args:
        data: a folder with a folder of STL-10's binary files.
        out: gets ``table3.json``, ``.csv``, ``.md``, ``.tex`` and every run; the same call goes on in it.
        scale: how large.
        domain: which of several such folders.
        processes: trainings at a time.
        devices: taken in turn by the trainings.

    Returns:
        What ``table3.json`` holds.

    Raises:
        Misuse: no such scale, not one such data set, or ``out`` holds another experiment.

    >>> reproduce_table3("data", out="table3", scale="smoke")        # doctest: +SKIP
    """
    from curate.experiments.tables.table3 import table3

    return table3(Path(data), here(out), scale, domain, processes=processes, devices=devices, seed=seed)
