"""Did curation pay? Plain pre-training on a run's curated shards against other shards, over seeds, and the costs.

All are trained alike, with the run's own network, sizes and rates: first as many steps of each, which is as much
computing, the rate following the steps; then as many epochs. Beside them stands what no training gives: the network as
it was drawn, calibrated, and the pixels themselves. Curation's own seconds, and those of finding the nearest images,
count.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curate.config.defaults import paper_drops
from curate.config.resolved import ReadyConfig
from curate.config.schema import ImageConfig, NetworkConfig, TrainConfig
from curate.data.decode import Decoder
from curate.data.target import is_labelled, load_split, open_target
from curate.errors import CurateError, Misuse
from curate.evaluation import output_dir
from curate.evaluation.evaluate import Protocol
from curate.evaluation.few_labels import DRAWS
from curate.evaluation.readings import PIXELS, Reading, read
from curate.evaluation.trained import NO_LABELS, open_trained
from curate.experiments.baselines import report, trials
from curate.experiments.baselines.report import cell_name
from curate.experiments.sweep import Result, run_cells
from curate.ledger.metrics import seconds_spent
from curate.models.features import at_tap
from curate.models.networks import network_of
from curate.runs import provenance, target_distances
from curate.runs.prepare import fresh_examples, open_images, pick_device, trainable
from curate.runs.pretrain import pretrain
from curate.types import Ints
from shards.indexing import domains
from shards.indexing.index import Index
from shards.io.atomic import write_bytes
from shards.io.json_files import write_json
from shards.io.mirror.place import local
from shards.store import open_index

#: What curated shards can be held against, in this order.
OTHERS = ("raw", "random", "nn", "oracle")
#: What a folder of a comparison holds first: of which run, on which target, and how verdicts are found: earlier ones
#: were of rounded accuracies and of rates that followed epochs, which found differences where there are none.
RECORD = "comparison.json"
FORMAT, VERSION, VERDICTS = "comparison", 1, "paired by image, rates by step"


@dataclass(frozen=True)
class ComparisonSettings:
    """What curated shards are compared with, and how.

    Args:
        names: of `OTHERS`.
        seeds: trainings of each set.
        epochs: of each training at equal epochs; None for the run's.
        domain: the target's own in the store, for oracle; None for the run's own ``domain``.
        protocol: how networks are scored.
        processes: trainings at a time.
        allow_pipe: whether the run's store may be one that a command makes.
        readings: taps and labels a class, side by side; none for the protocol's tap with all labels.
        draws: of few labels.
        steps: of each training, which are then at equal steps alone; None for what the raw store takes in the epochs.
    """

    names: tuple[str, ...]
    seeds: int = 3
    epochs: int | None = None
    domain: str | None = None
    protocol: Protocol = field(default_factory=Protocol)
    processes: int = 1
    allow_pipe: bool = False
    readings: tuple[Reading, ...] = ()
    draws: int = DRAWS
    steps: int | None = None

    @property
    def all_readings(self) -> tuple[Reading, ...]:
        """The readings, the protocol's own where none is given."""
        return self.readings or (Reading(self.protocol.tap),)

    @property
    def regimes(self) -> tuple[str, ...]:
        """The keys of `report.TITLES` that apply: equal steps, and equal epochs unless the steps are given."""
        return ("steps", "epochs") if self.steps is None else ("steps",)


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
        protocol, readings, draws: how it is scored, wherever that is done.
    """

    run_id: str
    shards: str
    epochs: int | None
    steps: int | None
    options: dict[str, Any]
    protocol: Protocol
    readings: tuple[Reading, ...]
    draws: int

    @property
    def folder(self) -> str:
        """Name of its network's folder."""
        length = f"{self.epochs}-epochs" if self.steps is None else f"{self.steps}-steps"
        return f"{self.shards}-{length}-{self.options['seed']}"


@dataclass(frozen=True)
class Scoring:
    """A cell: the score of a network that a training left.

    Args:
        folder: of the network, among the others.
        names: under which the readings' scores are given; none for their own.
    """

    run_id: str
    folder: str
    protocol: Protocol
    readings: tuple[Reading, ...]
    draws: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workspace:
    """The paths and the device that all cells share, none of which changes a result."""

    run: Path
    target: str
    out: Path
    config: ReadyConfig
    device: str


def against(run: Path, target: str, settings: ComparisonSettings, out: Path | None = None) -> dict[str, Any]:
    """Compare, and write ``against.json`` and ``against.md``; goes on where an earlier call was stopped.

    Args:
        run: a finished run, whose store is still where it was.
        target: labelled.
        out: None for ``evaluations/against`` in the run.

    Returns:
        ``accuracy``: regime -> set -> per cent by seed; ``interval``: the same with mean and half the width of its 95 %
        interval over seeds and test images; ``difference``: curated less each other set, image by image and seed by
        seed, with its ``verdict``; these of the first reading, and of each under ``readings``. Sets that were not
        trained are ``untrained`` and ``pixels``. ``seconds``: regime -> set -> ``curation``, ``training``, ``total``;
        ``images`` and ``steps`` of each.

    Raises:
        Misuse: an unknown name, no seed, no domain for oracle or without it, a run without curated shards;
            ``out`` overlaps what is read, or holds another comparison or files of something else.
        RunMismatch: ``out`` holds a comparison of another run, or on another target.
        CurateError, ShardError: the run is not finished, its store has changed, the target has no labels.
    """
    record = provenance.read_run(run)
    config = provenance.config_of(record, run)
    config = replace(config, machine=replace(config.machine, allow_pipe=settings.allow_pipe))
    _check(settings, config)
    _refuse_taps(settings, config)
    _refuse_uncurated(run)
    folder = output_dir.folder_of(run, target, out, "against", RECORD)
    opened = open_target(target)
    if not is_labelled(opened):
        raise CurateError(f"{target}/train: {NO_LABELS}")
    fingerprint = opened.fingerprint
    index = store_of(run, config)
    workspace = Workspace(run, target, folder, config, settings.protocol.device)
    kept = len(open_index(str(run / "curated")))
    fields = {
        "format": FORMAT,
        "version": VERSION,
        "verdicts": VERDICTS,
        "run": record["run_id"],
        "target": fingerprint,
        "epochs": settings.epochs,
        "steps": settings.steps,
    }
    output_dir.keep(folder / RECORD, fields)
    subsets = run_cells(
        partial(make_subset, workspace),
        _subsets(settings, config, record["run_id"], kept),
        workspace.out / "subsets",
        "subsets",
    )
    cells = _trainings(settings, config, record["run_id"], index)
    trained = run_cells(partial(train, workspace), cells, workspace.out / "trainings", "trainings", settings.processes)
    beside = run_cells(partial(score, workspace), _beside(settings, cells), workspace.out / "untrained", "untrained")
    sets = ["curated", *settings.names]
    fields = {
        "sets": sets,
        "seeds": settings.seeds,
        "epochs": epochs_of(settings, config),
        "store": len(index),
        "kept": kept,
        **report.figures(settings.regimes, sets, settings.seeds, trained | beside, subsets, seconds_spent(run)),
    }
    write_json(workspace.out / "against.json", fields)
    write_bytes(workspace.out / "against.md", report.page(fields).encode())
    return fields


def usual_taps(run: Path) -> list[str]:
    """Where a run's network is read, side by side: its pooled features and, where it has stages, the second of them.

    Raises:
        CurateError: no run.
    """
    network = provenance.read_run(run)["configuration"].get("network")
    return ["pool"] if network == "vae" else ["pool", "layer2:4x4"]


def store_of(run: Path, config: ReadyConfig) -> Index:
    """The index of the store that a run was of."""
    index_file = local(config.index) if config.index else None
    return open_index(config.store, index_file, cache_path=run / "index.parquet", allow_pipe=config.machine.allow_pipe)


def make_subset(workspace: Workspace, cell: Subset) -> Result:
    """Write the shards of a subset; returns the number of ``images``, and the ``seconds`` of choosing and writing."""
    started, config = time.perf_counter(), workspace.config
    index = store_of(workspace.run, config)
    to = workspace.out / "shards" / _shards_of(cell.kind, cell.seed)
    if cell.kind == "random":
        trials.random_subset(index, cell.images, cell.seed, to)
    elif cell.kind == "nn":
        trials.subset(index, nearest(workspace, index, cell.images), to)
    else:
        trials.subset(index, np.flatnonzero(domains.load(index).own(str(cell.domain))), to)
    return {"images": len(open_index(str(to))), "seconds": round(time.perf_counter() - started, 3)}


def nearest(workspace: Workspace, index: Index, count: int) -> Ints:
    """The rows of the images that are nearest to the target's training images, as method nn measures it."""
    config, device = workspace.config, pick_device(workspace.device)
    images = open_images(config, index, Decoder.of(config.images), device)
    train = load_split(open_target(workspace.target), "train", images.decoder)
    rows = trainable(fresh_examples(index))
    squared, _ = target_distances.measure(
        images, rows, train.pixels, target_distances.vectors_by(config, device), config.seed
    )
    return np.sort(rows[np.argsort(squared, kind="stable")[:count]])


def train(workspace: Workspace, cell: Training) -> Result:
    """Pre-train with equal weights and score: ``right`` by reading, ``images``, ``epochs``, ``steps``, ``seconds``."""
    own = {"raw": workspace.config.store, "curated": str(workspace.run / "curated")}
    shards = own.get(cell.shards, str(workspace.out / "shards" / cell.shards))
    to = workspace.out / "networks" / cell.folder
    options = cell.options | {"device": workspace.device} | ({"epochs": cell.epochs} if cell.steps is None else {})
    options |= {"allow_pipe": workspace.config.machine.allow_pipe}
    trained = pretrain(shards, to, options, cell.steps)
    return {
        **score(workspace, Scoring(cell.run_id, cell.folder, cell.protocol, cell.readings, cell.draws)),
        "images": trained.images,
        "epochs": trained.epochs,
        "steps": trained.steps,
        "seconds": trained.seconds,
    }


def score(workspace: Workspace, cell: Scoring) -> Result:
    """Score a network: ``right``, reading -> the share of draws that classify each test image correctly."""
    opened = open_trained(
        workspace.out / "networks" / cell.folder, workspace.target, open_target(workspace.target), workspace.device
    )
    found = read(opened, cell.readings, replace(cell.protocol, device=workspace.device), cell.draws)
    names = cell.names or tuple(one.name for one in cell.readings)
    return {"right": {name: [round(x, 6) for x in one.right.tolist()] for name, one in zip(names, found)}}


def epochs_of(settings: ComparisonSettings, config: ReadyConfig) -> int:
    """The epochs of each training at equal epochs."""
    return settings.epochs or config.train.epochs


def _subsets(settings: ComparisonSettings, config: ReadyConfig, run_id: str, kept: int) -> dict[str, Subset]:
    """Another random subset for every seed; of the others there is one."""
    cells = {}
    for kind in settings.names:
        for seed in range(settings.seeds if kind == "random" else 1):
            domain = settings.domain or config.domain if kind == "oracle" else None
            cells[_shards_of(kind, seed)] = Subset(run_id, kind, kept, seed, domain)
    return {name: cell for name, cell in cells.items() if cell.kind != "raw"}


def _trainings(settings: ComparisonSettings, config: ReadyConfig, run_id: str, index: Index) -> dict[str, Training]:
    """Seed by seed, so that a noisy machine slows all sets alike; equal steps first."""
    epochs, plain = epochs_of(settings, config), plain_options(config)
    a_pass = -(-len(trainable(fresh_examples(index))) // config.train.batch)
    by_steps: dict[str, Any] = {"schedule": "step"}
    if settings.steps is None and "lr_drops" not in plain:
        by_steps["lr_drops"] = tuple(drop * a_pass for drop in paper_drops(epochs))
    lengths = {"steps": (None, settings.steps or epochs * a_pass, by_steps), "epochs": (epochs, None, {})}
    how, cells = replace(settings.protocol, device="any"), {}
    for seed in range(settings.seeds):
        for regime in settings.regimes:
            of_epochs, of_steps, schedule = lengths[regime]
            for kind in ("curated", *settings.names):
                if (regime, kind) == ("epochs", "raw"):
                    continue  # of the raw store, so many steps are so many epochs
                own = plain | schedule | {"seed": seed}
                cells[cell_name(kind, regime, seed)] = Training(
                    run_id, _shards_of(kind, seed), of_epochs, of_steps, own, how, settings.all_readings, settings.draws
                )
    return cells


def _beside(settings: ComparisonSettings, cells: dict[str, Training]) -> dict[str, Scoring]:
    """What no training gives, of each seed's network as it was drawn."""
    found = {}
    for seed in range(settings.seeds):
        cell = cells[cell_name("curated", "steps", seed)]
        how, names = replace(cell.protocol, epoch=0, patience=None), tuple(one.name for one in settings.all_readings)
        pixels = tuple(replace(one, tap=PIXELS) for one in settings.all_readings)
        found[f"untrained-{seed}"] = Scoring(cell.run_id, cell.folder, how, settings.all_readings, settings.draws)
        found[f"pixels-{seed}"] = Scoring(cell.run_id, cell.folder, how, pixels, settings.draws, names)
    return found


def plain_options(config: ReadyConfig) -> dict[str, Any]:
    """A run's options that the trainings share: images, network, training and pretext, without the length."""
    kinds = (ImageConfig, NetworkConfig, TrainConfig)
    shared = {"pretext", *(item.name for kind in kinds for item in fields(kind))} - {
        "epochs",
        "lr_drops",
        "schedule",
        "steps",
    }
    options = {name: value for name, value in provenance.identity(config, "", "")["options"].items() if name in shared}
    return options | {"workers": config.machine.workers} | ({"lr_drops": ()} if config.train.lr_drops == () else {})


def _shards_of(kind: str, seed: int) -> str:
    return f"random-{seed}" if kind == "random" else kind


def _check(settings: ComparisonSettings, config: ReadyConfig) -> None:
    unknown = [name for name in settings.names if name not in OTHERS]
    if unknown or not settings.names or len(set(settings.names)) < len(settings.names):
        raise Misuse(f"--against {','.join(settings.names)}: expected some of {', '.join(OTHERS)}, each once")
    if settings.seeds < 1:
        raise Misuse(f"--seeds {settings.seeds}: expected at least 1")
    if settings.steps is not None and settings.epochs is not None:
        raise Misuse("--steps and --epochs both say how long to train; give one")
    if len({reading.name for reading in settings.all_readings}) < len(settings.all_readings):
        raise Misuse("--tap, --labels-per-class: each once")
    if "oracle" in settings.names and not (settings.domain or config.domain):
        raise Misuse("--against oracle: the run was told no domain; name the target's own in the store with --domain")
    if settings.domain and "oracle" not in settings.names:
        raise Misuse(f"--domain {settings.domain}: only for --against oracle; add that, or leave it out")


def _refuse_taps(settings: ComparisonSettings, config: ReadyConfig) -> None:
    """Try every tap on one blank image, before anything is trained."""
    network, side = network_of(config).eval(), config.images.crop
    for reading in settings.all_readings:
        at_tap(network, torch.zeros(1, config.images.channels, side, side), reading.tap)


def _refuse_uncurated(run: Path) -> None:
    if not (run / "curated").is_dir():
        wanted = "the folder of a finished `curate run`, not of a pre-training"
        raise Misuse(f"{run}: has no curated shards; --against wants {wanted}")
