"""Reads samples of an indexed store in a given order, for training and for tools.

Local shards are read by seeking to the index's byte offsets, objects of object stores by byte ranges, gzip and other
remote shards sequentially, and these, too, by ranges where that is asked for. `shards.shuffle` computes the order, the
caller's ``load`` decodes the bytes. Batches come through webdataset's pipeline and torch's loader, which are imported
on call.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from itertools import groupby, islice
from threading import Lock
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa

from shards import shuffle
from shards.arrays import Int64Array
from shards.errors import Error, Misuse, NotShards, ShardError
from shards.indexing.index import Index
from shards.indexing.members import SampleMembers, bodies_at, bodies_in_shard, shard_members_by_key
from shards.io import processes, remote
from shards.io.byte_ranges import OpenShards, open_stream, read_ranges, uncompressed
from shards.io.shard_set import locate
from shards.io.storage import clients
from shards.io.storage.clients import is_object
from shards.member_names import RESERVED

Loaded = TypeVar("Loaded")

#: A sample as webdataset shapes it: ``__key__``, ``__url__``, ``__row__`` and one entry an extension, with bytes.
Sample = dict[str, Any]
#: A row and what the index says of it.
IndexRow = tuple[int, dict[str, Any]]
#: The members of a shard by key, for its location and name.
Walked = Callable[[str, str], dict[str, SampleMembers]]

_COLUMNS = ["shard", "key", "image", "image_offset", "image_size"]
_WHOLE_COLUMNS = ["shard", "key", "offset", "size", "extents"]
#: Samples behind a URL that one reader asks for before the first has come; rows that are looked up in an index at once.
_READS_AHEAD, _LOOKED_UP = 16, 256
#: Images of objects that are asked for together: a batch.
_FETCHED = 64
#: Bytes of objects that are asked for together, but for those of the last sample.
_FETCHED_BYTES = 64 << 20
#: Shards of which one reader keeps a list of members, where samples have hard links.
_WALKED = 8


def image_batches(
    index: Index, rows_of_batches: Sequence[Int64Array], load: Callable[[list[Sample]], Loaded], *, workers: int
) -> Generator[Loaded]:
    """Yield ``load(samples)`` for every batch, in the order given, whatever the number of workers.

    A sample has its image member and no other; one without an image has none. Close the generator to stop early.
    Gzip and remote shards are read once for every run of rows that stand together, so give them `shard_order`'s
    order and one worker.

    Args:
        rows_of_batches: int64 arrays of rows, one a batch.
        load: runs in the worker; gets the batch's samples in the order of its rows.
        workers: processes that read and load; 0 does both in this process.

    Raises:
        Misuse: ``workers`` is negative.
        ShardsChanged: a shard is gone or shorter than its index says.
        ShardError: a shard cannot be read, a worker cannot be started or was killed, or a batch was lost.
    """
    if workers < 0:
        raise Misuse("the number of workers", expected="at least 0", found=workers, todo="give --workers 0 or more")
    loader = _loader(index, rows_of_batches, load, workers)
    try:
        for number in range(len(rows_of_batches)):
            with processes.awaiting_workers():
                found = next(loader, None)
            loaded = pickle.loads(found) if isinstance(found, bytes) else found
            if isinstance(loaded, ShardError):
                raise loaded
            if loaded is None or loaded[0] != number:
                raise _lost(number, loaded)
            yield loaded[1]
    finally:
        del loader  # ends the workers, too


def _loader(
    index: Index, rows_of_batches: Sequence[Int64Array], load: Callable[[list[Sample]], Loaded], workers: int
) -> Iterator[Any]:
    """The iterator over what `_load` yields, batch after batch; pickled where a worker made it."""
    import webdataset

    reading = partial(_batches_of_worker, index, rows_of_batches)
    pipeline = webdataset.DataPipeline(reading, partial(_load, load), *([_pickled] if workers else []))
    begin = partial(_init_worker, clients.configured()) if workers else None
    # A process that was forked from one with clients of an object store has none that work.
    context = "spawn" if workers and is_object(index.root) else None
    loader = webdataset.WebLoader(
        pipeline,
        batch_size=None,
        num_workers=workers,
        collate_fn=_unchanged,
        worker_init_fn=begin,
        multiprocessing_context=context,
    )
    with processes.starting_workers():
        started: Iterator[Any] = iter(loader.pipeline[0])  # torch's own, which starts its workers here and now
    return started


def _init_worker(options: dict[str, str], *_: object) -> None:
    processes.init_worker()
    clients.configure(options)


def _lost(number: int, found: tuple[int, Any] | None) -> ShardError:
    what = "the end" if found is None else f"batch {found[0]}"
    todo = "run the same command again, with --workers 0 if it stays so"
    return ShardError("the loader lost a batch", expected=f"batch {number}", found=what, todo=todo)


def images(index: Index, rows: Int64Array) -> Iterator[bytes]:
    """Yield the image of each of ``rows``, in this order, in this process and without torch; none is no bytes.

    Raises:
        ShardsChanged: a shard is gone or shorter than its index says.
    """
    with OpenShards(etags=index.etags) as files:
        for sample in _image_samples(index, _index_rows(index, [rows]), files):
            yield next((bytes(body) for name, body in sample.items() if name not in RESERVED), b"")


def samples(index: Index, rows: Int64Array) -> Iterator[Sample]:
    """Yield whole samples, all members included, in the order of ``rows``.

    The last of two members with one extension counts; a sparse member is left out; a hard link has its target's bytes.

    Raises:
        ShardsChanged: a shard is gone or shorter than its index says.
    """
    whole, walked = _whole_shards(index), _walked(index)
    with OpenShards(etags=index.etags) as files:
        for shard, run in groupby(_whole_rows(index, [rows]), key=lambda line: str(line[1]["shard"])):
            location = locate(index.root, shard)
            if shard in whole:
                held = list(run)
                keys = [line["key"] for _, line in held]
                found = bodies_in_shard(location, shard, keys, index.etags.get(location))
                yield from (
                    dict(has) | _new_sample(index, line, row) for has, (row, line) in zip(found, held, strict=True)
                )
            else:
                yield from _ranged_samples(index, run, files, walked)


def _ranged_samples(index: Index, lines: Iterator[IndexRow], files: OpenShards, walked: Walked) -> Iterator[Sample]:
    """Whole samples by their byte ranges; of objects those of several samples are asked for at once."""
    while some := _some(lines, "size", _LOOKED_UP):
        places = [locate(index.root, line["shard"]) for _, line in some]
        files.fetch(
            (place, extent["offset"], extent["size"])
            for place, (_, line) in zip(places, some)
            for extent in line["extents"] or [line]
        )
        for place, (row, line) in zip(places, some):
            yield dict(bodies_at(place, line, files, walked)) | _new_sample(index, line, row)


def samples_by_range(index: Index, parts: Iterable[Int64Array]) -> Iterator[Sample]:
    """Yield whole samples as `samples` does, and read nothing else: of a shard behind a URL, too, only their bytes.

    Several samples behind URLs are under way at a time, those of local shards come one by one.

    Args:
        parts: arrays of rows, read one after the other; taken as they are needed, so they may be made on the way.

    Raises:
        ShardsChanged: a shard is gone or shorter than its index says.
        NotShards: a URL cannot be read, or its server knows no byte ranges.
    """
    walked, one_at_a_time = _walked(index), Lock()
    far = any(remote.is_url(locate(index.root, shard.path)) for shard in index.shards)

    def read(line: IndexRow) -> Sample:
        location = locate(index.root, line[1]["shard"])
        with nullcontext() if remote.is_url(location) else one_at_a_time:  # open files are of no use to two threads
            return dict(bodies_at(location, line[1], files, walked)) | _new_sample(index, line[1], line[0])

    with OpenShards(etags=index.etags) as files:
        lines = _whole_rows(index, parts)
        if is_object(index.root):
            yield from _ranged_samples(index, lines, files, walked)
        else:
            yield from _read_ahead(read, lines) if far else map(read, lines)


def check_ranges(index: Index) -> None:
    """Refuse an index with samples that `samples_by_range` cannot read.

    Raises:
        ShardError: a shard that is compressed, or comes out of a command; the first is named.
    """
    for number in np.unique(index.shard_numbers).tolist():
        shard, location = index.shards[number], index.path(number)
        if shard.gzip or remote.is_pipe(location):
            why = "is compressed" if shard.gzip else "comes out of a command"
            todo = "unpack it and index it again" if shard.gzip else "name the shards by a path or another URL"
            raise ShardError(f"{why}, so no sample can be read by itself", shard=location, todo=todo)


def _read_ahead(read: Callable[[IndexRow], Sample], lines: Iterable[IndexRow]) -> Iterator[Sample]:
    """``map(read, lines)`` with some calls under way in threads."""
    pool, waiting = ThreadPoolExecutor(_READS_AHEAD), deque[Future[Sample]]()
    try:
        for line in lines:
            waiting.append(pool.submit(read, line))
            if len(waiting) > _READS_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def is_streamed(index: Index) -> bool:
    """Whether any shard of the store can only be read sequentially: gzip, or behind a URL that is no object's."""
    return bool(_whole_shards(index))


def streamed_order(index: Index, rows: Int64Array, seed: int, epoch: int) -> Int64Array:
    """`shard_order` of the given rows of a store with sequential shards.

    Shards without a row in ``rows`` are never opened; the images of one shard are held in memory at a time.
    """
    return shuffle.shard_order(rows, index.shard_numbers[rows], seed, epoch)


def _batches_of_worker(index: Index, rows_of_batches: Sequence[Int64Array]) -> Iterator[tuple[int, list[Sample]]]:
    """The source stage of a worker w of W: batches w, w + W, w + 2W ..., which the loader interleaves again."""
    from webdataset.utils import pytorch_worker_info

    _, _, worker, workers = pytorch_worker_info()
    mine = range(worker, len(rows_of_batches), workers)
    with OpenShards(etags=index.etags) as files:
        lines = _index_rows(index, [rows_of_batches[number] for number in mine])
        stream = _image_samples(index, _fetched(index, lines, files), files)
        for number in mine:
            yield number, list(islice(stream, len(rows_of_batches[number])))


def _load(
    load: Callable[[list[Sample]], Loaded], batches: Iterable[tuple[int, list[Sample]]]
) -> Iterator[tuple[int, Loaded] | Error]:
    """The decoding stage. Errors travel as values, as torch's loader would bury them in a traceback's text."""
    try:
        for number, batch in batches:
            yield number, load(batch)
    except Error as error:
        yield error
    except OSError as error:
        yield ShardError(f"cannot be read ({error.strerror or error})", shard=error.filename)


def _pickled(results: Iterable[object]) -> Iterator[bytes]:
    """The last stage of a worker. Bytes go through its pipe; the loader would put tensors into shared memory, of which
    a container has little, and would drop a batch that finds no room there."""
    for result in results:
        yield pickle.dumps(result, pickle.HIGHEST_PROTOCOL)


def _unchanged(loaded: Loaded) -> Loaded:
    """The collate function: none, as ``load`` has collated the batch."""
    return loaded


def _index_rows(index: Index, parts: Iterable[Int64Array], columns: Sequence[str] = _COLUMNS) -> Iterator[IndexRow]:
    table = index.table.select(columns)
    for rows in parts:
        yield from zip(rows.tolist(), table.take(pa.array(rows, pa.int64())).to_pylist())


def _whole_rows(index: Index, parts: Iterable[Int64Array]) -> Iterator[IndexRow]:
    """What the index says of whole samples; few at a time, as their list takes many times the memory of the rows."""
    few = (part[at : at + _LOOKED_UP] for part in parts for at in range(0, len(part), _LOOKED_UP))
    return _index_rows(index, few, _WHOLE_COLUMNS)


def _some(lines: Iterator[IndexRow], size: str, at_most: int) -> list[IndexRow]:
    """The next rows, until they are so many, or what is read for them takes `_FETCHED_BYTES`."""
    some: list[IndexRow] = []
    n_bytes = 0
    while len(some) < at_most and n_bytes < _FETCHED_BYTES and (line := next(lines, None)) is not None:
        some.append(line)
        n_bytes += line[1][size] or 0
    return some


def _fetched(index: Index, lines: Iterator[IndexRow], files: OpenShards) -> Iterator[IndexRow]:
    """The same rows; the images of those in objects are asked for together, some rows at a time."""
    if not is_object(index.root):
        yield from lines
        return
    whole = _whole_shards(index)
    while some := _some(lines, "image_size", _FETCHED):
        held = (line for _, line in some if line["image"] is not None and line["shard"] not in whole)
        files.fetch((locate(index.root, line["shard"]), line["image_offset"], line["image_size"]) for line in held)
        yield from some


def _image_samples(index: Index, lines: Iterable[IndexRow], files: OpenShards) -> Iterator[Sample]:
    streamed = _whole_shards(index)
    for shard, run in groupby(lines, key=lambda line: str(line[1]["shard"])):
        location = locate(index.root, shard)
        if shard in streamed:
            yield from _read_through(index, location, list(run))
            continue
        for row, line in run:
            sample = _new_sample(index, line, row)
            if line["image"] is not None:
                body = files.read(location, line["image_offset"], line["image_size"])
                sample[line["image"].lower()] = body
            yield sample


def _read_through(index: Index, location: str, run: list[IndexRow]) -> Iterator[Sample]:
    """The samples of several rows of one shard, which is read sequentially up to their last image."""
    found = [_new_sample(index, line, row) for row, line in run]
    with_image = [place for place, (_, line) in enumerate(run) if line["image"] is not None]
    with_image.sort(key=lambda place: run[place][1]["image_offset"])
    offsets = [run[place][1]["image_offset"] for place in with_image]
    sizes = [run[place][1]["image_size"] for place in with_image]
    if with_image:
        with _open_stream(location, index.etags.get(location)) as stream:
            for place, body in zip(with_image, read_ranges(stream, location, offsets, sizes), strict=True):
                found[place][run[place][1]["image"].lower()] = body
    yield from found


def _walked(index: Index) -> Walked:
    """The members of a store's shards by key, those of a few kept."""

    def walk(location: str, shard: str) -> dict[str, SampleMembers]:
        return shard_members_by_key(location, shard, index.etags.get(location))

    return lru_cache(_WALKED)(walk)


def _whole_shards(index: Index) -> frozenset[str]:
    """Paths of the shards of which no part can be asked for, or not as a rule."""
    return frozenset(
        shard.path
        for shard in index.shards
        if shard.gzip or (remote.is_url(place := locate(index.root, shard.path)) and not is_object(place))
    )


def _new_sample(index: Index, line: dict[str, Any], row: int) -> Sample:
    return {"__key__": line["key"], "__url__": locate(index.root, line["shard"]), "__row__": row}


@contextmanager
def _open_stream(location: str, etag: str | None) -> Iterator[BinaryIO]:
    """Open a shard by webdataset's reader where that knows the URL's scheme, else by `byte_ranges.open_stream`.

    webdataset's reader runs ``pipe:`` commands; `shard_set.resolve` has decided whether they are allowed. http(s) is
    read by `shards.io.remote`: webdataset's own takes braces in a URL for a pattern, and has no timeout.
    """
    from webdataset.gopen import Pipe, gopen, gopen_schemes

    own_schemes = ("http", "https", "file")
    scheme = location.partition(":")[0]
    ours = not remote.is_url(location) or is_object(location) or scheme in own_schemes
    if ours or scheme not in gopen_schemes:
        with open_stream(location, etag) as stream:
            yield stream
        return
    source = gopen(location)
    try:
        yield uncompressed(source)
    except OSError as error:
        raise NotShards(f"cannot be read ({error})", shard=location, todo="try the command or URL by hand") from error
    finally:
        if isinstance(source, Pipe):
            source.ignore_errors = True  # a command cut short because all that was wanted is read is no fault
        source.close()
