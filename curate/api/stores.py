"""Stores: packed, described by features, read as a subset, written for other readers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.api.beliefs import manifest_of
from curate.api.paths import path_of
from curate.errors import Misuse
from shards.io.mirror.place import child, filled, is_elsewhere, local, parent

if TYPE_CHECKING:
    import pyarrow as pa

    from curate.api.paths import PathLike
    from curate.config.packers import PackReport
    from curate.data.subset import Subset
    from curate.progress import Progress
    from curate.runs.features import FeatureSummary
    from curate.runs.opened import Run
    from shards.api import ArrowStream
    from shards.indexing.index import Index


def pack(
    packer: str,
    source: PathLike | Sequence[PathLike],
    /,
    *,
    out: PathLike,
    seed: int = 0,
    shard_size: int | None = None,
    **options: Any,
) -> PackReport:
    """Make shards of a kind of data, by the name of its packer; those of plug-ins are known, too.

    Args:
        packer: imagefolder, idx, stl10, decathlon, or one that was registered.
        source: what is packed; several where the packer takes several.
        out: new or empty; it appears whole or not at all.
        seed: of splits and orders.
        shard_size: bytes of a shard; None for 256 MiB.
        options: of ``curate pack PACKER``, with underscores. `shards.pack_imagefolder` and its like have them typed.

    Returns:
        What was packed and left out, by packer; its ``text()`` is for people.

    Raises:
        Misuse: an unknown packer or option, or ``out`` holds files.
        ShardError: what lies there is not of the packer's layout.

    >>> pack("imagefolder", "photos", out="store").samples        # doctest: +SKIP
    """
    from curate.experiments.packing import pack as by_name

    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    with filled(out, without=("*.tar",)) as folder:
        return by_name(packer, [local(one) for one in sources], folder, seed, shard_size, options)


def features(
    shards: PathLike,
    *,
    encoder: str = "untrained",
    nets: int = 3,
    calibrate: PathLike | None = None,
    index: PathLike | None = None,
    out: PathLike | None = None,
    workers: int | None = None,
    device: str = "auto",
    part: str | None = None,
    progress: Progress | None = None,
) -> FeatureSummary:
    """Compute features of every image once; selectors use them again and again.

    Args:
        shards: a shard set, or a folder or list of image files.
        encoder: of `curate.config.catalogue.ENCODERS`, with what it needs after a colon.
        nets: networks of the untrained encoder, 1 to 3.
        calibrate: for a target: the store that the untrained networks are measured on.
        index: of the shards, where it is not in their folder.
        out: folder; None for ``features`` beside the shards, behind a URL, too.
        part: of a store, the shards that are looked at: ``I/N``, from ``1/N``; or ``slurm``, this task's place in its
            Slurm array. Parts in any order, on any machines, come to the same files as one call.

    Raises:
        Misuse: there is no such part, or image files are to be parted.
        CurateError, ShardError: the shards or the encoder cannot be read.

    >>> features("store", encoder="untrained").images_per_second        # doctest: +SKIP
    """
    from curate.config.schema import MachineConfig
    from curate.data.photos import photos_at
    from curate.progress import NullProgress
    from curate.runs.features import Choice, features_of_photos
    from curate.runs.features import features as compute
    from curate.runs.threads import computing
    from curate.selection.feature_files import FOLDER
    from shards import api as shards_api
    from shards.io.part import parse

    other = shards_api.open_index(calibrate) if calibrate is not None else None
    choice, machine = Choice(encoder, nets), MachineConfig(device=device, workers=workers)
    progress, photos = progress or NullProgress(), photos_at(os.fspath(shards))
    some = None if part is None else parse(part)
    if photos and some is not None:
        raise Misuse(f"--part {some}: only of shards; leave it out for image files")
    store = None if photos else shards_api.open_index(shards, index=index)
    if out is None and store is not None and is_elsewhere(store.root):
        out = child(store.root, FOLDER)
    with nullcontext() if out is None else filled(out) as folder, computing(None, progress.note):
        if photos:
            return features_of_photos(photos, choice, folder, machine, other)
        assert store is not None
        return compute(store, choice, folder, machine, other, progress, some)


def subset(
    index: Index,
    manifest: Run | pa.Table | ArrowStream | PathLike,
    weights: str | None = None,
    *,
    seed: int = 0,
    batch: int = 1,
    rank: int | None = None,
    ranks: int | None = None,
) -> Subset:
    """Read the kept samples straight from the store's own shards, in torch: a subset without a second copy.

    Each sample is read by its own byte range, of local shards and of those behind a URL.

    Args:
        index: of the store.
        manifest: columns ``shard`` and ``key``: an Arrow table, a Polars or pandas frame, or a Parquet file. Of
            ``weights.parquet``, or an epoch of the ledger, the lines whose ``kept`` is true count. A run stands for its
            last manifest, and with ``weights`` for its ``weights.parquet``.
        weights: a column of it, such as ``mean``: an epoch has as many samples as are kept, drawn in proportion to it,
            so that each comes floor or ceil of its expected count. None for every one once.
        seed: of the order of each epoch, and of its draw.
        batch: the loader's batch size: then its batches are the same for any number of workers, and a count of steps
            says where an epoch stands.
        rank, ranks: of this process; None for what torch.distributed, or the environment, has.

    Returns:
        An `IterableDataset` of ``{"__key__", "__url__", "__row__", "jpg", ...}``, for a torch loader or as the first
        stage of a webdataset pipeline.

    Raises:
        ShardError: the table does not fit the index, keeps nothing, or has no such weights; a shard is compressed.
        Misuse: a number out of its range.

    >>> len(subset(shards.open_index("store"), "run/weights.parquet", "mean"))        # doctest: +SKIP
    """
    from curate.data.subset import subset as open_subset
    from shards.api import table_of

    return open_subset(index, table_of(_table_named(manifest, weights)), weights, seed, batch, rank, ranks)


def _table_named(manifest: Run | pa.Table | ArrowStream | PathLike, weights: str | None) -> Any:
    """A manifest as it was given; of a run, its table of what was kept."""
    from curate.runs.opened import Run as Opened

    if not isinstance(manifest, Opened | str | os.PathLike):
        return manifest
    at = path_of(manifest)
    if not (at / "run.json").is_file():
        return at
    return manifest_of(at) if weights is None else at / "weights.parquet"


def export(
    folder: PathLike,
    *,
    dali: bool = False,
    datacomp: bool = False,
    metadata: bool = False,
    run: Run | PathLike | None = None,
) -> list[Path]:
    """As `shards.export`, and with what a run believes: write what other readers want beside curated shards.

    Args:
        dali: a ``.idx`` file beside each tar, for NVIDIA DALI.
        datacomp: ``uids.npy``, for DataComp's resharder.
        metadata: of the Parquet file beside each shard of the store, as img2dataset writes it, the rows of what was
            kept, with ``weight``, ``a``, ``b`` and ``kept``: ``metadata/NAME.parquet`` for each curated ``NAME.tar``.
        run: that judged the images; None for the one that ``folder`` lies in.

    Returns:
        The paths written.

    Raises:
        Misuse: ``folder`` lies in no run and none is given, or one is given without ``metadata``.
        CurateError: the run has no epoch yet.
        ShardError: a sample lacks what the format needs, or the store has no such metadata.

    >>> export("run/curated", metadata=True)        # doctest: +SKIP
    """
    import shards
    from curate.runs.run_store import run_of, store_and_weights

    if run is not None and not metadata:
        raise Misuse("--run: only with --metadata; add it, or leave --run out")
    if not metadata:
        return shards.export(folder, dali=dali, datacomp=datacomp)
    if run is None:
        run = run_of(path_of(parent(folder)) / "curated" if is_elsewhere(folder) else Path(folder))
    store, weights = store_and_weights(path_of(run))
    return shards.export(folder, dali=dali, datacomp=datacomp, metadata_of=store, further=weights)
