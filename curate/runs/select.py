"""A run that trains nothing: features, a selector's scores, and the ledger, manifest and curated shards of any run.

It has one epoch. The score is the ledger's ``mean``; the stamp's lambda lies just below the lowest score that is kept,
so that `curate prune` without thresholds says the same again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.config.catalogue import SELECTORS
from curate.config.defaults import resolve
from curate.config.resolved import ReadyConfig
from curate.config.schema import RunConfig, flag
from curate.data.decode import Decoder
from curate.data.target import TargetIndex, is_labelled, open_target
from curate.duplicates.leak_notes import leak_notes
from curate.errors import NothingLeft
from curate.ledger import ledger, manifest, pruner
from curate.ledger.metrics import METRICS, append_metrics, read_metrics
from curate.progress import Progress
from curate.runs import provenance, reshard, scored
from curate.runs.checkpoint import Examples
from curate.runs.features import Source, of_store
from curate.runs.prepare import fresh_examples, measured, open_images, pick_device, store_notes
from curate.runs.run_dir import refuse_foreign
from curate.selection import base
from curate.selection.base import Features, Scores, Vectors
from curate.training import engine
from curate.types import Beliefs, EpochReport, Floats, Mask, Stamp
from shards.indexing.index import Index
from shards.io.mirror.place import local
from shards.io.parallel import default_workers
from shards.store import open_index

#: With fewer images of the target the estimated purity is too high on average (scripts/results/purity.json).
FEW_OF_TARGET = 50


@dataclass(frozen=True)
class Selected:
    """What came of it: see `curate.runs.run.RunSummary`."""

    run_id: str
    examples: int
    kept: int
    facts: dict[str, float]


@dataclass
class Selection:
    """What is chosen from, and by what. `source` is None for a selector that looks at nothing."""

    config: ReadyConfig
    index: Index
    target: TargetIndex | None
    examples: Examples
    source: Source | None


def select(config: RunConfig, out: Path, progress: Progress) -> Selected:
    """Choose, or go on where an earlier call was stopped. The caller has ``out`` locked.

    Raises:
        As `curate.runs.run.run`.
    """
    job = _prepare(config, out, progress)
    run_id = _claim(job, out, progress)
    if not (read_metrics(out) and manifest.path_of(out, 1).is_file()):
        _judge(job, out, run_id, progress)
    held = ledger.beliefs_of(ledger.read_epoch(out, 1))
    job.examples.error[held.rows] = held.error
    ledger.write_final(out)
    summary = reshard.curated(job, out, 1, progress)
    if summary.shared_keys:
        progress.note(f"{summary.shared_keys} kept keys are in several shards: readers that ignore shards mix them")
    kept, _ = manifest.read(manifest.path_of(out, 1))
    return Selected(run_id, len(job.index), len(kept), ledger.facts_of(out, 1))


def _prepare(config: RunConfig, out: Path, progress: Progress) -> Selection:
    target = open_target(config.target) if config.target else None
    resolved = resolve(config, labelled=target is None or is_labelled(target))
    workers = default_workers() if config.machine.workers is None else max(1, config.machine.workers)
    place = local(config.index) if config.index else None
    index = open_index(config.store, place, workers, config.image, cache_path=out / "index.parquet")
    examples = fresh_examples(index)
    leaks = leak_notes(index, target.splits) if target else []
    about = [*(target.notes if target else ()), *store_notes(resolved, examples), *leaks]
    for note in [*_idle(config), *about]:
        progress.note(note)
    chosen, source = config.selection, None
    spec = SELECTORS.spec(config.method)
    if spec.needs_target or spec.needs_features:
        source = scored.source_of(resolved, index)
        resolved = replace(resolved, selection=replace(chosen, encoder_key=f"{source.name}-{source.key}"))
    # Of no use here, but to whoever pre-trains on what is kept, and on other shards for comparison.
    images = open_images(resolved, index, Decoder.of(resolved.images), pick_device("cpu"))
    whole, _ = measured(resolved, config.images, images, examples)
    return Selection(whole, index, target, examples, source)


def _idle(config: RunConfig) -> list[str]:
    """A note on what was asked of a training, where nothing is trained; whoever trains on the choice asks again."""
    given = ((item, getattr(config.train, item.name)) for item in fields(config.train) if "help" in item.metadata)
    named = ", ".join(f"{flag(item.name)} {value}" for item, value in given if value != item.default)
    return [f"{named}: of a training, and --method {config.method} trains nothing"] if named else []


def _doubts(facts: dict[str, float], of_target: int) -> list[str]:
    """A note where a selector cannot say well how pure its choice is."""
    if "purity" not in facts or of_target >= FEW_OF_TARGET:
        return []
    told = f"the purity is estimated by {of_target} images of the target: by 20 it was .1 too high on average, by 10 .2"
    return [f"{told}; look at what is kept with `curate report`"]


def _claim(job: Selection, out: Path, progress: Progress) -> str:
    who = provenance.identity(job.config, job.index.fingerprint, job.target.fingerprint if job.target else "")
    path = out / "run.json"
    if path.exists():
        record = provenance.read_run(out)
        for warning in provenance.compare(out, record, who):
            progress.note(f"going on under another version: {warning}")
    else:
        refuse_foreign(out)
        device = str(job.source.device) if job.source else "cpu"
        record = provenance.write_run(path, job.config, who, {"device": device})
    return str(record["run_id"])


def _judge(job: Selection, out: Path, run_id: str, progress: Progress) -> None:
    """Score, and write ledger, manifest and metrics, each whole, in this order."""
    seconds: dict[str, float] = {}
    with _timed(seconds, "features"):
        store, target = _features(job, out, progress)
    with _timed(seconds, "score"):
        choose: base.Selector = SELECTORS[job.config.method]
        scores = choose(store.values, target, job.config.seed)
        kept, cut = _kept(scores, job.config.selection.keep)
    beliefs, everyone = _beliefs(store, scores, len(job.index)), np.zeros(len(job.index), np.bool_)
    everyone[store.rows] = kept
    everyone |= reshard.kept_undecodable(job.config, beliefs.error)
    stamp = Stamp(run_id, job.config.method, 1, job.config.seed, cut, job.config.prune.rho, None)
    names = job.index.table.select(["shard", "key"])
    facts = {"kept": float(kept.sum()), **scores.facts}
    if job.config.selection.keep:
        facts.pop("purity", None)  # it is of the selector's own cut
    for note in _doubts(facts, len(target)):
        progress.note(note)
    with _timed(seconds, "ledger"):
        digest = ledger.write(ledger.path_of(out, 1), beliefs, None, names, everyone, stamp, facts)
    if kept.sum() < engine.FEWEST:
        raise NothingLeft(
            f"--method {job.config.method} keeps {int(kept.sum())} of {len(kept)} images, for hardly one is like the "
            f"target; say how many with --keep in a new --out, or by `curate prune` after `curate ledger {out} --final`"
        )
    rows = np.flatnonzero(everyone).astype(np.int64)
    origin = manifest.Origin(pruner.rule_in_words(beliefs, cut, stamp.rho), len(beliefs), digest, stamp)
    manifest.write(manifest.path_of(out, 1), names.take(pa.array(rows)), rows, origin)
    numbers = {"mean_belief": float(scores.score.mean(dtype=np.float64)), **scores.facts}
    report = EpochReport(1, len(kept), len(rows), len(job.index) - len(rows), numbers, seconds)
    (out / METRICS).unlink(missing_ok=True)
    append_metrics(out / METRICS, report)


def _features(job: Selection, out: Path, progress: Progress) -> tuple[Features, Vectors]:
    """Of the store and of the target's training images, where it looks at any; without an encoder, rows alone."""
    if job.source is None:
        rows = np.flatnonzero(job.examples.error == 0).astype(np.int64)
        return Features(rows, np.empty((len(rows), 0), np.float32), job.examples.error), np.empty((0, 0), np.float32)
    places = scored.places_of(job.config, job.index, out)
    if not SELECTORS.spec(job.config.method).needs_target:
        return of_store(job.source, job.index, places, progress), np.empty((0, 0), np.float32)
    assert job.target is not None
    return scored.features_of(job.source, job.index, job.target, places, progress)


def _kept(scores: Scores, keep: float) -> tuple[Mask, float]:
    """Who is kept, and a cut on the score between them and the others."""
    if not keep:
        assert scores.own is not None  # resolved: a selector without a rule has a budget
        kept = scores.own
    else:
        kept = base.best(scores.score, round(keep * len(scores.score)) if keep < 1 else int(keep))
    lowest = scores.score[kept].min() if kept.any() else np.float32(1)
    return kept, float(max(np.nextafter(lowest, np.float32(0)), 0))


def _beliefs(store: Features, scores: Scores, n: int) -> Beliefs:
    mean: Floats = np.zeros(n, np.float32)
    mean[store.rows] = scores.score
    visits = np.zeros(n, np.int32)
    visits[store.rows] = 1
    return Beliefs(np.arange(n, dtype=np.int64), mean, visits, store.error)


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - started
