"""The pilot: short plain trainings on what the classifier keeps, on as many random images and on the raw store, alike.

Settings are those of docs/method.md, section 5: a small network at a low resolution, as many steps of each, all
normalised by the store's statistics, read with few labels where each pretext shows what it has learnt. Beside them
stands what no training gives: the network as it was drawn, and the pixels.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from curate.config.schema import RunConfig, from_options
from curate.data.decode import Decoder
from curate.errors import CurateError, Misuse
from curate.evaluation.evaluate import Protocol
from curate.evaluation.few_labels import DRAWS
from curate.evaluation.readings import PIXELS, Reading, read
from curate.evaluation.trained import Trained
from curate.experiments.advice import scored
from curate.experiments.baselines import trials
from curate.experiments.sweep import Result, run_cells
from curate.runs import provenance
from curate.runs.dry_run import dry_run
from curate.runs.prepare import pick_device
from curate.runs.pretrain import pretrain
from shards.store import open_index

#: The network and its images; 128 crops a step.
OPTIONS: dict[str, Any] = {
    **{"network": "small", "width": 16, "stem_stride": 2, "workers": 0},
    **{"size": 28, "crop": 24, "colour": "rgb", "mirror": False},
}
BATCHES = {"rotation": 32, "simclr": 64}
RATES = {"rotation": 0.05, "simclr": 0.1}
#: Where a network is read, by pretext.
TAPS = {"rotation": "layer2:4x4", "simclr": "pool"}
SETS = ("raw", "random", "curated")
UNTRAINED = ("untrained", "pixels")
#: Labels a class.
LABELS = 5

#: Seconds that the trainings of a pilot may take, steps that it may have, and seconds of a training beside its steps.
SECONDS, STEPS, BESIDE = 120.0, (600, 400, 300, 200, 150, 100, 75, 50, 30, 20, 10), 3.0


@dataclass(frozen=True)
class Pilot:
    """How a pilot is made.

    Args:
        pretexts: of `TAPS`: those that the real training may have.
        seeds: trainings of each set and pretext.
        steps: of each; None for what fits two minutes.
        seed: the first, and that of every draw.
        processes: trainings at a time, which change no result; None for two, where there are as many cores.
    """

    pretexts: tuple[str, ...] = ("rotation", "simclr")
    seeds: int = 3
    steps: int | None = None
    seed: int = 0
    processes: int | None = None


@dataclass(frozen=True)
class Place:
    """Where the work is done, which changes no result.

    Args:
        index: of the store, where it is not beside it; None where it is.
        mean, deviation: of the store, by which every set is normalised.
    """

    store: str
    target: str
    out: Path
    index: str | None
    device: str
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def options(self, pretext: str) -> dict[str, Any]:
        """Of a training on any of the sets."""
        measured = {"mean": self.mean, "deviation": self.deviation, "device": self.device}
        return OPTIONS | measured | {"pretext": pretext, "batch": BATCHES[pretext], "lr": RATES[pretext]}


@dataclass(frozen=True)
class Timing:
    """A cell: seconds of a step."""

    pretext: str


@dataclass(frozen=True)
class Length:
    """A cell: the steps of every training, chosen once, so that later seeds have as many."""

    pretexts: tuple[str, ...]


@dataclass(frozen=True)
class Training:
    """A cell: a plain training and its score."""

    shards: str
    pretext: str
    seed: int
    steps: int
    labels: int
    draws: int = DRAWS


@dataclass(frozen=True)
class Beside:
    """A cell: what the network as it was drawn gives, or the pixels."""

    name: str
    pretext: str
    seed: int
    labels: int
    draws: int = DRAWS


#: What a cell's file must say: seconds, above 0 and of a lifetime; a share for each scored image.
Positive = Annotated[float, Meta(gt=0, le=1e9)]
Shares = list[Annotated[float, Meta(ge=0, le=1)]]


class Timed(TypedDict):
    """Seconds of a step, plain and of BDW."""

    plain: Positive
    bdw: Positive | None


class Steps(TypedDict):
    """A length."""

    steps: Annotated[int, Meta(ge=1)]


class Told(TypedDict):
    """A score."""

    right: Shares


class Learnt(Told, Steps):
    """A training's score, and what it took."""

    seconds: Positive
    images: int


def timings(place: Place, pretexts: tuple[str, ...]) -> dict[str, Result]:
    """``plain`` and ``bdw``: seconds of a step on the store, reading included, by pretext; measured once a folder."""
    cells = {pretext: Timing(pretext) for pretext in pretexts}
    return run_cells(partial(_time, place), cells, place.out / "timings", "timing", kind=Timed)


def _time(place: Place, cell: Timing) -> Result:
    asked = place.options(cell.pretext) | {"store": place.store, "index": place.index, "target": place.target}
    plain = from_options(asked | {"method": "uniform", "target": ""})
    found: Result = {"plain": _seconds_of(plain), "bdw": None}
    with suppress(CurateError):  # a plan without hours; `curate run --dry-run` says what will not work
        found["bdw"] = _seconds_of(from_options(asked | {"method": "bdw"}))
    return found


def _seconds_of(config: RunConfig) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        return dry_run(config, Path(scratch) / "run").seconds_per_step


def length(place: Place, asked: Pilot, timed: dict[str, Result], processes: int) -> int:
    """The steps asked for, or those that fitted when the folder's first trainings were planned."""
    if asked.steps is not None:
        return asked.steps
    fit = partial(_fit, timed, asked.seeds, processes)
    found = run_cells(fit, {"steps": Length(asked.pretexts)}, place.out / "timings", "length", kind=Steps)
    return int(found["steps"]["steps"])


def _fit(timed: dict[str, Result], seeds: int, processes: int, cell: Length) -> Result:
    return {"steps": steps_that_fit(timed, seeds, processes)}


def steps_that_fit(timed: dict[str, Result], seeds: int, processes: int) -> int:
    """The largest of `STEPS` with which all trainings take about `SECONDS`; the smallest in any case.

    >>> steps_that_fit({"rotation": {"plain": 0.05}}, 3, 2), steps_that_fit({"rotation": {"plain": 5.0}}, 3, 2)
    (400, 10)
    """
    trainings = len(SETS) * seeds / processes
    a_step = sum(found["plain"] for found in timed.values())
    free = SECONDS / trainings - BESIDE * len(timed)
    return next((steps for steps in STEPS if steps * a_step <= free), STEPS[-1])


def run(place: Place, pretexts: tuple[str, ...], seeds: range, steps: int, processes: int) -> dict[str, Result]:
    """Train and score every set by every pretext with every seed, then what stands beside them.

    Returns:
        The cells' results by name, ``PRETEXT/SET-SEED``, and ``pixels``: ``right``, a share for each scored image; of
        a training ``seconds``, ``images`` and ``steps``, too.
    """
    cells = {
        f"{pretext}/{kind}-{seed}": Training(kind, pretext, seed, steps, LABELS)
        for seed in seeds
        for pretext in pretexts
        for kind in SETS
    }
    found = run_cells(partial(work, place), cells, place.out / "cells", "pilot", processes, Learnt)
    beside = {f"{p}/untrained-{seed}": Beside("untrained", p, seed, LABELS) for p in pretexts for seed in seeds}
    beside["pixels"] = Beside("pixels", pretexts[0], seeds[0], LABELS)
    return found | run_cells(partial(look, place), beside, place.out / "cells", "untrained", kind=Told)


def random_sets(place: Place, kept: int, seeds: range) -> None:
    """Shards of as many random images, others for each seed; what is there is left."""
    index = open_index(place.store, Path(place.index) if place.index else None)
    for seed in seeds:
        if not (place.out / "random" / str(seed)).exists():
            trials.random_subset(index, kept, seed, place.out / "random" / str(seed))


def shards_of(place: Place, kind: str, seed: int) -> str:
    """Where the shards of a set are."""
    own = {"raw": place.store, "curated": str(place.out / "run" / "curated")}
    return own.get(kind, str(place.out / "random" / str(seed)))


def work(place: Place, cell: Training) -> Result:
    """Pre-train plainly and score."""
    to = place.out / "networks" / f"{cell.pretext}-{cell.shards}-{cell.seed}"
    options = place.options(cell.pretext) | {"seed": cell.seed, "schedule": "cosine"}
    if cell.shards == "raw":
        options |= {"index": place.index}
    trained = pretrain(shards_of(place, cell.shards, cell.seed), to, options, cell.steps)
    right = _right(place, to, Reading(TAPS[cell.pretext], cell.labels), cell.draws)
    return {"right": right, "seconds": trained.seconds, "images": trained.images, "steps": trained.steps}


def look(place: Place, cell: Beside) -> Result:
    """The same of the network that the raw store's training began with, or of the pixels."""
    tap = TAPS[cell.pretext] if cell.name == "untrained" else PIXELS
    network = place.out / "networks" / f"{cell.pretext}-raw-{cell.seed}"
    return {"right": _right(place, network, Reading(tap, cell.labels), cell.draws, 0)}


def _right(place: Place, network: Path, reading: Reading, draws: int, epoch: int | None = None) -> list[float]:
    found = read(_opened(place, network), [reading], Protocol(epoch=epoch, device=place.device), draws)
    return [round(share, 6) for share in found[0].right.tolist()]


def _opened(place: Place, network: Path) -> Trained:
    """A network and the images that it is read on; few labels look at no val, so it has an image alone."""
    held = scored.load(place.out / "scored.npz")
    one = (held.train[0][:1], held.train[1][:1])
    splits = {"train": held.train, "val": one, "test": held.held}
    return Trained(network, provenance.read_config(network), splits, held.classes, {}, pick_device(place.device))


def decoder() -> Decoder:
    """How the images that networks are read on are decoded."""
    return Decoder(OPTIONS["size"], OPTIONS["colour"])


def check(asked: Pilot) -> None:
    """Refuse what cannot be meant.

    Raises:
        Misuse: an unknown pretext, one named twice, or none; fewer than one seed, step or process.
    """
    names = asked.pretexts
    if not names or any(name not in tuple(TAPS) or names.count(name) > 1 for name in names):
        raise Misuse(f"--pretext {','.join(map(str, names))}: expected some of {', '.join(TAPS)}, each once")
    for name in ("seeds", "steps", "processes"):
        count = getattr(asked, name)
        if (type(count) is not int or count < 1) and (count is not None or name == "seeds"):
            raise Misuse(f"--{name} {count}: expected at least 1, a whole number")
