"""A run's store, opened again: for what a run believes of it, and for the domains that are known of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from curate.errors import CurateError, Misuse
from curate.ledger import ledger
from curate.runs import provenance
from shards.indexing.index import Index
from shards.io.mirror.place import local
from shards.store import open_index


def run_of(curated: Path) -> Path:
    """The run that a curated folder lies in.

    Raises:
        Misuse: it lies in none.
    """
    run = curated.resolve().parent
    if not (run / "run.json").is_file():
        raise Misuse(f"--metadata: {curated} lies in no run; say which one judged its images with --run RUN")
    return run


def store_of(run: Path) -> Index:
    """The index of a run's store.

    Raises:
        CurateError: no run, or the store is no longer the one that it was.
        ShardError: the store is gone.
    """
    record = provenance.read_run(run)
    config = provenance.config_of(record, run)
    place, allowed = local(config.index) if config.index else None, config.machine.allow_pipe
    store = open_index(config.store, place, image=config.image, cache_path=run / "index.parquet", allow_pipe=allowed)
    if store.fingerprint != record["store"]:
        raise CurateError(f"{config.store}: is no longer the store of {run}; restore it, or name another run")
    return store


def store_and_weights(run: Path) -> tuple[Index, pa.Table]:
    """The index of a run's store, and ``shard``, ``key``, ``weight`` (the mean of the belief), ``a``, ``b``, ``kept``.

    Raises:
        CurateError: as `store_of`, or no epoch is done.
        ShardError: the store is gone.
    """
    store = store_of(run)
    columns = {"shard": "shard", "key": "key", "mean": "weight", "a": "a", "b": "b", "kept": "kept"}
    return store, ledger.final(run).select(list(columns)).rename_columns(list(columns.values()))
