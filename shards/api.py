"""The public calls of the package, under the names that `shards` gives them; the command line makes the same calls.

A shard set is named by a folder, a tar, a brace pattern, a list file or a URL. Whatever can go wrong is a
`shards.errors.Error` whose text is one line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from shards import store, stream
from shards.arrays import Int64Array
from shards.errors import Misuse
from shards.indexing import far_index, index_file, index_parts
from shards.indexing import index as indexes
from shards.indexing.index import Index, Report
from shards.indexing.index_parts import IndexPart
from shards.io import engine as engines
from shards.io import part as parts
from shards.io import remote, shard_set
from shards.io.json_files import write_json
from shards.io.mirror.place import filled, local
from shards.io.storage import clients
from shards.io.storage.clients import is_object
from shards.rewriting import clean as cleaning
from shards.rewriting import exports
from shards.rewriting import forecast as forecasts
from shards.rewriting import rewrite as rewriting
from shards.rewriting import verify as verifying
from shards.rewriting.clean import Leftovers
from shards.rewriting.finalize import RewriteSummary
from shards.rewriting.forecast import Forecast
from shards.rewriting.manifest import read_manifest

if TYPE_CHECKING:
    from shards.packing.decathlon.pack import DecathlonReport
    from shards.packing.idx import IdxReport
    from shards.packing.report import PackReport
    from shards.packing.stl10 import Stl10Report

PathLike = str | os.PathLike[str]


class ArrowStream(Protocol):
    """A table of another library: Polars, pandas, DuckDB and others export themselves this way."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def engine(name: Literal["local", "ray"], *, ray_address: str | None = None) -> AbstractContextManager[None]:
    """A block in which the tasks over shards of every call of both packages are run by an engine; same bytes by each.

    Args:
        name: ``local``, processes of this machine, as many as ``workers`` says; or ``ray``, a Ray cluster, all of it.
        ray_address: of the cluster; None for that in ``RAY_ADDRESS``, else one of this machine alone.

    Raises:
        Misuse: no such engine, or an address of none.
        ShardError: Ray is not installed, or no cluster answers.

    >>> with engine("ray", ray_address="auto"):        # doctest: +SKIP
    ...     index("store")
    """
    return engines.engine(name, ray_address)


def open_index(
    spec: PathLike,
    *,
    index: PathLike | None = None,
    image: str | None = None,
    workers: int = 1,
    allow_pipe: bool = False,
) -> Index:
    """The index of exactly the shards that are named, held against them; one that is not there is made in memory.

    Args:
        spec: the shard set.
        index: the index file, or its URL, where it is not in the shards' folder.
        image: extension of the image to use, where samples hold several.
        workers: processes that read headers.
        allow_pipe: whether ``spec`` may name a command.

    Returns:
        Its ``table`` has a row a sample in the order of the shards: ``shard, key, offset, size, image, ...``

    Raises:
        ShardError: no shards, a damaged index, or shards that changed since they were indexed.

    >>> open_index("store").table.slice(0, 5).to_pylist()        # doctest: +SKIP
    """
    path = None if index is None else place_of(index)
    return store.open_index(os.fspath(spec), path, workers, image, allow_pipe=allow_pipe)


def index(
    spec: PathLike,
    out: PathLike | None = None,
    *,
    check: bool = False,
    image: str | None = None,
    skip_bad: bool = False,
    workers: int = 1,
    allow_pipe: bool = False,
) -> tuple[Index, Report]:
    """Index a shard set, and write ``index.parquet`` and ``index.report.json``.

    Args:
        spec: the shard set.
        out: the index file, or its URL in an object store; None for `index_path`.
        check: also decode every image and parse every ``.json`` and ``.cls``.
        image: extension of the image to use, where samples hold several.
        skip_bad: leave out files that are no tar, instead of refusing all.
        workers: processes that read headers.
        allow_pipe: whether ``spec`` may name a command.

    Returns:
        The index, and what was counted and found at fault.

    Raises:
        Misuse: the shards are remote or their folder is not to be written to, and ``out`` is not given; or ``out`` is
            something else.
        NotShards: files that are no tars, every one named.

    >>> index("store", check=True)[1].faults        # doctest: +SKIP
    """
    named = shard_set.resolve(os.fspath(spec), allow_pipe=allow_pipe)
    path = _index_goes(named.root, spec, out)
    found, report = indexes.build(named, workers=workers, check=check, image=image, skip_bad=skip_bad)
    _write_index(found, report, path)
    return found, report


def index_part(
    spec: PathLike,
    part: str,
    out: PathLike | None = None,
    *,
    check: bool = False,
    image: str | None = None,
    workers: int = 1,
    allow_pipe: bool = False,
) -> IndexPart:
    """Scan a part of a shard set into a file beside where its index goes, for `join_index`; parts in any order.

    Args:
        spec, out, check, image, workers, allow_pipe: as `index`.
        part: ``I/N``, from ``1/N``; or ``slurm``, this task's place in its Slurm array.

    Raises:
        Misuse: as `index`; or there is no such part.

    >>> index_part("store", "3/16").samples        # doctest: +SKIP
    """
    own = parts.parse(part)
    named = shard_set.resolve(os.fspath(spec), allow_pipe=allow_pipe)
    folder = _part_folder(_index_goes(named.root, spec, out))
    return index_parts.write_part(named, own, folder, workers=workers, check=check, image=image)


def join_index(
    spec: PathLike, out: PathLike | None = None, *, skip_bad: bool = False, allow_pipe: bool = False
) -> tuple[Index, Report]:
    """The index of a shard set from the parts that `index_part` wrote, which are removed: the files of `index`.

    Args:
        spec, out, skip_bad, allow_pipe: as `index`.

    Raises:
        ShardError: a part is missing, damaged, of other shards, or made with other options.
        ShardsChanged: a shard is gone or has another size, or as an object another ETag, than when its part was made.
        Misuse, NotShards: as `index`.

    >>> join_index("store")[1].samples        # doctest: +SKIP
    """
    named = shard_set.resolve(os.fspath(spec), allow_pipe=allow_pipe)
    path = _index_goes(named.root, spec, out)
    folder = _part_folder(path)
    found, report = index_parts.join_parts(named, folder, skip_bad=skip_bad)
    _write_index(found, report, path)
    index_parts.remove_parts(folder)
    return found, report


def _part_folder(path: Path | str) -> Path:
    """Where the parts of an index lie; raises `Misuse` where that is no folder of a file system."""
    if isinstance(path, str):
        raise Misuse("parts lie in a file system", shard=path, todo="say where the index goes with --index FILE")
    return index_parts.folder_of(path)


def _index_goes(root: str, spec: PathLike, out: PathLike | None) -> Path | str:
    """The file or object that the index of a shard set becomes; raises `Misuse` as `index`."""
    if out is None and remote.is_url(root) and not is_object(root):
        raise Misuse(f"{os.fspath(spec)}: is remote; say where the index goes with --index FILE")
    path = index_path(root) if out is None else place_of(out)
    if isinstance(path, str):
        far_index.check_place(path)
        return path
    index_file.check_place(path)
    if out is None and not os.access(root, os.W_OK):
        raise Misuse(f"{root}: cannot be written to; say where the index goes with --index FILE")
    return path


def _write_index(found: Index, report: Report, path: Path | str) -> None:
    if isinstance(path, str):
        far_index.save(found, path, report.record())
        return
    index_file.save(found, path)
    write_json(report_path(path), report.record())


def index_path(root: PathLike) -> Path | str:
    """Where the index of a folder of shards lies, or goes: ``.curate/index.parquet`` in it; of a URL, a URL.

    An ``index.parquet`` in the folder itself, as earlier releases wrote it, comes first.
    """
    place = os.fspath(root)
    return far_index.beside(place) if is_object(place) else index_file.beside(Path(place))


def place_of(path: PathLike) -> Path | str:
    """A URL of an object store as it is, a path as a `Path`."""
    place = os.fspath(path)
    return place if is_object(place) else Path(place)


def report_path(index: Path) -> Path:
    """Where the report of an index lies: ``index.report.json`` beside ``index.parquet``."""
    return index.with_name(f"{index.stem}.report.json")


def samples(index: Index, rows: Int64Array | None = None) -> Iterator[dict[str, Any]]:
    """Whole samples as webdataset has them: ``{"__key__": ..., "jpg": bytes, ...}``, every member included.

    Args:
        rows: which, in this order; None for all.

    Raises:
        ShardsChanged: a shard is gone or shorter than its index says.

    >>> next(samples(open_index("store")))["__key__"]        # doctest: +SKIP
    """
    yield from stream.samples(index, np.arange(len(index)) if rows is None else np.asarray(rows, np.int64))


def rewrite(
    index: Index,
    manifest: pa.Table | ArrowStream | PathLike,
    out: PathLike,
    *,
    shard_size: int | None = None,
    rename: bool = False,
    undecodable: Literal["drop", "keep"] = "drop",
    workers: int = 1,
) -> RewriteSummary:
    """Copy the samples that a manifest names into new shards, byte for byte.

    An unfinished ``out`` is finished; one that the same call finished before is left as it is.

    Args:
        index: of the store.
        manifest: columns ``shard`` and ``key``: an Arrow table, a Polars or pandas frame, or a Parquet file.
        out: the folder of the curated shards, or its URL in an object store.
        shard_size: bytes of a shard; None for the store's median.
        rename: put the source shard before every key.
        undecodable: what becomes of samples whose image does not decode.
        workers: processes that copy.

    Raises:
        ShardError: the manifest does not fit the index, or keeps nothing.
        ShardsChanged: a shard is not the one that was indexed.
        NoSpace: the disk is too small.

    >>> rewrite(open_index("store"), "run/manifests/epoch=0012.parquet", "curated").counts        # doctest: +SKIP
    """
    options = rewriting.RewriteOptions(shard_size, workers, rename, undecodable)
    return rewriting.rewrite(index, table_of(manifest), place_of(out), options=options)


def forecast(
    index: Index,
    manifest: pa.Table | ArrowStream | PathLike,
    out: PathLike,
    *,
    shard_size: int | None = None,
    rename: bool = False,
    undecodable: Literal["drop", "keep"] = "drop",
) -> Forecast:
    """Bytes and requests of the same `rewrite`, counted from the index; no shard is read, and nothing written.

    Args:
        index, manifest, out, shard_size, rename, undecodable: as `rewrite`.

    Raises:
        ShardError: the manifest does not fit the index, or keeps nothing.

    >>> forecast(open_index("s3://b/store/"), "mine.parquet", "s3://b/curated").bytes_read        # doctest: +SKIP
    """
    options = rewriting.RewriteOptions(shard_size, 1, rename, undecodable)
    place = place_of(out)
    work = rewriting.make_plan(index, table_of(manifest), None, options)
    return forecasts.forecast(index, work, place)


def leftovers(url: str) -> Leftovers:
    """What a kill has left below a URL of an object store: uploads without an end, sets without a marker.

    Raises:
        Misuse: no such URL.
        NotShards: it cannot be listed.

    >>> leftovers("s3://b/curated").objects        # doctest: +SKIP
    """
    return cleaning.leftovers(url)


def clean(url: str) -> Leftovers:
    """Remove what `leftovers` finds, and return it. Nobody may be writing there: what is unfinished would go.

    Raises:
        Misuse, NotShards: as `leftovers`; something cannot be removed.

    >>> clean("s3://b/curated").uploads        # doctest: +SKIP
    """
    left = cleaning.leftovers(url)
    cleaning.remove(left)
    return left


def configure_storage(options: Mapping[str, str]) -> None:
    """Settings of object stores for this process, beside and before those of the environment.

    Args:
        options: as obstore names them, such as ``{"region": "eu-west-1", "skip_signature": "true"}``; one for a single
            service has its prefix, as ``aws_region`` has.

    >>> configure_storage({"skip_signature": "true"})        # doctest: +SKIP
    """
    clients.configure(options)


def verify(folder: PathLike, against: Index | None = None, *, workers: int = 1) -> list[str]:
    """Every fault of a folder of curated shards, a line each; none where it is what its marker says.

    Args:
        against: index of the store: the bytes of every sample are held against it, too.
        workers: processes that read.

    Raises:
        Unfinished: the folder has no marker.

    >>> verify("run/curated", open_index("store"))        # doctest: +SKIP
    []
    """
    return verifying.verify(place_of(folder), against, workers=workers)


def export(
    folder: PathLike,
    *,
    dali: bool = False,
    datacomp: bool = False,
    metadata_of: Index | None = None,
    further: pa.Table | None = None,
) -> list[Path]:
    """Write what other readers want beside the shards of a finished curated folder; returns what was written.

    Args:
        dali: a ``.idx`` file beside each tar, for NVIDIA DALI.
        datacomp: ``uids.npy``, for DataComp's resharder.
        metadata_of: index of the store; of the Parquet file beside each of its shards, as img2dataset writes it, the
            rows of the samples kept, in ``metadata/NAME.parquet`` for each curated ``NAME.tar``.
        further: columns joined to those, by the store's ``shard`` and ``key``.

    Raises:
        Unfinished: the folder has no marker.
        ShardError: a sample lacks what the format needs, or the folder was made of another store.

    >>> export("run/curated", dali=True)        # doctest: +SKIP
    """
    with filled(folder, without=() if dali or datacomp else ("*.tar",)) as at:
        return exports.export_for(at, dali=dali, datacomp=datacomp, metadata_of=metadata_of, further=further)


def pack_imagefolder(
    folder: PathLike,
    *,
    out: PathLike,
    target: bool = False,
    labels: PathLike | None = None,
    split: tuple[float, float, float] | None = None,
    group_by: str | None = None,
    seed: int = 0,
    shard_size: int | None = None,
    workers: int = 1,
    allow_missing: bool = False,
) -> PackReport:
    """Make shards of image files; their bytes stay as they are, what does not decode is left out.

    What lies beside an image and has its name (``x.txt``, ``x.json``), and what a Hugging Face ``metadata.csv`` says of
    it, goes along into its sample. ``.curate/names.parquet`` has the file of each sample. Stopped, the same call goes
    on.

    Args:
        folder: images at any depth; or a table (CSV, JSON lines, Parquet) with a column ``file`` of paths and URLs.
        out: the folder of shards, new or empty; it appears whole or not at all.
        target: make ``train/``, ``val/``, ``test/``, labelled, instead of a store. Labels are class folders; splits
            that are there as folders, above or below those of classes, are kept.
        labels: of a target: a table with columns ``file``, ``label`` and perhaps ``split``, instead of class folders.
        split: shares of train, val and test of a target, which sum to 1; None for 0.4, 0.2, 0.4, and for more in train
            of classes of fewer than 100 images: 40 of them, at most 70 %.
        group_by: what keeps images of a target in one split together: a regular expression, sought in the path, whose
            first bracket or whole match is the group; or a CSV or Parquet file with columns ``file`` and ``group``.
        seed: of the splits, and of the order within each.
        shard_size: bytes of a shard; None for 256 MiB.
        workers: processes that decode; the bytes do not depend on their number.
        allow_missing: leave out the files and URLs of a table that cannot be had.

    Raises:
        Misuse: ``out`` holds files or overlaps ``folder``; shares that are none, or of no target.
        ShardError: no image decodes, an image of a table cannot be had, no labels, or a class has fewer images than
            there are splits.

    >>> pack_imagefolder("photos", out="store").samples        # doctest: +SKIP
    {'': 1000}
    """
    from shards.packing import imagefolder

    for name, value in (("--labels", labels), ("--split", split), ("--group-by", group_by)):
        if value is not None and not target:
            raise Misuse(f"{name}: only with --target; add it, or leave {name} out")
    common: Any = {"shard_size": _shard_size(shard_size), "workers": workers, "allow_missing": allow_missing}
    if not target:
        return imagefolder.pack_folder(Path(folder), Path(out), **common)
    table = None if labels is None else Path(labels)
    return imagefolder.pack_target(
        Path(folder), Path(out), split=split, seed=seed, group_by=group_by, labels=table, **common
    )


def pack_idx(
    folders: Sequence[PathLike],
    *,
    out: PathLike,
    own: str,
    store_images: int | None = None,
    train_images: int | None = None,
    val_images: int | None = None,
    test_images: int | None = None,
    seed: int = 0,
    shard_size: int | None = None,
    workers: int = 1,
) -> IdxReport:
    """Make ``out``/store of the training images of several sets in MNIST's layout, and ``out``/target of one's own.

    Args:
        folders: a set each: ``train-images-idx3-ubyte`` and so on, compressed or not.
        out: new or empty; it appears whole or not at all. Stopped, the same call goes on.
        own: the set that is the target, by its folder's name.
        store_images: of each set, at most; None for all.
        train_images, val_images, test_images: of the target, at most; None for all.
        seed: of what is taken, and of the order.
        shard_size: bytes of a shard; None for 256 MiB.
        workers: processes that encode; the bytes do not depend on their number.

    Raises:
        Misuse, ShardError: as `shards.packing.idx.pack_idx`.

    >>> pack_idx(["idx/mnist", "idx/fashion-mnist"], own="mnist", out="mnist-task").store        # doctest: +SKIP
    """
    from shards.packing import idx

    take = idx.Limits(store_images, train_images, val_images, test_images)
    sets = [Path(folder) for folder in folders]
    size = _shard_size(shard_size)
    return idx.pack_idx(sets, own, Path(out), take=take, seed=seed, shard_size=size, workers=workers)


def pack_stl10(
    folder: PathLike,
    *,
    out: PathLike,
    fold: int | None = None,
    seed: int = 0,
    shard_size: int | None = None,
    workers: int = 1,
) -> Stl10Report:
    """Make ``out``/store of STL-10's unlabelled images and ``out``/target of its labelled ones, every pixel kept.

    Args:
        folder: the binary files: ``stl10_binary``, or a folder with it.
        out: new or empty; it appears whole or not at all. Stopped, the same call goes on.
        fold: train and val of this predefined fold only, from 0; None for all.
        seed: of the halves, and of the order.
        shard_size: bytes of a shard; None for 256 MiB.
        workers: processes that encode; the bytes do not depend on their number.

    Raises:
        Misuse, ShardError: as `shards.packing.stl10.pack_stl10`.

    >>> pack_stl10("stl10_binary", out="stl10").target        # doctest: +SKIP
    """
    from shards.packing import stl10

    size = _shard_size(shard_size)
    return stl10.pack_stl10(Path(folder), Path(out), fold=fold, seed=seed, shard_size=size, workers=workers)


def pack_decathlon(
    root: PathLike,
    *,
    out: PathLike,
    domains: Sequence[str] | None = None,
    source: str = "imagenet12",
    mix: Sequence[str] = (),
    labelled: Callable[[str], int | None] = lambda domain: None,
    groups: PathLike | None = None,
    seed: int = 0,
    shard_size: int | None = None,
    workers: int = 1,
) -> DecathlonReport:
    """Make ``out``/store and ``out``/targets/DOMAIN of the Visual Decathlon; image bytes stay as they are.

    Args:
        root: has ``annotations/``, and ``data/`` with a folder or a tar a domain.
        out: new or empty; it appears whole or not at all. Stopped, the same call goes on.
        domains: the targets; None for all with annotations and images.
        source: the domain whose training images are the store.
        mix: domains whose unused training images go into the store, too.
        labelled: of a domain's name: the number of images in train and val together; None for all there are.
            `curate.pack` takes as many as the paper.
        groups: a CSV or Parquet file with columns ``file`` and ``group`` (or ``source_path``, which tells the tracks of
            GTSRB and the writers of Omniglot): new splits of the same sizes in which groups are whole; None for the
            prescribed splits.
        seed: of the halves, and of the order.
        shard_size: bytes of a shard; None for 256 MiB.
        workers: processes that decode; the bytes do not depend on their number.

    Raises:
        Misuse, ShardError: as `shards.packing.decathlon.pack.pack_decathlon`.

    >>> pack_decathlon("decathlon-1.0", out="decathlon", domains=["gtsrb"]).targets        # doctest: +SKIP
    """
    from shards.packing.decathlon import pack

    return pack.pack_decathlon(
        Path(root),
        Path(out),
        targets=domains,
        source=source,
        mix=mix,
        labelled=labelled,
        seed=seed,
        shard_size=_shard_size(shard_size),
        groups=None if groups is None else Path(groups),
        workers=workers,
    )


def _shard_size(given: int | None) -> int:
    from shards.tar.writer import SHARD_SIZE

    return SHARD_SIZE if given is None else given


def table_of(manifest: pa.Table | ArrowStream | PathLike) -> pa.Table:
    """A manifest as an Arrow table.

    Raises:
        Misuse: it is none of the forms that `rewrite` takes.
        ShardError: there is no such file, or it is damaged.
    """
    if isinstance(manifest, pa.Table):
        return manifest
    if isinstance(manifest, str | os.PathLike):
        return read_manifest(local(manifest))
    if hasattr(manifest, "__arrow_c_stream__"):
        return pa.table(manifest)
    raise Misuse("is no manifest", expected="an Arrow table, a frame or a Parquet file", found=type(manifest).__name__)
