"""What a run adds to the metadata of its curated shards: the index of its store, and the last belief of every image."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from curate.errors import Misuse
from curate.ledger import ledger
from curate.runs import provenance
from shards.indexing.index import Index
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


def store_and_weights(run: Path) -> tuple[Index, pa.Table]:
    """The index of a run's store, and ``shard``, ``key``, ``weight`` (the mean of the belief), ``a``, ``b``, ``kept``.

    Raises:
        CurateError: no run, or no epoch of it is done.
        ShardError: the store is gone, or has changed.
    """
    config = provenance.config_of(provenance.read_run(run), run)
    place, allowed = Path(config.index) if config.index else None, config.machine.allow_pipe
    store = open_index(config.store, place, image=config.image, cache_path=run / "index.parquet", allow_pipe=allowed)
    columns = {"shard": "shard", "key": "key", "mean": "weight", "a": "a", "b": "b", "kept": "kept"}
    return store, ledger.final(run).select(list(columns)).rename_columns(list(columns.values()))
