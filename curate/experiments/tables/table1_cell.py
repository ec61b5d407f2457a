"""One cell of table 1: all methods on one target with one seed, an epoch of each in turn, then scored epoch by epoch.

Each method's run is a run directory like any other (`curate.runs.run`), but for the curated shards; what is unfinished
goes on where it was stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from curate.config.resolved import ReadyConfig
from curate.config.schema import from_options
from curate.data.augment import Augment
from curate.data.decode import Decoder
from curate.data.target import load_split, open_target
from curate.errors import NothingLeft
from curate.experiments.sweep import Result
from curate.ledger import ledger
from curate.ledger.metrics import read_metrics
from curate.models.networks import Network, network_of
from curate.pretexts import PRETEXTS
from curate.pretexts.base import Pretext
from curate.progress import NullProgress, counting
from curate.rng import generator
from curate.runs import checkpoint, provenance
from curate.runs.prepare import Job, prepare
from curate.runs.run import one_epoch
from curate.runs.run_dir import claim, resume
from shards.indexing import domains
from shards.io.json_files import parse_json
from shards.io.locks import locked
from shards.packing.idx import Limits, pack_idx
from shards.store import open_index

Options = dict[str, Any]
#: Images of val and test scored at a time.
SCORED_AT_ONCE = 1000


@dataclass(frozen=True)
class Cell:
    """A target, a seed, and what is run on them.

    Args:
        own: the target's set.
        sets: all sets.
        seed: of the division of the sets, and of every run.
        epochs: of every method.
        take: limits of `shards.packing.idx.Limits`.
        common: options of all methods.
        methods: name -> its own options.
    """

    own: str
    sets: tuple[str, ...]
    seed: int
    epochs: int
    take: dict[str, int | None]
    common: Options
    methods: dict[str, Options]


@dataclass
class Started:
    """A method's run whose folder is locked: its job, the epochs done, and why it stopped early, if it did."""

    job: Job
    out: Path
    run_id: str
    done: int
    stopped: str = ""


def run_cell(data: Path, runs: Path, cell: Cell) -> Result:
    """Pack the sets, train every method, score every epoch.

    Args:
        data: folders of MNIST-layout files.
        runs: the cell's folder goes here.
        cell: what to do.

    Returns:
        By method: ``curve`` (a list an epoch: ``val`` and ``test`` loss, and ``steps``, ``images``, ``cpu`` and
        ``wall`` seconds of training so far), ``kept`` by domain, ``auroc`` of the weights for the target's domain
        (None where all weights are alike), ``stopped``.
    """
    folder = runs / f"{cell.own}-{cell.seed}"
    if not (folder / "data").exists():
        pack_idx(
            [data / name for name in cell.sets], cell.own, folder / "data", take=Limits(**cell.take), seed=cell.seed
        )
    stopped = train(folder, cell)
    return {name: {**score(folder / name, folder / "data", cell), "stopped": stopped[name]} for name in cell.methods}


def train(folder: Path, cell: Cell) -> dict[str, str]:
    """Train an epoch of each method in turn, up to the cell's epochs; returns why methods stopped early, by method."""
    with ExitStack() as stack:
        runs = {name: stack.enter_context(started(folder, cell, name)) for name in cell.methods}
        decode_once([each.job for each in runs.values()])
        total = sum(max(0, cell.epochs - each.done) for each in runs.values())
        with counting(f"{cell.own} seed {cell.seed}", "epoch", total) as tell:
            for epoch in range(1, cell.epochs + 1):
                for name, each in runs.items():
                    if epoch > each.done and not each.stopped:
                        go_on(each, epoch)
                        tell(f"{name} {epoch}/{cell.epochs}")
        return {name: each.stopped for name, each in runs.items()}


@contextmanager
def started(folder: Path, cell: Cell, name: str) -> Iterator[Started]:
    """A method's run, locked, new or brought to its last finished epoch."""
    out, data = folder / name, folder / "data"
    options = {**cell.common, **cell.methods[name], "epochs": cell.epochs, "seed": cell.seed, "workers": 0}
    options |= {"store": str(data / "store"), "target": str(data / "target"), "device": "cpu", "rewrite": "end"}
    options["prior"] = "uniform"  # the paper's
    if options["method"] == "oracle":
        options["domain"] = cell.own
    with locked(out):
        job = prepare(from_options(options), out)
        yield Started(job, out, claim(job, out, NullProgress()), resume(job, out, NullProgress()))


def decode_once(jobs: list[Job]) -> None:
    """Let all runs share one cache of decoded images, as they read the same shards."""
    shared = jobs[0].images
    for _ in shared.batches(np.arange(len(jobs[0].index)), SCORED_AT_ONCE):
        pass
    for job in jobs:
        job.images = shared


def go_on(run: Started, epoch: int) -> None:
    """Train one more epoch; a run that would prune everything stops there and records the error's text."""
    try:
        one_epoch(run.job, run.out, run.run_id, epoch, NullProgress())
    except NothingLeft as end:
        run.stopped = str(end)


def score(run: Path, data: Path, cell: Cell) -> Result:
    """Val and test loss after every epoch, steps, images and seconds so far, and the share kept of each domain."""
    config = provenance.read_config(run)
    network, losses = network_of(config), scorer(data, config)
    curve: dict[str, list[float]] = {name: [] for name in ("val", "test", "steps", "images", "cpu", "wall")}
    for epoch, line in zip(checkpoint.finished(run), map(parse_json, read_metrics(run))):
        checkpoint.load_model(checkpoint.folder(run, epoch) / "model.safetensors", network)
        for split in ("val", "test"):
            curve[split].append(losses(network, split))
        batch = config.train.batch
        spent = {"images": line["images"], "steps": -(-line["images"] // batch)}
        spent |= {"cpu": line["cpu_seconds"], "wall": line["seconds"]["step"]}
        for name, value in spent.items():
            curve[name].append(value + (curve[name][-1] if curve[name] else 0))
    return {"curve": curve, **by_domain(run, cell)}


def scorer(data: Path, config: ReadyConfig) -> Any:
    """(network, split) -> mean negative ELBO of a split, under one draw of the code's noise for all networks."""
    index, decoder = open_target(data / "target"), Decoder.of(config.images)
    pretext: Pretext = PRETEXTS[config.pretext](Augment.of(config.images), config.network)
    views = {}
    for split in ("val", "test"):
        parts = torch.split(load_split(index, split, decoder).pixels, SCORED_AT_ONCE)
        noise = generator(config.seed, f"noise of {split}")
        views[split] = [pretext.plain_view(part, noise) for part in parts]

    @torch.no_grad()
    def mean_loss(network: Network, split: str) -> float:
        parts: list[Tensor] = [pretext.losses(network, view) for view in views[split]]
        return float(torch.cat(parts).double().mean())

    return mean_loss


def by_domain(run: Path, cell: Cell) -> Result:
    """The share kept of every domain, and how well the weights tell the target's from the others."""
    table, recorded = ledger.final(run), domains_of(run)
    kept = np.zeros(len(recorded.codes), dtype=np.bool_)
    kept[table["row"].to_numpy()[table["kept"].to_numpy()]] = True
    mean, own = table["mean"].to_numpy(), recorded.own(cell.own)
    separable = len(mean) == len(own) and mean.min() < mean.max()
    return {
        "kept": {name: float(kept[recorded.own(name)].mean()) for name in recorded.names},
        "kept_in": float(kept[own].mean()),
        "kept_out": float(kept[~own].mean()),
        "auroc": float(roc_auc_score(own, mean)) if separable else None,
    }


def domains_of(run: Path) -> domains.Domains:
    """The domain of every row of the store that a cell's run was trained on."""
    return domains.load(open_index(str(run.parent / "data" / "store")))
