"""What a run believes before its first epoch: a classifier's judgement of the store, or a file's; and the epoch 0 in
which it is written down and what lies below the pruning rule's boundary goes.

The method says what weights the prior means (`curate.methods.base.Informed`). They are taken from the ledger of epoch 0
whether it was written just now or before a kill, so both train on the same.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from curate.config.catalogue import SELECTORS
from curate.config.resolved import ResolvedConfig
from curate.config.share import parse_share
from curate.errors import CurateError, NothingLeft
from curate.ledger import facts, ledger, manifest, pruner
from curate.methods.base import Informed, Summary
from curate.progress import NullProgress, Progress
from curate.runs import reshard, scored
from curate.runs.epoch import refuse_undecodable
from curate.runs.given_prior import given_prior
from curate.runs.prepare import Job, trainable
from curate.runs.shard_features import BATCH
from curate.selection import base, feature_files
from curate.training import engine
from curate.types import Beliefs, Codes, Mask, Prior, Stamp
from shards.io.mirror.place import local

Facts = dict[str, float]

#: Steps an epoch below which there is little to learn weights from.
FEW_STEPS = 10
#: Rows of a store beyond which a dry run does not ask what the prior keeps.
LARGE = 100_000


def named(job: Job) -> Job:
    """The job, its configuration with the keys that stand for the prior, and for features, in the run's id.

    Raises:
        CurateError, Misuse: the encoder or the file cannot be used.
    """
    config, of_features, of_file = job.config, "", ""
    if _looks(config):
        source = scored.source_of(config, job.index)
        of_features = f"{source.name}-{source.key}"
    if config.belief.prior not in (*SELECTORS, "uniform"):
        of_file = _digest(_given(job))
    # Of a run.json that is repeated with another prior, the keys of its own may be here still.
    chosen, belief = replace(config.selection, encoder_key=of_features), replace(config.belief, prior_key=of_file)
    config = replace(config, selection=chosen, belief=belief)
    return replace(job, config=config, setup=replace(job.setup, config=config))


def begin(job: Job, out: Path, run_id: str, progress: Progress) -> None:
    """Epoch 0: judge the store by the prior, write ledger and manifest, and start the weights from the ledger.

    Args:
        job: named, claimed for ``out``, nothing trained.

    Raises:
        NothingLeft: too few would be kept to train on.
        CurateError, ShardError: the store, the target or the file cannot be read.
    """
    if not _is_written(out):
        prior, error, found = _prior(job, scored.places_of(job.config, job.index, out), progress)
        _write(job, out, run_id, _weights(job, prior), error, found)
    table = ledger.read_epoch(out, 0)
    held = ledger.beliefs_of(table)
    cast(Informed, job.state.method).take_up(Summary(held.mean, held.a, held.b))
    job.examples.error[:] = held.error
    job.examples.kept[:] = table["kept"].to_numpy()
    reshard.advance(job, out, 0, progress)


def in_words(job: Job, out: Path) -> str:
    """What epoch 0 came to, a line for people."""
    kept, origin = manifest.read(manifest.path_of(out, 0))
    found = facts.in_words(ledger.facts_of(out, 0))
    before = f"prior {job.config.belief.prior}: {len(kept):,} of {origin.examples_in:,} kept before epoch 1"
    return f"{before}; {found}" if found else before


def seconds_before(job: Job, out: Path) -> float:
    """Seconds that features will take before epoch 1, by one batch of them; 0 where they are there already.

    Raises:
        As `begin`.
    """
    if not _looks(job.config):
        return 0.0
    source = scored.source_of(job.config, job.index)
    places = scored.places_of(job.config, job.index, out)
    if source.given or any(not feature_files.missing(source.folder(job.index, at), job.index) for at in places):
        return 0.0
    rows, begun = trainable(job.examples), time.perf_counter()
    first = next(iter(source.images(job.index).read([rows[:BATCH]])))
    if not len(first.pixels):
        return 0.0
    source.encode(first.pixels[:2])
    calibrated = time.perf_counter()
    source.encode(first.pixels)
    seconds = time.perf_counter() - calibrated
    return (calibrated - begun) + seconds * len(rows) / len(first.pixels)


def kept_before(job: Job, out: Path, scratch: Path) -> int | None:
    """How many images epoch 0 will leave to train on; None where there is no prior, or the store is too large for a
    look at it.

    Args:
        scratch: a folder for features that are nowhere yet, which are computed then.

    Raises:
        As `begin`.
    """
    if job.config.belief.prior == "uniform" or len(job.index) > LARGE:
        return None
    source = scored.source_of(job.config, job.index)
    places = scored.places_of(job.config, job.index, out)
    held = [at for at in places if source.given or not feature_files.missing(source.folder(job.index, at), job.index)]
    prior, error, _ = _prior(job, held or [scratch], NullProgress())
    return int(_judged(job, _weights(job, prior), error)[1].sum())


def few_left(config: ResolvedConfig, left: int) -> str:
    """A word where the images that a prior leaves are hardly enough to learn weights from; else nothing."""
    steps = -(-left // config.train.batch)
    if steps >= FEW_STEPS:
        return ""
    many = f"{steps} step{'s' * (steps > 1)} an epoch"
    return (
        f"{left:,} images are left to weigh, {many}: too few to learn much from, so what is kept is mostly what the "
        "prior keeps; `--prior uniform` in a new --out weighs the whole store"
    )


def _looks(config: ResolvedConfig) -> bool:
    """Whether features are looked at: by the prior, or to find look-alikes."""
    return config.belief.prior in SELECTORS or parse_share(config.belief.share) is not None


def _prior(job: Job, places: Sequence[Path], progress: Progress) -> tuple[Prior, Codes, Facts]:
    """What is known of all rows, which of them do not decode as far as was seen, and what was found out besides.

    Args:
        places: as of `curate.runs.features.of_store`.
    """
    if job.config.belief.prior not in SELECTORS:
        return _given(job), job.examples.error, {}
    assert job.target is not None  # a method that learns has one
    source = scored.source_of(job.config, job.index)
    store, target = scored.features_of(source, job.index, job.target, places, progress)
    choose: base.Selector = SELECTORS[job.config.belief.prior]
    scores = choose(store.values, target, job.config.seed)
    assert scores.own is not None  # of a selector that gives a prior
    mean, kept = np.full(len(job.index), np.nan), np.zeros(len(job.index), np.bool_)
    mean[store.rows], kept[store.rows] = scores.score, scores.own
    return Prior(mean, kept, scores.cut), store.error, {"kept": float(scores.own.sum()), **scores.facts}


def _given(job: Job) -> Prior:
    place = local(job.config.belief.prior, without=("*.tar", "*.safetensors"))
    return given_prior(place, job.index.table.select(["shard", "key"]), trainable(job.examples))


def _digest(prior: Prior) -> str:
    """Of what a file says, wherever and however it is kept."""
    columns = (prior.mean, prior.a, prior.b)
    return hashlib.sha256(b"".join(x.tobytes() for x in columns if x is not None)).hexdigest()[:16]


def _weights(job: Job, prior: Prior) -> Summary:
    return cast(Informed, job.state.method).begin_from(prior, job.config.prune)


def _write(job: Job, out: Path, run_id: str, weights: Summary, error: Codes, facts: Facts) -> None:
    """Judge all rows, visited or not, and publish ledger and manifest, in this order."""
    config, n = job.config, len(job.index)
    lam, rho = config.prune.lam, config.prune.rho
    beliefs, usable = _judged(job, weights, error)
    kept = usable | reshard.kept_undecodable(config, error)
    stamp = Stamp(run_id, config.method, 0, config.seed, lam, rho, config.belief.eta)
    names = job.index.table.select(["shard", "key"])
    live = np.ones(n, np.bool_) if config.belief.returns else None
    below = pruner.below(beliefs, lam)
    digest = ledger.write(ledger.path_of(out, 0), beliefs, below, names, kept, stamp, facts or None, live)
    _refuse_too_few(job, usable, error)
    rows = np.flatnonzero(kept).astype(np.int64)
    origin = manifest.Origin(pruner.rule_in_words(beliefs, lam, rho), n, digest, stamp)
    manifest.write(manifest.path_of(out, 0), names.take(pa.array(rows)), rows, origin)


def _judged(job: Job, weights: Summary, error: Codes) -> tuple[Beliefs, Mask]:
    """What is believed of all rows, and which of them decode and are kept."""
    n, rule = len(job.index), job.config.prune
    beliefs = Beliefs(np.arange(n, dtype=np.int64), weights.mean, np.zeros(n, np.int32), error, weights.a, weights.b)
    return beliefs, pruner.keep(pruner.informed(beliefs), rule.lam, rule.rho)


def _refuse_too_few(job: Job, usable: Mask, error: Codes) -> None:
    if usable.sum() >= engine.FEWEST:
        return
    job.examples.error[:] = error
    refuse_undecodable(job)
    raise NothingLeft(
        f"--prior {job.config.belief.prior} keeps {usable.sum()} of {len(usable)} images, training needs "
        f"{engine.FEWEST}; give --prior uniform or another --encoder, in a new --out"
    )


def _is_written(out: Path) -> bool:
    """Whether epoch 0 was written to its end: its manifest names the ledger that is there."""
    ledger_file, manifest_file = ledger.path_of(out, 0), manifest.path_of(out, 0)
    if not (ledger_file.is_file() and manifest_file.is_file()):
        return False
    try:
        named = manifest.read(manifest_file)[1].ledger_sha256
    except CurateError:
        return False  # nothing was trained on it: it is written again
    return hashlib.sha256(ledger_file.read_bytes()).hexdigest() == named
