"""What a run believes of its images: its ledger, its manifests, other thresholds, a page about it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from curate.api.paths import BUT_TABLES, path_of, place_of
from curate.errors import CurateError
from shards.io.mirror.place import child, filled, written

if TYPE_CHECKING:
    import pyarrow as pa

    from curate.api.paths import PathLike
    from curate.ledger.reprune import Grid
    from curate.ledger.summary import EpochSummary
    from curate.reporting.report import Report
    from curate.runs.opened import Run


def prune(
    run: Run | PathLike,
    *,
    lam: float | None = None,
    rho: float | None = None,
    keep: float | None = None,
    by: Literal["mean", "lower"] = "mean",
    out: PathLike | None = None,
) -> pa.Table:
    """Judge a finished run again by other thresholds or a budget, without training.

    Args:
        lam: weight below which an image is no help; None for the run's.
        rho: prune when more than this share of the belief lies below; None for the run's.
        keep: keep this share of the decodable images instead, best first; above 1, so many.
        by: best by the mean of the belief, or by its lower bound.
        out: also write the manifest there, a Parquet file.

    Returns:
        The manifest: columns ``shard``, ``key``, ``row``, sorted by row. Its schema's metadata says the rule.

    Raises:
        Misuse: a budget beside thresholds, a number out of its range, or what keeps nothing.
        CurateError: the run is not finished.

    >>> prune("run", keep=0.25, by="lower")        # doctest: +SKIP
    """
    from curate.ledger import reprune

    choice = reprune.Choice(lam, rho, keep, by)
    with nullcontext() if out is None else written(out) as manifest:
        return reprune.judge_again(path_of(run), choice, manifest)


def prune_grid(run: Run | PathLike) -> Grid:
    """How much `prune` would keep, over a grid of thresholds; nothing is written.

    Returns:
        ``kept``: the share of the decodable images, a row a ``lam``, a column a ``rho``.

    Raises:
        CurateError: the run is not finished.

    >>> print(prune_grid("run").text())        # doctest: +SKIP
    """
    from curate.ledger import reprune

    return reprune.grid(path_of(run))


def manifest_of(run: Run | PathLike) -> Path:
    """The last manifest of a run; of one that still trains, that of the last epoch which is done.

    Args:
        run: a run; a folder with ``manifest.parquet`` in it, such as `dedup` and `audit` make; or a manifest, which is
            returned as it is.

    Raises:
        CurateError: the folder is no run, or has no manifest yet.

    >>> manifest_of("run")        # doctest: +SKIP
    PosixPath('run/manifests/epoch=0012.parquet')
    """
    at = path_of(run)
    if not at.is_dir():
        return at
    if (written := at / "manifest.parquet").is_file():
        return written
    from curate.ledger import ledger, manifest
    from curate.runs.provenance import read_run

    if not (at / "run.json").exists() and (at.parent / "run.json").exists():
        raise CurateError(f"{at}: a part of a run, and no manifest; name the run, {at.parent}")
    read_run(at)
    found = [path for epoch in ledger.epochs(at) if (path := manifest.path_of(at, epoch)).is_file()]
    if not found:
        raise CurateError(f"{at}: no epoch of it is done, so it has no manifest; let the run go on")
    return found[-1]


def ledger_summary(run: Run | PathLike, *, by: Literal["epoch", "domain"] = "epoch") -> list[EpochSummary]:
    """What a run has learnt, in a few numbers an epoch; of one that still trains, the epochs that are done.

    Args:
        by: a row an epoch, or a row for each domain in each epoch, where ``domains.parquet`` tells the store's domains.

    Returns:
        A dictionary a row: ``epoch``, ``live``, ``kept``, ``mean`` (of the weights), ``undecodable``; by domain also
        ``domain``.

    Raises:
        CurateError: there is no run, or its ledger is damaged.
        ShardError: by domain, and the store or its domains are not there.

    >>> ledger_summary("run")[-1]["kept"]        # doctest: +SKIP
    """
    from curate.ledger import summary
    from curate.runs.provenance import read_run

    at = path_of(run)
    read_run(at)
    if by == "epoch":
        return summary.by_epoch(at)
    from curate.runs.run_store import store_of
    from shards.indexing import domains

    return summary.by_epoch_and_domain(at, domains.load(store_of(at)))


def write_weights(run: Run | PathLike) -> Path:
    """Write a run's ``weights.parquet``, the last state of every image, and return its path; a finished run has it.

    Raises:
        CurateError: there is no run, or no epoch of it is done.

    >>> write_weights("run")        # doctest: +SKIP
    """
    from curate.ledger.ledger import write_final
    from curate.runs.provenance import read_run

    with filled(place_of(run), without=BUT_TABLES) as folder:
        read_run(folder)
        return write_final(folder)


def report(run: Run | PathLike, *, out: PathLike | None = None, target: PathLike | None = None) -> Report:
    """Show a run on one HTML page that needs nothing else: what was kept and why, pictures, costs, what to do next.

    Args:
        run: finished or not, or a pre-training.
        out: the page; None for ``report.html`` in the run.
        target: whose images are looked for among the kept; None for the run's own.

    Returns:
        Its ``path``, and the ``numbers`` that it shows.

    Raises:
        Misuse: ``out`` is a folder, or holds something else.
        CurateError: no run, or a damaged file of it. A store or a target that is gone is said in the page.

    >>> report("run").path        # doctest: +SKIP
    """
    from curate.reporting.report import FILE_NAME
    from curate.reporting.report import report as write

    with written(child(place_of(run), FILE_NAME) if out is None else out) as page:
        return write(path_of(run), page, None if target is None else os.fspath(target))
