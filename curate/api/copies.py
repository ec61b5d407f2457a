"""Copies: within a store, and between a store and a target."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

from curate.api.paths import path_of
from curate.errors import Misuse
from shards.io.mirror.place import filled, local

if TYPE_CHECKING:
    from curate.api.paths import PathLike
    from curate.duplicates.audit import Audit
    from curate.duplicates.dedup import Deduplicated
    from curate.duplicates.request import HashedPart
    from curate.progress import Progress
    from curate.runs.opened import Run


def dedup(
    store: PathLike,
    *,
    out: PathLike,
    level: Literal["exact", "perceptual", "semantic"] = "perceptual",
    distance: int = 8,
    encoder: str | None = None,
    cosine: float | None = None,
    keep: Literal["largest", "first", "highest-weight"] = "largest",
    run: Run | PathLike | None = None,
    against: PathLike | None = None,
    within: bool | None = None,
    soft: bool = False,
    index: PathLike | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Deduplicated:
    """Find images of a store that show the same, and say which of each group stays.

    Args:
        store: the shards.
        out: folder of ``duplicates.parquet``, ``duplicates.png``, and ``manifest.parquet`` or ``weights.parquet``.
        level: the least sure level that counts: the same bytes or pixels, the same look, or features alike,
            which alone decide then.
        distance: bits of 64 in which hashes of the look may differ, 0 to 12.
        encoder: of the features, as `features` has it; None for untrained networks.
        cosine: 1 - cosine of features up to which they are alike; None for 0.04.
        keep: which stays; ties by key.
        run: whose weights, for highest-weight.
        against: another store, or a target: what of the store is like an image of it goes.
        within: whether images of the store are compared with each other; None for yes without ``against``.
        soft: weights of 1 / images of the group in place of a cut.
        index: of the store, where it is not in its folder.
        workers: processes that hash shards and compare.

    Returns:
        Counts, by level.

    Raises:
        Misuse: an option out of its range, or that nothing would look at.
        CurateError, ShardError: what is named cannot be read.

    >>> dedup("store", out="copies").dropped        # doctest: +SKIP
    """
    from curate.duplicates.dedup import Choice
    from curate.duplicates.request import deduplicate
    from curate.progress import NullProgress

    for name, value in (("encoder", encoder), ("cosine", cosine)):
        if value is not None and level != "semantic":
            raise Misuse(f"--{name} {value}: of --level semantic; leave it out")
    features = None
    if level == "semantic":
        from curate.runs.semantic_level import by_features

        features = by_features(encoder or "untrained", cosine, workers)
    weights = None if run is None else path_of(run) / "weights.parquet"
    alone = against is None if within is None else within
    choice = Choice(level, distance, keep, weights, alone, soft, encoder, cosine)
    compared = None if against is None else os.fspath(against)
    place = None if index is None else local(index)
    told = progress or NullProgress()
    with filled(out) as folder:
        return deduplicate(os.fspath(store), compared, choice, folder, place, workers, told, features)


def hash_part(
    store: PathLike,
    part: str,
    *,
    out: PathLike | None = None,
    index: PathLike | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> HashedPart:
    """Hash the images of a part of a store, for `dedup` and `audit` to find: parts in any order, on any machines.

    Args:
        store: the shards.
        part: ``I/N``, from ``1/N``; or ``slurm``, this task's place in its Slurm array.
        out: the folder that `dedup` will have, for a store that may not be written to.
        index: of the store, where it is not in its folder.
        workers: processes that hash shards.

    Raises:
        Misuse: there is no such part, or no place for hashes.
        CurateError, ShardError: the store cannot be read.

    >>> hash_part("store", "3/16").images        # doctest: +SKIP
    """
    from curate.duplicates.request import hash_part as hash_some
    from curate.progress import NullProgress
    from shards.io.part import parse

    some, place = parse(part), None if index is None else local(index)
    with nullcontext() if out is None else filled(out) as folder:
        return hash_some(os.fspath(store), some, folder, place, workers, progress or NullProgress())


def audit(
    target: PathLike,
    *,
    store: PathLike | None = None,
    out: PathLike | None = None,
    distance: int = 8,
    drop: bool = False,
    index: PathLike | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Does a store hold images of a target's val or test, and do copies stand on two sides of the target itself?

    Args:
        target: a folder with train/, val/ and test/, or images alone.
        store: the shards; None to look at the target alone.
        out: folder of tables and pictures; None for none.
        distance: bits of 64 in which hashes of the look may differ, 0 to 12.
        drop: also write ``manifest.parquet``, the store without those images.
        index: of the store, where it is not in its folder.
        workers: processes that hash shards and compare.

    Returns:
        ``leaks`` and ``across``, a record for each copy; its ``text()`` is for people.

    Raises:
        Misuse: an option out of its range, or ``drop`` without a store or without ``out``.
        CurateError, ShardError: what is named cannot be read.

    >>> audit("target", store="store").leaks        # doctest: +SKIP
    """
    from curate.duplicates.request import look_for_leaks
    from curate.progress import NullProgress

    held, at = None if store is None else os.fspath(store), None if index is None else local(index)
    told = progress or NullProgress()
    with nullcontext() if out is None else filled(out) as folder:
        return look_for_leaks(os.fspath(target), held, folder, distance, drop, at, workers, told)
