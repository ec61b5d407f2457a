"""The semantic level of duplicates for a store: its features, wherever they are, and the groups that they make."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from curate.config.catalogue import parse_encoder
from curate.config.schema import MachineConfig
from curate.duplicates.dedup import Semantic
from curate.duplicates.near_pairs import DISTANCE
from curate.duplicates.request import SCRATCH
from curate.duplicates.semantic import semantic_groups
from curate.errors import Misuse
from curate.progress import Progress
from curate.runs.features import Choice, Source, beside, of_store
from curate.runs.prepare import fresh_examples, trainable
from curate.runs.threads import computing
from curate.selection import feature_files
from curate.types import Floats, Ints
from shards.indexing.index import Index


def by_features(
    encoder: str, within: float | None = None, workers: int | None = None
) -> Callable[[Index, Path, Progress], Semantic]:
    """What `curate.duplicates.request.deduplicate` calls where features decide.

    Args:
        encoder: of `curate.config.catalogue.ENCODERS`, with what it needs after a colon.
        within: 1 - cosine up to which images are alike; None for `DISTANCE`.
        workers: processes; None for one a core.

    Raises:
        Misuse: either cannot be meant.
    """
    parse_encoder(encoder)
    within = DISTANCE if within is None else within
    if not 0 < within < 1:
        raise Misuse(f"--cosine {within:g}: must be between 0 and 1; it is 0.04 where nothing is said")
    choice, machine = Choice(encoder), MachineConfig(workers=workers)

    def of_index(index: Index, out: Path, progress: Progress) -> Semantic:
        return partial(semantic_level, index, Source(choice, index, machine), out, progress, within)

    return of_index


def semantic_level(
    index: Index, source: Source, out: Path, progress: Progress, within: float = DISTANCE, order: Ints | None = None
) -> tuple[Ints, Floats]:
    """Group the images of a store by their features.

    Args:
        out: where features go that are not beside the store.
        order: shape (n,): the rank in which images are preferred; None for that of the store.

    Returns:
        As `semantic_groups`; an image without features stands alone.

    Raises:
        CurateError, ShardError: features cannot be made or read, or tell nothing apart.
    """
    representative, distance = np.arange(len(index)), np.zeros(len(index), np.float32)
    if not len(trainable(fresh_examples(index))):
        return representative, distance
    out.mkdir(parents=True, exist_ok=True)
    # Processes take a thread each: products that wait for one another's threads took five times as long.
    threads = 1 if source.workers > 1 else None
    with tempfile.TemporaryDirectory(dir=out, prefix=SCRATCH) as scratch, computing(threads, progress.note):
        path = Path(scratch) / "features.npy"
        rows = of_store(source, index, [*beside(index), out / feature_files.FOLDER], progress, path).rows
        rank = np.argsort(np.argsort(rows if order is None else order[rows]))
        with progress.shards("features alike"):
            of, apart = semantic_groups(path, rank, within, max(1, source.workers), Path(scratch))
    representative[rows], distance[rows] = rows[of], apart
    return representative, distance
