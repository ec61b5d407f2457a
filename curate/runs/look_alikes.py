"""Which images of the store learn from one another: found by features before epoch 1, kept as ``look_alikes.parquet``.

Owns the file. Features come from where a selector has them (`curate.runs.scored`); what is made of look-alikes is the
method's business (`curate.methods.base.Sharing`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from curate.config.share import Share, parse_share
from curate.errors import CurateError, Misuse
from curate.ledger import table_file
from curate.methods.base import Clusters, LookAlikes, Nearest, Sharing
from curate.progress import Progress
from curate.runs import nearest_neighbours, scored
from curate.runs.features import of_store
from curate.runs.prepare import Job, trainable
from curate.selection.base import Features
from curate.types import Counts
from shards.errors import Unfinished, UnknownFormat

FILE_NAME, FORMAT, VERSION = "look_alikes.parquet", "look-alikes", 1


def begin(job: Job, out: Path, progress: Progress) -> None:
    """Find the look-alikes, or read those that were found, and let the method know.

    Args:
        job: named, claimed for ``out``; its method is not brought to a checkpoint yet.

    Raises:
        Misuse: there are not so many images.
        CurateError, ShardError: the store, its features, or the file cannot be read.
    """
    share = parse_share(job.config.belief.share)
    if share is None:
        return
    _refuse_too_many(share, len(trainable(job.examples)))
    path, record = out / FILE_NAME, _identity(job)
    if not path.exists():
        begun = time.perf_counter()
        source = scored.source_of(job.config, job.index)
        store = of_store(source, job.index, scored.places_of(job.config, job.index, out), progress)
        progress.note(f"looking for look-alikes among {len(store.rows):,} images ({job.config.belief.share})")
        _save(path, job, _places(store, share, len(job.index), job.config.seed), record)
        progress.note(f"look-alikes found in {time.perf_counter() - begun:.0f} s")
    cast(Sharing, job.state.method).share(_load(path, len(job.index), share, record))


def too_many(share: Share, images: int) -> str:
    """Why so many images have no look-alikes of this kind; nothing where they have."""
    most = images if share.kind == "clusters" else images - 1
    if share.count <= most:
        return ""
    return f"--share {share.kind}:{share.count}: of {images:,} images; give at most {max(0, most):,}"


def _refuse_too_many(share: Share, images: int) -> None:
    if wrong := too_many(share, images):
        raise Misuse(wrong)


def _identity(job: Job) -> dict[str, Any]:
    """Everything that the look-alikes depend on; the encoder by its key."""
    config = job.config
    record = {"share": config.belief.share, "seed": config.seed, "store": job.index.fingerprint}
    return record | {"encoder": config.selection.encoder_key}


def _places(store: Features, share: Share, n: int, seed: int) -> Counts:
    """Shape (n, 1): the cluster of each row; or shape (n, N): its nearest. What has no features, and so is never
    trained on, is in a cluster of its own kind, the last, and its own neighbour."""
    _refuse_too_many(share, len(store.rows))
    if share.kind == "clusters":
        from curate.selection.clusters import clusters  # only here is scikit-learn needed

        found = np.full((n, 1), share.count, np.int32)
        found[store.rows, 0] = clusters(store.values, share.count, seed)
        return found
    found = np.repeat(np.arange(n, dtype=np.int32)[:, None], share.count, 1)
    found[store.rows] = store.rows[nearest_neighbours.of_each(store.values, share.count)]
    return found


def _save(path: Path, job: Job, places: Counts, record: dict[str, Any]) -> None:
    names = job.index.table.select(["shard", "key"])
    columns = {name: names[name].cast(pa.string()) for name in ("shard", "key")}
    rows = pa.array(np.arange(len(places), dtype=np.int64))
    held = pa.FixedSizeListArray.from_arrays(pa.array(places.ravel()), places.shape[1])
    table = pa.table({**columns, "row": rows, "alike": held})
    table_file.write(path, table, {"format": FORMAT, "version": VERSION, "of": record})


def _load(path: Path, n: int, share: Share, record: dict[str, Any]) -> LookAlikes:
    """The look-alikes of a file, whose pages have checksums.

    Raises:
        CurateError: it is damaged, or of another run.
    """
    try:
        footer = table_file.footer_of(path, FORMAT, VERSION) or {}
        column = table_file.read(path, ["alike"])["alike"].combine_chunks()
    except (Unfinished, UnknownFormat) as error:
        raise _unusable(path, "is damaged, or of a later release") from error
    width, most = (1, share.count + 1) if share.kind == "clusters" else (share.count, n)
    if footer.get("of") != record or len(column) != n or column.type != pa.list_(pa.int32(), width):
        raise _unusable(path, "was found for another run")
    places = column.flatten().to_numpy().reshape(n, width)
    if places.size and not 0 <= places.min() <= places.max() < most:
        raise _unusable(path, f"names place {places.min()} or {places.max()} of {most}")
    return Clusters(places[:, 0].copy(), most) if share.kind == "clusters" else Nearest(places.copy())


def _unusable(path: Path, what: str) -> CurateError:
    return CurateError(f"{path}: {what}; remove the file so that it is made again, the same")
