"""Shards rewritten while a run goes on, so that later epochs read only what is kept; and the curated set at its end.

A generation is always written from the store, never from another generation, so it is right whatever came before.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from curate.config.schema import RunConfig
from curate.data.image_store import ShardView
from curate.errors import CurateError
from curate.ledger import manifest, table_file
from curate.progress import Progress
from curate.runs.checkpoint import Examples
from curate.runs.prepare import Job
from curate.types import ERRORS, Codes, Ints, Mask
from shards.errors import NoSpace
from shards.indexing.index import Index
from shards.io.parallel import default_workers
from shards.rewriting import marker as curated_set
from shards.rewriting.finalize import RewriteSummary
from shards.rewriting.rewrite import RewriteOptions, rewrite

#: Under `--rewrite auto`, shards are rewritten when more than this share of what they hold is pruned.
REWRITE_ABOVE = 0.5
_GENERATION = re.compile(r"generation=([0-9]+)")


class Chosen(Protocol):
    """What shards are rewritten from: a store of which an epoch's manifest says what is kept."""

    @property
    def config(self) -> RunConfig: ...

    @property
    def index(self) -> Index: ...

    @property
    def examples(self) -> Examples: ...


def folder(out: Path, generation: int) -> Path:
    """Path of a generation of shards: ``shards/generation=1``."""
    return out / "shards" / f"generation={generation}"


def _generations(out: Path) -> dict[int, Path]:
    """The generations in a run's folder, by number; other names beside them pass."""
    named = ((_GENERATION.fullmatch(path.name), path) for path in (out / "shards").glob("generation=*"))
    return {int(match[1]): path for match, path in named if match}


def take_up(job: Job, out: Path, generation: int) -> None:
    """Read on from a generation of an earlier call, and remove what came after it."""
    for number, path in _generations(out).items():
        if number > generation:
            curated_set.remove(path)
    read_from(job, out, generation)


def read_from(job: Job, out: Path, generation: int) -> None:
    """Read a generation of shards from now on.

    The store holds everything: it is read where there is no such generation: before the first (0), where images have
    returned that the last one lacked, and where a kill came while generations were removed.
    """
    at = folder(out, generation)
    job.images.view = _view(at) if (at / curated_set.MARKER).exists() else ShardView.whole(job.index)
    job.generation = generation


def advance(job: Job, out: Path, epoch: int, progress: Progress) -> int:
    """Rewrite the shards after an epoch if the policy says so, and read on from them. Returns the generation in use.

    Where images have returned that the shards at hand lack, the store is read again, under the next number. A disk that
    is too small is no reason to stop: what is at hand holds everything.
    """
    kept = int(job.examples.kept.sum())
    if np.count_nonzero(job.examples.kept[job.images.view.rows]) < kept:
        job.images.view = ShardView.whole(job.index)
        job.generation += 1
    held = len(job.images.view.rows)
    policy = job.config.machine.rewrite
    wanted = {"auto": kept < (1 - REWRITE_ABOVE) * held, "always": kept < held, "end": False}[policy]
    if not wanted or epoch == job.config.train.epochs:
        return job.generation
    generation = job.generation + 1
    try:
        _rewrite(job, out, epoch, folder(out, generation), progress)
    except NoSpace as error:
        progress.note(f"shards not rewritten after epoch {epoch}: {error}")
        return job.generation
    job.images.view = _view(folder(out, generation))
    job.generation = generation
    return generation


def drop_superseded(job: Job, out: Path, generation: int) -> None:
    """Remove generations before the one in use; after its checkpoint, never before."""
    if job.config.machine.keep_generations:
        return
    for number, path in _generations(out).items():
        if number < generation:
            curated_set.remove(path)


def curated(job: Chosen, out: Path, epoch: int, progress: Progress) -> RewriteSummary:
    """The curated shards of an epoch's manifest, in RUN/curated; the generations go when they are there.

    Those of an earlier end of the run, which has been extended since, make room for them.
    """
    to = out / "curated"
    if (to / curated_set.MARKER).exists() and not _made_of(to, out, epoch):
        curated_set.remove(to)
    summary = _rewrite(job, out, epoch, to, progress)
    if not job.config.machine.keep_generations:
        for path in _generations(out).values():
            curated_set.remove(path)
        with suppress(OSError):
            (out / "shards").rmdir()  # stays where something else is in it
    return summary


def kept_undecodable(config: RunConfig, error: Codes) -> Mask:
    """Which of some examples are in the manifest though they do not decode."""
    kept = (error > 0) & (error != ERRORS.index("unsafe-name"))
    return kept if config.output.undecodable == "keep" else np.zeros_like(kept)


def undecodable_rows(error: Codes) -> Ints:
    """The rows whose image was read and does not decode, from the codes of all rows."""
    known_before = [0, ERRORS.index("no-image"), ERRORS.index("unsafe-name")]
    return np.flatnonzero(~np.isin(error, known_before)).astype(np.int64)


def _rewrite(job: Chosen, out: Path, epoch: int, to: Path, progress: Progress) -> RewriteSummary:
    table, _ = manifest.read(manifest.path_of(out, epoch))
    options = RewriteOptions(
        shard_size=job.config.output.shard_size,
        workers=default_workers() if job.config.machine.workers is None else max(1, job.config.machine.workers),
        rename=job.config.output.rename == "prefix",
        undecodable="keep" if job.config.output.undecodable == "keep" else "drop",
    )
    broken = undecodable_rows(job.examples.error)
    with progress.shards("rewriting"):
        return rewrite(job.index, table, to, undecodable=broken, options=options)


def _made_of(curated: Path, out: Path, epoch: int) -> bool:
    """Whether a curated set keeps what an epoch's manifest keeps."""
    table, _ = manifest.read(manifest.path_of(out, epoch))
    made = table_file.read(curated / curated_set.MANIFEST, ["row"])
    return bool(made["row"].equals(table["row"]))


def _view(at: Path) -> ShardView:
    rows = table_file.read(at / curated_set.MANIFEST, ["row"], pa.schema([manifest.SCHEMA.field("row")]))[
        "row"
    ].to_numpy()
    index = curated_set.load_curated(at)
    if len(rows) != len(index) or (np.diff(rows) <= 0).any():
        raise CurateError(f"{at}: its manifest is not of its shards; remove the folder, and the run goes on without it")
    return ShardView(index, rows)
