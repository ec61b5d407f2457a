"""Takes a run directory for a run: apart from its inputs, of this run and no other, and on from its last checkpoint."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from curate import ranks
from curate.config.schema import RunConfig
from curate.data.decode import Pixels
from curate.errors import CurateError, Misuse
from curate.ledger import ledger, manifest
from curate.ledger.metrics import METRICS, read_metrics
from curate.progress import Progress
from curate.runs import checkpoint, midway, provenance, reshard
from curate.runs.prepare import Job, trainable
from curate.training import engine, precision
from shards.io import paths, remote, shard_set
from shards.io.atomic import remove_path, write_bytes
from shards.io.regular_files import open_regular

#: What `prepare` leaves in a run's folder before the run has one.
_MADE_BEFORE = ("index.parquet", "distances.parquet", "features")


def refuse_overlap(config: RunConfig, out: Path) -> None:
    """Refuse an output folder that lies in the store or the target, or holds one of them.

    Raises:
        Misuse: they overlap.
    """
    read = {
        "store": shard_set.resolve(config.store, allow_pipe=config.machine.allow_pipe).root,
        "target": config.target,
    }
    local = ((name, Path(spec)) for name, spec in read.items() if spec and not remote.is_url(spec))
    paths.refuse_overlap(out, local)


def continued(config: RunConfig, out: Path) -> RunConfig:
    """``config`` as it goes on in ``out``: with its own layout; and its own prior and drops of the learning rate, where
    none are given.

    Without --lr-drops these follow from the number of epochs; in a run that is extended, other ones would be wrong for
    the epochs that are done.
    """
    held = provenance.held_by(out)
    if not held:
        return config
    config = replace(config, machine=replace(config.machine, layout=held["layout"]))
    if config.belief.prior is None and config.method == held.get("method"):
        config = replace(config, belief=replace(config.belief, prior=held["prior"]))
    drops, epochs = config.train.lr_drops, config.train.epochs
    if drops is not None or epochs is None or epochs <= held.get("epochs", 0) or "lr_drops" not in held:
        return config
    return replace(config, train=replace(config.train, lr_drops=tuple(held["lr_drops"])))


def claim(job: Job, out: Path, progress: Progress) -> str:
    """Write run.json, or make sure that the one there is this run's; settle the arithmetic. Returns the run id.

    Raises:
        RunMismatch: the folder holds another run.
        Misuse: the folder holds something else.
    """
    who = provenance.identity(job.config, job.index.fingerprint, job.target.fingerprint if job.target else "")
    path = out / "run.json"
    if path.exists():
        record = provenance.read_run(out)
        done = max(checkpoint.finished(out), default=0)
        for warning in provenance.compare(out, record, who, done):
            progress.note(f"going on under another version: {warning}")
        begun = record["configuration"]["epochs"]
        if begun < job.config.train.epochs:
            drops = ", ".join(map(str, job.config.train.lr_drops)) or "none"
            progress.note(
                f"extended from {begun} epochs to {job.config.train.epochs}, {done} are done; rate drops: {drops}"
            )
            provenance.extend(path, record, job.config)
        machine = record["machine"]
        chosen = precision.Precision(machine.get("precision", "float32"), machine.get("agreement", {}))
        precision.use(chosen.name)
    else:
        refuse_foreign(out)
        chosen = _settle_precision(job)
        machine = {"device": str(job.setup.device), "precision": chosen.name, "agreement": chosen.agreement}
        machine |= {"threads": torch.get_num_threads(), "statistics": job.statistics, **_ranks(job)}
        record = provenance.write_run(path, job.config, who, machine)
    for name, cosine in chosen.agreement.items():
        progress.note(f"meta-gradient in {name} against float32: cosine {cosine:.4f}; using {chosen.name}")
    job.setup = replace(job.setup, autocast=chosen.autocast)
    return str(record["run_id"])


def _ranks(job: Job) -> dict[str, Any]:
    """How many processes train together, and whose images batch norm goes by; nothing of one by itself."""
    if ranks.world() == 1:
        return {}
    return {"ranks": ranks.world(), "batch_norm": "all ranks" if job.config.network.sync_bn else "each rank"}


def refuse_foreign(out: Path) -> None:
    """Refuse a folder that holds files of something else than a run.

    Raises:
        Misuse: it does.
    """
    if paths.holds_others(out, _MADE_BEFORE):
        raise Misuse(f"--out {out}: holds files, but no run.json; name a new folder, or the folder of a run")


def _settle_precision(job: Job) -> precision.Precision:
    """On CUDA, measured on a batch of the store; neither theta nor a belief moves."""
    device, wanted = job.setup.device, job.config.machine.precision
    if device.type != "cuda" or job.setup.meta_loss is None:
        return precision.choose(wanted, device, None)
    rows = trainable(job.examples)[: job.config.train.batch]
    pixels = torch.cat(list(job.images.sample(rows))).to(device)
    batch = Pixels(torch.from_numpy(rows[: len(pixels)]), pixels)

    def meta_gradient(dtype: torch.dtype | None) -> torch.Tensor:
        job.state.method.begin_epoch(batch.rows.to(device), torch.zeros_like(batch.rows).to(device), 0)
        return engine.meta_gradient(replace(job.setup, autocast=dtype), job.state, batch)

    with ranks.alone():
        return precision.choose(wanted, device, meta_gradient)


def resume(job: Job, out: Path, progress: Progress) -> int:
    """Take up the last complete checkpoint and cut away what later epochs left. Returns the epochs done.

    Raises:
        CurateError: a checkpoint, or what finished epochs wrote, is damaged or gone; nothing was removed then.
    """
    done, generation = max(checkpoint.finished(out), default=0), 0
    if begun := midway.found(out, done + 1):
        generation = begun["generation"]
    if done:
        generation = checkpoint.load(out, done, job.setup.network, job.state, job.examples)["generation"]
        _refuse_gaps(out, done, first=1 if job.config.belief.prior == "uniform" else 0)
    if begun:
        progress.note(f"going on in epoch {done + 1}, after step {begun['step']} of the run")
    elif done:
        progress.note(f"going on after epoch {done}")
    checkpoint.lighten(out)  # a kill may have come between a marker and this
    midway.remove_others(out, done + 1)
    for place in ("ledger", "checkpoints", "manifests"):
        for epoch, path in checkpoint.epochs_in(out / place).items():
            if epoch > done:
                remove_path(path)
    lines = read_metrics(out)
    if len(lines) > done:
        write_bytes(out / METRICS, b"".join(lines[:done]))
    reshard.take_up(job, out, generation)
    return done


def _refuse_gaps(out: Path, done: int, first: int) -> None:
    """Make sure before hours of training that nothing is lost of what finished epochs wrote, and is needed at the end.

    Raises:
        CurateError: a ledger partition, a manifest or a line of the metrics is damaged or gone.
    """
    pruning = (out / "ledger").is_dir() or (out / "manifests").is_dir()
    for epoch in range(first, done + 1) if pruning else ():
        for path in (manifest.path_of(out, epoch), ledger.path_of(out, epoch)):
            if not path.is_file():
                raise CurateError(f"{path}: is missing; restore it or start in a new --out")
        digest = manifest.read(manifest.path_of(out, epoch))[1].ledger_sha256
        with open_regular(path) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise CurateError(f"{path}: not the one its manifest names; restore it or start in a new --out")
    if len(lines := read_metrics(out)) < done:
        raise CurateError(
            f"{out / METRICS}: expected {done} lines, found {len(lines)}; restore it or start in a new --out"
        )
