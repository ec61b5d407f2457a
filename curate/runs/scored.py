"""How like the target a store's images look, by a selector over features: what chooses without training, and the prior
of what trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from curate.config.resolved import ResolvedConfig
from curate.data.target import TargetIndex, load_split, names_of
from curate.progress import Progress
from curate.runs.features import Choice, Source, beside, of_store
from curate.selection import feature_files
from curate.selection.base import Features, Vectors
from shards.indexing.index import Index


def source_of(config: ResolvedConfig, index: Index) -> Source:
    """Where a run's options say that features come from.

    Raises:
        Misuse: the encoder cannot be meant.
    """
    return Source(Choice(config.selection.encoder, config.selection.nets), index, config.machine)


def places_of(config: ResolvedConfig, index: Index, out: Path) -> Sequence[Path]:
    """Where features of the store are looked for; made in the last, in the run's folder, where nowhere are any."""
    folder = config.selection.features
    return [*([Path(folder)] if folder else []), *beside(index), out / feature_files.FOLDER]


def features_of(
    source: Source, index: Index, target: TargetIndex, places: Sequence[Path], progress: Progress
) -> tuple[Features, Vectors]:
    """Features of the store and of the target's training images, whose labels are not read.

    Raises:
        CurateError, ShardError: one of them, or its features, cannot be read.
    """
    store, train = of_store(source, index, places, progress), target.splits["train"]
    if source.given is not None:
        return store, source.given.of(names_of(train), "target").values
    return store, source.encode(load_split(target, "train", source.decoder).pixels)
