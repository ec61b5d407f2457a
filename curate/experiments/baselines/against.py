"""Did curation pay? Plain pre-training on a run's curated shards against other shards, over seeds, and the costs.

All are trained alike, with the run's own network, sizes and rates: as many epochs of each, and as many steps as the raw
store takes in these epochs. Curation's own seconds, and those of finding the nearest images, count.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from curate.config.resolved import ReadyConfig
from curate.config.schema import ImageConfig, NetworkConfig, TrainConfig, to_options
from curate.data.decode import Decoder
from curate.data.target import is_labelled, load_split, open_target
from curate.errors import CurateError, Misuse
from curate.evaluation import output_dir
from curate.evaluation.evaluate import Protocol, evaluate
from curate.experiments.baselines import report, trials
from curate.experiments.baselines.report import cell_name
from curate.experiments.sweep import Result, run_cells
from curate.ledger.metrics import seconds_spent
from curate.runs import provenance, target_distances
from curate.runs.prepare import fresh_examples, open_images, pick_device, trainable
from curate.runs.pretrain import pretrain
from curate.types import Ints
from shards.indexing import domains
from shards.indexing.index import Index
from shards.io.atomic import publish_bytes
from shards.io.json_files import publish_json
from shards.store import open_index

#: What curated shards can be held against, in this order.
OTHERS = ("raw", "random", "nn", "oracle")
#: What a folder of a comparison holds first: of which run, on which target.
RECORD = "comparison.json"
FORMAT, VERSION = "comparison", 1
#: Every set is trained for as many epochs, and for as many steps.
REGIMES = ("epochs", "steps")


@dataclass(frozen=True)
class Asked:
    """How to compare.

    Args:
        names: of `OTHERS`.
        seeds: trainings of each set.
        epochs: of each training; None for the run's.
        domain: the target's own in the store, for oracle; None for the one that the run was told.
        protocol: how networks are scored.
        processes: trainings at a time.
        allow_pipe: whether the run's store may be one that a command makes.
    """

    names: tuple[str, ...]
    seeds: int = 3
    epochs: int | None = None
    domain: str | None = None
    protocol: Protocol = field(default_factory=Protocol)
    processes: int = 1
    allow_pipe: bool = False


@dataclass(frozen=True)
class Subset:
    """A cell: shards of some images of the store.

    Args:
        kind: random, nn or oracle.
        images: how many; oracle takes all of the domain.
        seed: of random.
    """

    run_id: str
    kind: str
    images: int
    seed: int
    domain: str | None


@dataclass(frozen=True)
class Training:
    """A cell: a plain pre-training and its score.

    Args:
        shards: name of the set.
        epochs, steps: how long; one of them.
        options: of the pre-training.
        protocol: how it is scored, wherever that is done.
    """

    run_id: str
    shards: str
    epochs: int | None
    steps: int | None
    options: dict[str, Any]
    protocol: Protocol


@dataclass(frozen=True)
class Place:
    """Where the work is done, which changes no result."""

    run: Path
    target: str
    out: Path
    config: ReadyConfig
    device: str


def against(run: Path, target: str, asked: Asked, out: Path | None = None) -> dict[str, Any]:
    """Compare, and write ``against.json`` and ``against.md``; goes on where an earlier call was stopped.

    Args:
        run: a finished run, whose store is still where it was.
        target: labelled.
        out: None for ``evaluations/against`` in the run.

    Returns:
        ``accuracy``: regime -> set -> per cent by seed; ``interval``: the same with mean and half the width of its 95 %
        interval; ``difference``: curated less each other set, seed by seed; ``seconds``: regime -> set -> ``curation``,
        ``training``, ``total``; ``images`` and ``steps`` of each.

    Raises:
        Misuse: an unknown name, no seed, no domain for oracle or without it, a run without curated shards;
            ``out`` overlaps what is read, or holds another comparison or files of something else.
        RunMismatch: ``out`` holds a comparison of another run, or on another target.
        CurateError, ShardError: the run is not finished, its store has changed, the target has no labels.
    """
    record = provenance.read_run(run)
    config = provenance.config_of(record, run)
    config = replace(config, machine=replace(config.machine, allow_pipe=asked.allow_pipe))
    _check(asked, config)
    _refuse_uncurated(run)
    folder = output_dir.place(run, target, out, "against", RECORD)
    opened = open_target(target)
    if not is_labelled(opened):
        raise CurateError(f"{target}/train: no labels (.cls members); evaluation needs a labelled target")
    fingerprint = opened.fingerprint
    index = store_of(run, config)
    place = Place(run, target, folder, config, asked.protocol.device)
    kept = len(open_index(str(run / "curated")))
    said = {
        "format": FORMAT,
        "version": VERSION,
        "run": record["run_id"],
        "target": fingerprint,
        "epochs": asked.epochs,
    }
    output_dir.keep(folder / RECORD, said)
    subsets = run_cells(
        partial(make_subset, place), _subsets(asked, config, record["run_id"], kept), place.out / "subsets", "subsets"
    )
    trained = run_cells(
        partial(train, place),
        _trainings(asked, config, record["run_id"], index),
        place.out / "trainings",
        "trainings",
        asked.processes,
    )
    said = {
        "sets": ["curated", *asked.names],
        "seeds": asked.seeds,
        "epochs": epochs_of(asked, config),
        "store": len(index),
        "kept": kept,
        **report.figures(["curated", *asked.names], asked.seeds, trained, subsets, seconds_spent(run)),
    }
    publish_json(place.out / "against.json", said)
    publish_bytes(place.out / "against.md", report.page(said).encode())
    return said


def store_of(run: Path, config: ReadyConfig) -> Index:
    """The index of the store that a run was of."""
    place = Path(config.index) if config.index else None
    return open_index(config.store, place, made_at=run / "index.parquet", allow_pipe=config.machine.allow_pipe)


def make_subset(place: Place, cell: Subset) -> Result:
    """Write the shards of a subset; ``images`` and ``seconds``, the choosing included."""
    started, config = time.perf_counter(), place.config
    index = store_of(place.run, config)
    to = place.out / "shards" / _shards_of(cell.kind, cell.seed)
    if cell.kind == "random":
        trials.random_subset(index, cell.images, cell.seed, to)
    elif cell.kind == "nn":
        trials.subset(index, nearest(place, index, cell.images), to)
    else:
        trials.subset(index, np.flatnonzero(domains.load(index).own(str(cell.domain))), to)
    return {"images": len(open_index(str(to))), "seconds": round(time.perf_counter() - started, 3)}


def nearest(place: Place, index: Index, count: int) -> Ints:
    """The rows of the images that are nearest to the target's training images, as method nn measures it."""
    config, device = place.config, pick_device(place.device)
    images = open_images(config, index, Decoder.of(config.images), device)
    train = load_split(open_target(place.target), "train", images.decoder)
    rows = trainable(fresh_examples(index))
    squared, _ = target_distances.measure(
        images, rows, train.pixels, target_distances.vectors_by(config, device), config.seed
    )
    return np.sort(rows[np.argsort(squared, kind="stable")[:count]])


def train(place: Place, cell: Training) -> Result:
    """Pre-train plainly and score: ``accuracy`` (per cent), ``images``, ``epochs``, ``steps``, ``seconds``."""
    own = {"raw": place.config.store, "curated": str(place.run / "curated")}
    shards = own.get(cell.shards, str(place.out / "shards" / cell.shards))
    length = f"{cell.epochs}-epochs" if cell.steps is None else f"{cell.steps}-steps"
    to = place.out / "networks" / f"{cell.shards}-{length}-{cell.options['seed']}"
    options = cell.options | {"device": place.device} | ({"epochs": cell.epochs} if cell.steps is None else {})
    options |= {"allow_pipe": place.config.machine.allow_pipe}
    trained = pretrain(shards, to, options, cell.steps)
    scored = evaluate(to, place.target, replace(cell.protocol, device=place.device))
    return {
        "accuracy": round(100 * scored.test_accuracy, 2),
        "images": trained.images,
        "epochs": trained.epochs,
        "steps": trained.steps,
        "seconds": trained.seconds,
    }


def epochs_of(asked: Asked, config: ReadyConfig) -> int:
    """Of each training at equal epochs."""
    return asked.epochs or config.train.epochs


def _subsets(asked: Asked, config: ReadyConfig, run_id: str, kept: int) -> dict[str, Subset]:
    """Another random subset for every seed; of the others there is one."""
    cells = {}
    for kind in asked.names:
        for seed in range(asked.seeds if kind == "random" else 1):
            domain = asked.domain or config.domain if kind == "oracle" else None
            cells[_shards_of(kind, seed)] = Subset(run_id, kind, kept, seed, domain)
    return {name: cell for name, cell in cells.items() if cell.kind != "raw"}


def _trainings(asked: Asked, config: ReadyConfig, run_id: str, index: Index) -> dict[str, Training]:
    """Seed by seed, so that a noisy machine slows all sets alike."""
    epochs = epochs_of(asked, config)
    steps = epochs * -(-len(trainable(fresh_examples(index))) // config.train.batch)
    how = replace(asked.protocol, device="any")
    cells = {}
    for seed in range(asked.seeds):
        for kind in ("curated", *asked.names):
            shards, options = _shards_of(kind, seed), plain_options(config) | {"seed": seed}
            cells[cell_name(kind, "epochs", seed)] = Training(run_id, shards, epochs, None, options, how)
            if kind != "raw":  # of the raw store, so many steps are so many epochs
                cells[cell_name(kind, "steps", seed)] = Training(run_id, shards, None, steps, options, how)
    return cells


def plain_options(config: ReadyConfig) -> dict[str, Any]:
    """A run's options that a plain training has too, but for its length; a rate that never drops stays so."""
    kinds = (ImageConfig, NetworkConfig, TrainConfig)
    shared = {"pretext", *(item.name for kind in kinds for item in fields(kind))} - {"epochs", "lr_drops"}
    options = {name: value for name, value in to_options(config).items() if name in shared}
    return options | {"workers": config.machine.workers} | ({"lr_drops": ()} if config.train.lr_drops == () else {})


def _shards_of(kind: str, seed: int) -> str:
    return f"random-{seed}" if kind == "random" else kind


def _check(asked: Asked, config: ReadyConfig) -> None:
    unknown = [name for name in asked.names if name not in OTHERS]
    if unknown or not asked.names or len(set(asked.names)) < len(asked.names):
        raise Misuse(f"--against {','.join(asked.names)}: expected some of {', '.join(OTHERS)}, each once")
    if asked.seeds < 1:
        raise Misuse(f"--seeds {asked.seeds}: expected at least 1")
    if "oracle" in asked.names and not (asked.domain or config.domain):
        raise Misuse("--against oracle: the run was told no domain; name the target's own in the store with --domain")
    if asked.domain and "oracle" not in asked.names:
        raise Misuse(f"--domain {asked.domain}: only for --against oracle; add that, or leave it out")


def _refuse_uncurated(run: Path) -> None:
    if not (run / "curated").is_dir():
        wanted = "the folder of a finished `curate run`, not of a pre-training"
        raise Misuse(f"{run}: has no curated shards; --against wants {wanted}")
