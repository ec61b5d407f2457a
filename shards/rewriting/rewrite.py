"""Rewrites the samples that a manifest keeps as new shards: plan, check the sources, copy, finalize.

Nothing is decoded; the bytes do not depend on the number of workers. The stages are `shards.rewriting.plan`, `copy` and
`finalize`; this file is their order, and what may go wrong with the output folder.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pyarrow as pa

from shards.arrays import Int64Array, UInt8Array
from shards.errors import Misuse, NoSpace, ShardError
from shards.indexing.drift import check_sources
from shards.indexing.extents import padded_sizes
from shards.indexing.index import Index
from shards.indexing.take_rows import take_rows
from shards.io import paths, remote
from shards.io.locks import locked
from shards.io.parallel import map_overlapping, map_shards
from shards.io.shard_set import SUFFIXES
from shards.io.storage.clients import is_object
from shards.member_names import is_safe
from shards.rewriting import far, marker, plan
from shards.rewriting.copy import CopyTask, WrittenShard
from shards.rewriting.finalize import RewritePlan, RewriteSummary, finalize
from shards.rewriting.manifest import manifest_rows
from shards.rewriting.needed import SourceSlice
from shards.rewriting.plan import KEPT, NewShard
from shards.tar.writer import END, check_shard_size, shard_name


@dataclass(frozen=True)
class RewriteOptions:
    """How to rewrite.

    Args:
        shard_size: bytes of a new shard; None for the store's median.
        workers: processes that copy.
        rename: put the source shard's path, without suffix and with a ``/``, before every key.
        undecodable: what to do with samples without an image, or whose image does not decode.
    """

    shard_size: int | None = None
    workers: int = 1
    rename: bool = False
    undecodable: Literal["keep", "drop"] = "drop"


def rewrite(
    index: Index,
    manifest: pa.Table,
    out: Path | str,
    *,
    undecodable: Int64Array | None = None,
    options: RewriteOptions = RewriteOptions(),
) -> RewriteSummary:
    """Write the samples that ``manifest`` names to ``out`` as shards, in store order, and finish it with its marker.

    An unfinished ``out`` is finished; one that the same call finished before is left as it is.

    Args:
        index: of the store.
        manifest: columns ``shard``, ``key`` and optionally ``row``.
        out: a missing or empty folder, or an unfinished or finished one of the same call; or the URL of one in an
            object store.
        undecodable: int64 rows whose image is known not to decode.

    Raises:
        Misuse: ``out`` and the store lie in one another, ``out`` holds something else, an option is out of range.
        ShardError: the manifest does not fit the index or keeps nothing, or the samples do not add up.
        ShardsChanged: a source shard is not the one that was indexed.
        Busy: another process is writing ``out``.
        NoSpace: the disk is too small, before or while writing.
    """
    refuse_overlap(index, out)
    work = make_plan(index, manifest, undecodable, options)
    if isinstance(out, str) and is_object(out):
        return _rewrite_far(index, manifest, out.rstrip("/") + "/", work, options)
    with _writing(Path(out)):
        return _finished(Path(out), work) or _write(index, manifest, Path(out), work, options)


def _rewrite_far(
    index: Index, manifest: pa.Table, out: str, work: RewritePlan, options: RewriteOptions
) -> RewriteSummary:
    """As `_finished` and `_write`, in an object store."""
    finished = far.read_marker(out)
    if finished is not None and finished["plan"] == work.plan_hash:
        far.refuse_lost(out, finished["shards"])
        far.forget_beginning(out)
        return RewriteSummary(**finished["summary"])
    shards = new_shards(index, work)
    check_sources(index, np.unique(index.shard_numbers[work.kept]), workers=options.workers)
    done = far.begin(out, work.plan_hash, {shard_name(shard.number) for shard in shards})
    written: dict[str, WrittenShard] = {}
    task = far.FarCopyTask(CopyTask(index.root, out), work.plan_hash, done)
    copied = _noted(_mapped(task, index, work, shards, options), written)
    with TemporaryDirectory() as folder:
        summary = finalize(index, manifest, Path(folder), work, shards, copied)
        far.finish(out, Path(folder), work.plan_hash, written)
    return summary


def _noted(
    copied: Iterator[tuple[WrittenShard, pa.RecordBatch]], written: dict[str, WrittenShard]
) -> Iterator[tuple[WrittenShard, pa.RecordBatch]]:
    """The same, each shard noted by its name as it comes."""
    for one, places in copied:
        written[one.shard.path] = one
        yield one, places


def _finished(out: Path, work: RewritePlan) -> RewriteSummary | None:
    """The summary of an earlier, finished call of the same rewrite; None where there is none."""
    if (out / marker.MARKER).exists() and marker.read_marker(out)["plan"] == work.plan_hash:
        _refuse_lost(out)
        marker.forget_beginning(out)
        return RewriteSummary(**marker.read_marker(out)["summary"])
    marker.check_output_folder(out)
    return None


def _refuse_lost(out: Path) -> None:
    """Raise `ShardError` where a finished set has since lost a shard or part of one; `verify` checks its bytes."""
    for shard in marker.read_marker(out)["shards"]:
        path = out / shard["name"]
        found = path.stat().st_size if path.is_file() else "no file"
        if found != shard["bytes"]:
            raise marker.damaged(str(path), shard["bytes"], found)


def make_plan(index: Index, manifest: pa.Table, undecodable: Int64Array | None, options: RewriteOptions) -> RewritePlan:
    """What a rewrite would write; arguments and errors as `rewrite`."""
    broken = np.zeros(0, dtype=np.int64) if undecodable is None else undecodable
    keep_all = options.undecodable == "keep"
    outcome = plan.outcomes(index, manifest_rows(index, manifest), broken, keep_all_broken=keep_all)
    return _plan_of(index, outcome, options)


def _plan_of(index: Index, outcome: UInt8Array, options: RewriteOptions) -> RewritePlan:
    kept = np.flatnonzero(outcome == KEPT)
    if not len(kept):
        raise ShardError("nothing is kept", expected="at least one sample", found=0, todo="check the manifest")
    size = plan.median_size(index) if options.shard_size is None else options.shard_size
    check_shard_size(size)
    prefixes = _prefixes(index) if options.rename else None
    return RewritePlan(plan_hash(index, outcome, size, options.rename), outcome, kept, prefixes, size)


def new_shards(index: Index, work: RewritePlan) -> list[NewShard]:
    """The shards that a rewrite writes; their rows are places in ``work.kept``."""
    keys = work.keys_of(index, work.kept)
    return plan.assign_to_shards(np.arange(len(work.kept)), _sizes(index, work), keys, work.shard_size)


def _sizes(index: Index, work: RewritePlan) -> Int64Array:
    return padded_sizes(take_rows(index.table.select(["size"]), work.kept)["size"].to_numpy())


def _write(index: Index, manifest: pa.Table, out: Path, work: RewritePlan, options: RewriteOptions) -> RewriteSummary:
    shards = new_shards(index, work)
    check_sources(index, np.unique(index.shard_numbers[work.kept]), workers=options.workers)
    check_space(out, int(_sizes(index, work).sum()) + len(shards) * len(END))
    marker.mark_begun(out, work.plan_hash, {shard_name(shard.number) for shard in shards})
    copied = _mapped(CopyTask(index.root, str(out)), index, work, shards, options)
    return finalize(index, manifest, out, work, shards, copied)


def _mapped(
    task: Callable[[tuple[int, tuple[SourceSlice, ...]]], tuple[WrittenShard, pa.RecordBatch]],
    index: Index,
    work: RewritePlan,
    shards: Sequence[NewShard],
    options: RewriteOptions,
) -> Iterator[tuple[WrittenShard, pa.RecordBatch]]:
    """A task on every new shard and what it takes from its sources."""
    items = ((shard.number, source_slices(index, work, shard)) for shard in shards)
    how = map_overlapping if options.workers == 1 else partial(map_shards, workers=options.workers)
    return how(task, items, total=len(shards))


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Lock ``out``, and turn the system's errors of writing there into ours."""
    try:
        with locked(out):
            yield
    except OSError as error:
        problem, place = f"cannot write ({error.strerror})", str(error.filename or out)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise NoSpace(problem, shard=place, todo="make room and run the same rewrite again") from error
        raise ShardError(problem, shard=place, todo="mend that and run the same rewrite again") from error


def refuse_overlap(index: Index, out: Path | str) -> None:
    """Raise `Misuse` where output and store overlap."""
    far_out = isinstance(out, str) and remote.is_url(out)
    if remote.is_url(index.root) or far_out:
        one, other = (place.rstrip("/") + "/" for place in (index.root, str(out)))
        if one.startswith(other) or other.startswith(one):
            raise _overlapping(index, out)
        return
    out = Path(out)
    store = Path(index.root).resolve()
    # Shards on several disks have "/" as their root; a folder below it is none of theirs.
    spread = store == Path(store.anchor) and out.resolve() != store
    if not spread and paths.overlap(out, store):
        raise _overlapping(index, out)


def _overlapping(index: Index, out: Path | str) -> Misuse:
    expected, todo = f"a folder outside {index.root}", "choose another --out"
    return Misuse("output and store lie in one another", shard=str(out), expected=expected, todo=todo)


def check_space(out: Path, needed: int) -> None:
    """Raise `NoSpace` where the disk of ``out`` has less than ``needed`` bytes, counting shards there as free."""
    place = out
    while not place.exists():
        place = place.parent
    replaced = sum(path.stat().st_size for path in out.glob("*.tar")) if out.exists() else 0
    free = shutil.disk_usage(place).free + replaced
    if free < needed:
        raise NoSpace(
            "the disk is too small",
            shard=str(out),
            expected=f"{needed} bytes",
            found=free,
            todo="make room and run the same rewrite again, or choose another --out",
        )


def plan_hash(index: Index, outcome: UInt8Array, size: int, rename: bool) -> str:
    """sha256 (hex) of what decides the bytes: store, outcomes, shard size, renaming."""
    identity = [marker.FORMAT_VERSION, index.fingerprint, hashlib.sha256(outcome.tobytes()).hexdigest(), size, rename]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def prefix_of(shard: str) -> str:
    """The prefix that ``--rename`` gives to the keys of a shard: its path without suffix.

    >>> prefix_of("part/00001.tar.gz")
    'part/00001'
    """
    lower = shard.lower()
    return next((shard[: -len(suffix)] for suffix in reversed(SUFFIXES) if lower.endswith(suffix)), shard)


def _prefixes(index: Index) -> tuple[str, ...]:
    prefixes = tuple(prefix_of(shard.path) for shard in index.shards)
    unsafe = next((prefix for prefix in prefixes if not is_safe(prefix)), None)
    if unsafe is not None:
        raise Misuse("no name for members", shard=unsafe, expected="a relative path without ..", todo="drop --rename")
    return prefixes


def source_slices(index: Index, work: RewritePlan, shard: NewShard) -> tuple[SourceSlice, ...]:
    """What a new shard takes from each source shard, in store order."""
    rows = work.kept[shard.rows]
    held, numbers = take_rows(index.table.drop_columns(["shard"]), rows), index.shard_numbers[rows]
    cuts = np.concatenate(([0], np.flatnonzero(np.diff(numbers)) + 1, [len(rows)])).tolist()
    slices = []
    for start, stop in pairwise(cuts):
        number = numbers[start]
        prefix = None if work.prefixes is None else work.prefixes[number]
        # `take` copies: a slice would send the others to another process, too.
        slices.append(SourceSlice(index.shards[number], prefix, held.take(np.arange(start, stop))))
    return tuple(slices)
