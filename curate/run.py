"""A run: epoch -> ledger -> prune -> manifest -> (rewrite) -> metrics -> checkpoint, and at the end the curated shards.

The only place where engine, pruner, ledger, manifest and rewrite meet. Every file of an epoch is written before its
checkpoint's marker, and the same again after a kill, so a resumed run leaves the bytes of one that was never stopped.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from curate import checkpoint, engine, generations, ledger, manifest, precision, provenance, pruner
from curate.config import RunConfig
from curate.errors import CurateError, Misuse, NothingLeft
from curate.images import Pixels
from curate.prepare import Job, prepare, trainable
from curate.progress import Progress, Silent
from curate.records import ERRORS, Beliefs, EpochReport, Ints, Mask, Stamp
from shards import names, remote
from shards.locks import locked
from shards.publish import from_json, publish_bytes

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class RunSummary:
    """What a finished run says.

    Args:
        run: the run directory.
        examples: of the store.
        kept: in the last manifest.
        epochs: trained in all.
        seconds: of this call.
        curated: the folder of curated shards.
    """

    run: str
    run_id: str
    examples: int
    kept: int
    epochs: int
    seconds: float
    curated: str


def run(config: RunConfig, out: Path, progress: Progress | None = None) -> RunSummary:
    """Train, weight, prune and rewrite; goes on where an earlier call was stopped.

    Args:
        config: what to do; `curate.config.from_options` makes one.
        out: the run directory, new or of the same run.
        progress: told what happens; None for silence.

    Raises:
        Misuse: ``out`` lies in the store or the target, or the configuration cannot be meant.
        RunMismatch: ``out`` holds another run.
        Busy: another process is at work in ``out``.
        NothingLeft: pruning would leave less than one batch; no curated set is written.
        NonFinite: training diverged; the last checkpoint is intact.
        ShardError: the store is not readable, or the disk too small for the curated shards (all else is there then).
    """
    started, said = time.perf_counter(), progress or Silent()
    refuse_overlap(config, out)
    with locked(out):
        return _run(config, out, said, started)


def _run(config: RunConfig, out: Path, said: Progress, started: float) -> RunSummary:
    job = prepare(config, out)
    run_id = claim(job, out, said)
    done = resume(job, out, said)
    last = int(job.config.train.epochs or 0)
    for note in job.notes:
        said.note(note)
    said.begin(last, done)
    with said:
        for epoch in range(done + 1, last + 1):
            _epoch(job, out, run_id, epoch, said)
    ledger.write_final(out)
    shared = generations.curated(job, out, last, said).shared_keys
    if shared:
        said.note(f"{shared} kept keys are in several shards: readers that ignore shards mix them; see --rename prefix")
    kept, seconds = int(job.examples.kept.sum()), round(time.perf_counter() - started, 3)
    return RunSummary(str(out), run_id, len(job.index), kept, last, seconds, str(out / "curated"))


def refuse_overlap(config: RunConfig, out: Path) -> None:
    """Refuse an output folder that lies in the store or the target, or holds one of them.

    Raises:
        Misuse: they overlap.
    """
    here = out.resolve()
    roots = {"store": names.resolve(config.store).root, "target": config.target}
    for name, spec in roots.items():
        if not spec or remote.is_url(spec):
            continue
        root = Path(spec).resolve()
        if here.is_relative_to(root) or root.is_relative_to(here):
            raise Misuse(f"--out {out}: overlaps the {name} {root}; name a folder apart from it")


def claim(job: Job, out: Path, said: Progress) -> str:
    """Write run.json, or make sure that the one there is this run's; settle the arithmetic. Returns the run id.

    Raises:
        RunMismatch: the folder holds another run.
        Misuse: the folder holds something else.
    """
    who = provenance.identity(job.config, job.index.fingerprint, job.target.fingerprint if job.target else "")
    path = out / "run.json"
    if path.exists():
        record = provenance.read_run(out)
        for warning in provenance.compare(out, record, who):
            said.note(f"going on under another version: {warning}")
        machine = record["machine"]
        chosen = precision.Precision(machine.get("precision", "float32"), machine.get("agreement", {}))
        precision.use(chosen.name)
    else:
        if out.is_dir() and any(not p.name.startswith(".") and p.name != "index.parquet" for p in out.iterdir()):
            raise Misuse(f"--out {out}: holds files, but no run.json; name a new folder, or the folder of a run")
        chosen = _settle_precision(job)
        machine = {"device": str(job.setup.device), "precision": chosen.name, "agreement": chosen.agreement}
        record = provenance.write_run(path, job.config, who, machine)
    for name, cosine in chosen.agreement.items():
        said.note(f"meta-gradient in {name} against float32: cosine {cosine:.4f}; using {chosen.name}")
    job.setup = replace(job.setup, autocast=chosen.autocast)
    return str(record["run_id"])


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

    return precision.choose(wanted, device, meta_gradient)


def resume(job: Job, out: Path, said: Progress) -> int:
    """Take up the last complete checkpoint and cut away what later epochs left. Returns the epochs done.

    Raises:
        CurateError: the checkpoint, or what finished epochs wrote, is damaged or gone; nothing was removed then.
    """
    done, generation = max(checkpoint.finished(out), default=0), 0
    if done:
        generation = checkpoint.load(out, done, job.setup.network, job.state, job.examples)["generation"]
        _refuse_gaps(out, done)
        said.note(f"going on after epoch {done}")
    for place in ("ledger", "checkpoints", "manifests"):
        for epoch, path in checkpoint.epochs_in(out / place).items():
            if epoch > done:
                (shutil.rmtree if path.is_dir() else Path.unlink)(path)
    lines = read_metrics(out)
    if len(lines) > done:
        publish_bytes(out / METRICS, b"".join(lines[:done]))
    generations.take_up(job, out, generation)
    return done


def _refuse_gaps(out: Path, done: int) -> None:
    """Make sure before hours of training that nothing is lost of what finished epochs wrote, and is needed at the end.

    Raises:
        CurateError: a ledger partition, a manifest or a line of the metrics is damaged or gone.
    """
    pruning = (out / "ledger").is_dir() or (out / "manifests").is_dir()
    for epoch in range(1, done + 1) if pruning else ():
        for path in (manifest.path_of(out, epoch), ledger.path_of(out, epoch)):
            if not path.is_file():
                raise CurateError(f"{path}: is missing; restore it or start in a new --out")
        digest = manifest.read(manifest.path_of(out, epoch))[1].ledger_sha256
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise CurateError(f"{path}: not the one its manifest names; restore it or start in a new --out")
    if len(lines := read_metrics(out)) < done:
        raise CurateError(
            f"{out / METRICS}: expected {done} lines, found {len(lines)}; restore it or start in a new --out"
        )


def read_metrics(out: Path) -> list[bytes]:
    """The whole lines of metrics.jsonl; none where there is no such file.

    Raises:
        CurateError: line n is not that of epoch n.
    """
    path = out / METRICS
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            holds = from_json(line)["epoch"] == number
        except (ValueError, KeyError, TypeError):
            holds = False
        if not holds:
            raise CurateError(f"{path}: line {number} is damaged; restore it or start in a new --out")
    return lines


def _epoch(job: Job, out: Path, run_id: str, epoch: int, said: Progress) -> None:
    """One epoch and everything it leaves behind, the checkpoint's marker last."""
    config, examples = job.config, job.examples
    live = np.flatnonzero(examples.kept).astype(np.int64)
    said.epoch(epoch, len(live), len(job.index))
    totals, seconds = train_on(job, trainable(examples), epoch, said)
    beliefs = beliefs_of(job, live)
    stamp = Stamp(run_id, config.method, epoch, config.seed, config.prune.lam, config.prune.rho, config.belief.eta)
    with _timed(seconds, "prune"):
        kept, below = _judge(config, beliefs, epoch), pruner.below(beliefs, config.prune.lam)
    with _timed(seconds, "ledger"):
        digest = ledger.write(ledger.path_of(out, epoch), beliefs, below, _names(job, live), kept, stamp)
    _refuse_too_few(job, out, kept & pruner.decodable(beliefs), epoch)
    with _timed(seconds, "prune"):
        examples.kept[live[~kept]] = False
        rule = pruner.rule_in_words(beliefs, config.prune.lam, config.prune.rho)
        origin = manifest.Origin(rule, len(live), digest, stamp)
        manifest.write(manifest.path_of(out, epoch), _names(job, live[kept]), live[kept], origin)
    with _timed(seconds, "rewrite"):
        generation = generations.advance(job, out, epoch, said)
    with _timed(seconds, "checkpoint"):
        checkpoint.save(out, epoch, job.setup.network, job.state, examples)
    numbers = numbers_of(job, totals, epoch, seconds)
    numbers |= {"mean_belief": float(beliefs.mean.mean(dtype=np.float64))}
    report = EpochReport(epoch, totals.images, int(kept.sum()), int((~kept).sum()), numbers, seconds)
    append_metrics(out / METRICS, report)
    checkpoint.finish(out, epoch, job.state, generation)
    generations.drop_superseded(job, out, generation)
    said.report(report)


def train_on(
    job: Job, rows: Ints, epoch: int, said: Progress, most_steps: int | None = None
) -> tuple[engine.Totals, dict[str, float]]:
    """Train one epoch on ``rows``, or its first ``most_steps``; count the visits, and note what does not decode."""
    size, device = int(job.config.train.batch or 0), job.setup.device
    ordered = job.images.order(rows, job.config.seed, epoch)
    if most_steps is not None and most_steps * size < len(ordered):
        ordered = ordered[: most_steps * size]
        rows = np.sort(ordered)
    visit = np.empty(len(rows), np.int64)
    visit[np.searchsorted(rows, ordered)] = job.state.step + np.arange(len(rows)) // size
    at = torch.from_numpy(rows).to(device)
    job.state.method.begin_epoch(at, torch.from_numpy(visit).to(device), epoch)
    batches = _counted(job, job.images.batches(ordered, size))
    try:
        totals, seconds = engine.train_epoch(job.setup, job.state, epoch, batches, said.step)
    except torch.cuda.OutOfMemoryError as error:
        raise CurateError(
            f"CUDA out of memory in epoch {epoch} at --batch {size} --crop {job.config.images.crop}; "
            f"`--dry-run --batch {max(2, size // 2)}` says whether half of it fits"
        ) from error
    job.state.method.end_epoch(at, job.state.step)
    return totals, seconds


def _counted(job: Job, batches: Iterator[Pixels]) -> Iterator[Pixels]:
    for batch in batches:
        for row, code in batch.bad:
            job.examples.error[row] = code
        if len(batch.rows) >= engine.FEWEST:
            job.examples.visits[batch.rows.numpy()] += 1
        yield batch


def beliefs_of(job: Job, rows: Ints) -> Beliefs:
    """What is believed of ``rows`` now."""
    mean, a, b = job.state.method.summary(rows)
    visits = job.examples.visits[rows].astype(np.int32)
    return Beliefs(rows, mean, visits, job.examples.error[rows], a, b)


def _judge(config: RunConfig, beliefs: Beliefs, epoch: int) -> Mask:
    """Who is in the epoch's manifest: judged by the pruner after the warm-up; the undecodable by their own option."""
    kept = pruner.decodable(beliefs)
    if epoch > config.belief.warmup:
        kept = pruner.keep(beliefs, config.prune.lam, config.prune.rho)
    if config.output.undecodable == "keep":
        kept |= (beliefs.error > 0) & (beliefs.error != ERRORS.index("unsafe-name"))
    return kept


def _refuse_too_few(job: Job, out: Path, usable: Mask, epoch: int) -> None:
    size, config = int(job.config.train.batch or 0), job.config
    # A store smaller than one batch is pruned all the same, as long as it can be trained on.
    fewest = size if (job.examples.error == 0).sum() >= size else engine.FEWEST
    if usable.sum() >= fewest:
        return
    refuse_undecodable(job)
    last = manifest.path_of(out, epoch - 1) if epoch > 1 else "none"
    constants = f"--lam {config.prune.lam:g} --rho {config.prune.rho:g} --eta {config.belief.eta:g}"
    raise NothingLeft(
        f"after epoch {epoch} only {usable.sum()} images would be kept, less than a batch ({fewest}), with "
        f"{constants}; the last manifest is {last}; lower --lam or --eta, or raise --rho"
    )


def refuse_undecodable(job: Job) -> None:
    """Say so where hardly an image of the store decodes.

    Raises:
        NothingLeft: too few to train on.
    """
    found = int((job.examples.error == 0).sum())
    if found < engine.FEWEST:
        raise NothingLeft(
            f"{job.config.store}: only {found} of {len(job.index)} samples have an image that decodes, training needs "
            f"{engine.FEWEST}; `curate index --check` names what is wrong with the others"
        )


def numbers_of(job: Job, totals: engine.Totals, epoch: int, seconds: dict[str, float]) -> dict[str, Any]:
    """What an epoch's line of metrics.jsonl says of its training."""
    return {
        **totals.numbers(),
        "learning_rate": engine.learning_rate(job.config, epoch),
        "images_per_second": totals.images / max(1e-9, seconds["load"] + seconds["step"]),
        "peak_memory": peak_memory(job.setup.device),
    }


def peak_memory(device: torch.device) -> int:
    """The most bytes this process has held so far: of the device's memory on CUDA, else of main memory."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _names(job: Job, rows: Ints) -> pa.Table:
    return job.index.table.select(["shard", "key"]).take(pa.array(rows))


def append_metrics(path: Path, report: EpochReport) -> None:
    """Add a line: the whole file is published again, so that no reader ever sees half a line."""
    line = asdict(report)
    line |= line.pop("numbers")
    line["seconds"] = {stage: round(value, 4) for stage, value in line.pop("seconds").items()}
    before = path.read_bytes() if path.exists() else b""
    publish_bytes(path, before + (json.dumps(line, allow_nan=False) + "\n").encode())


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started
