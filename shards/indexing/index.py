"""The index of a shard set: a table with one row a sample, in reading order, with the byte offsets of each.

Builds it from all shards in parallel (`shards.indexing.scan` reads one), and selects parts of it. Its file is
`shards.indexing.index_file`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import BoolArray
from shards.errors import NotShards, ShardsChanged
from shards.faults import Fault
from shards.indexing.key_hashes import key_hashes
from shards.indexing.scan import Scan, Shard, scan_shard
from shards.indexing.schema import ROW
from shards.indexing.take_rows import SPAN, take_rows
from shards.io.folders import PassedOver
from shards.io.parallel import map_shards
from shards.io.shard_set import ShardSet, locate
from shards.io.spilled import spilled
from shards.tar.text_hashes import Hashes

FORMAT_VERSION = 1
SHARD = pa.field("shard", pa.dictionary(pa.int32(), pa.string()), nullable=False)
SCHEMA = pa.schema([SHARD, *ROW])
#: What was found of each shard but its rows, and how many of these there are.
Scans = list[tuple[Scan, int]]
#: Keys that occur in several shards are named one by one up to this many.
_MAX_NAMED = 1000


@dataclass(frozen=True)
class Index:
    """The samples of a shard set. A row number is a sample's position in ``table``.

    Args:
        root: folder or URL prefix of the shards.
        shards: in reading order, empty ones included.
        table: columns of `SCHEMA`, sorted by shard (in the order of ``shards``) and offset of the first member.
    """

    root: str
    shards: tuple[Shard, ...]
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def path(self, number: int) -> str:
        """Path or URL of shard ``number``."""
        return locate(self.root, self.shards[number].path)

    @cached_property
    def shard_numbers(self) -> npt.NDArray[np.int32]:
        """Shape (rows,), int32: the position in ``shards`` of each row's shard; non-decreasing."""
        if not len(self):
            return np.zeros(0, np.int32)
        paths = pa.array([shard.path for shard in self.shards], pa.string())
        column = self.table["shard"].unify_dictionaries()
        places = pc.index_in(column.chunk(0).dictionary, value_set=paths).to_numpy(zero_copy_only=False)
        codes = [chunk.indices.to_numpy() for chunk in column.chunks]
        held = codes[0] if len(codes) == 1 else np.concatenate(codes)
        return held if np.array_equal(places, np.arange(len(places))) else np.asarray(places[held], np.int32)

    def rows(self, number: int) -> range:
        """The rows of shard ``number``."""
        first, end = np.searchsorted(self.shard_numbers, [number, number + 1])
        return range(int(first), int(end))

    @cached_property
    def etags(self) -> dict[str, str]:
        """The ETag of each shard that is an object with one, by its URL."""
        return {locate(self.root, shard.path): shard.etag for shard in self.shards if shard.etag is not None}

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) of shards and rows: the same wherever the store lies, changed by any header, offset or image."""
        shards = [replace(shard, etag=None).record() for shard in self.shards]  # an ETag is the place's, not the bytes'
        digest = hashlib.sha256(json.dumps([FORMAT_VERSION, shards]).encode())
        for name in ("offset", "size", "image_offset", "image_size"):
            for chunk in self.table[name].chunks:
                column = pc.fill_null(chunk, -1).to_numpy()
                digest.update(np.ascontiguousarray(column, "<i8").data)
        return digest.hexdigest()


@dataclass(frozen=True)
class Report:
    """What indexing found.

    Args:
        shards, samples, bytes: counts, and the stored size.
        images: number by last suffix; with a check, of those that decode.
        faults: everything wrong, in order of shards.
        passed_over: what the folder holds besides its shards.
    """

    shards: int
    samples: int
    images: dict[str, int]
    bytes: int
    faults: tuple[Fault, ...]
    passed_over: PassedOver = field(default_factory=PassedOver)

    def record(self) -> dict[str, Any]:
        """The JSON form: ``shards``, ``samples``, ``images``, ``bytes``, ``faults``, ``passed_over``."""
        return {**asdict(self), "faults": [fault.record() for fault in self.faults]}


def build(
    shard_set: ShardSet, *, workers: int = 1, check: bool = False, image: str | None = None, skip_bad: bool = False
) -> tuple[Index, Report]:
    """Index a shard set from its tar headers, shards in parallel; the result does not depend on the number of workers.

    Args:
        check: also decode every image, and parse every ``.json``, ``.cls`` and text.
        image: extension of the image; None for the first image in tar order.
        skip_bad: leave out shards that are no tar.

    Raises:
        NotShards: shards that are no tar, all named; with ``skip_bad`` only where no other is left.
    """
    pa.array([0])  # pyarrow looks for pandas here, which takes long where it is: not a part of the first shard's work
    task = partial(scan_shard, shard_set.root, check=check, image=image)
    scans: Scans = []
    return joined(shard_set, rows_of(map_shards(task, shard_set.paths, workers), scans), scans, skip_bad=skip_bad)


def joined(
    shard_set: ShardSet, rows: Iterable[pa.RecordBatch], scans: Scans, *, skip_bad: bool = False
) -> tuple[Index, Report]:
    """The index that the scans of all shards make.

    Args:
        rows: of all shards, in their order; read once.
        scans: of all shards, when ``rows`` has been read.
        skip_bad: as `build`.

    Raises:
        NotShards: as `build`.
    """
    table = spilled(ROW, rows)
    refused = [one.faults[0] for one, _ in scans if one.shard is None]
    if refused and (not skip_bad or len(refused) == len(scans)):
        others = len(refused) < len(scans)
        todo = "fetch them again" + (", or index with --skip-bad-shards to go on without them" if others else "")
        raise NotShards(_all_named(refused), todo=todo)
    index = _join(shard_set.root, scans, table)
    images = sum((one.images for one, _ in scans), Counter())
    faults = [Fault("missing-shard", path, None, None, f"{path} does not exist") for path in shard_set.missing]
    faults += [
        Fault("unread-shard", path, None, None, f"{path} is not read: unpack it, or compress it with gzip")
        for path in shard_set.passed_over.unread
    ]
    faults += [
        Fault("passed-over", path, None, None, f"is a {what}, so nothing of it is in the index")
        for what, paths in shard_set.passed_over.places().items()
        for path in paths
    ]
    faults += [fault for one, _ in scans for fault in one.faults]
    faults += _duplicate_keys(index)
    n_bytes = sum(shard.size for shard in index.shards)
    counts = dict(sorted(images.items()))
    return index, Report(len(index.shards), len(index), counts, n_bytes, tuple(faults), shard_set.passed_over)


def select_shards(index: Index, paths: Sequence[str]) -> Index:
    """The part of an index that holds exactly the shards of ``paths``, in this order.

    A path that is not indexed must be no tar (skipped by `build` with ``skip_bad``).

    Raises:
        ShardsChanged: a tar that the index does not know.
        NotShards: the index knows none of them.
    """
    places = {shard.path: number for number, shard in enumerate(index.shards)}
    for path in paths:
        if path not in places and scan_shard(index.root, path, check=False, image=None).shard is not None:
            raise ShardsChanged("is not in the index of the store", shard=path, todo="index the shards again")
    numbers = [places[path] for path in paths if path in places]
    if not numbers:
        raise NotShards("none of these shards is a tar", shard=index.root, todo="fetch them again")
    if numbers == list(range(len(index.shards))):
        return index
    held = [index.rows(number) for number in numbers]
    shards = tuple(index.shards[number] for number in numbers)
    table = pa.concat_tables(index.table.slice(rows.start, len(rows)) for rows in held)
    column = shard_column(shards, _numbers([len(rows) for rows in held]))
    return Index(index.root, shards, table.set_column(0, SHARD, column))


def one_shard(index: Index, number: int) -> Index:
    """Shard ``number`` alone, its rows copied: of a slice all others would go to another process, too."""
    shards, rows = (index.shards[number],), index.rows(number)
    table = take_rows(index.table.drop_columns(["shard"]), np.arange(rows.start, rows.stop))
    return Index(index.root, shards, table.add_column(0, SHARD, shard_column(shards, np.zeros(len(rows), np.int32))))


def _all_named(refused: list[Fault]) -> str:
    named = ", ".join(f"{fault.shard}: {fault.detail}" for fault in refused)
    return named if len(refused) == 1 else f"{len(refused)} shards are no tars: {named}"


def rows_of(found: Iterable[Scan], scans: Scans) -> Iterator[pa.RecordBatch]:
    """The rows of every shard; all else that was found of it goes to ``scans``, with the number of its rows."""
    nothing = pa.RecordBatch.from_pylist([], ROW)
    for one in found:
        scans.append((replace(one, rows=nothing), one.rows.num_rows))
        yield one.rows


def _join(root: str, scans: Scans, rows: pa.Table) -> Index:
    """The rows of all shards, with one dictionary of all shard paths."""
    good = [(one.shard, n_rows) for one, n_rows in scans if one.shard is not None]
    shards = tuple(shard for shard, _ in good)
    numbers = _numbers([n_rows for _, n_rows in good])
    return Index(root, shards, rows.add_column(0, SHARD, shard_column(shards, numbers)))


def _numbers(counts: Sequence[int]) -> npt.NDArray[np.int32]:
    """The number of each row's shard, of which there are so many rows each."""
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def shard_column(shards: Sequence[Shard], numbers: npt.NDArray[np.int32]) -> pa.ChunkedArray:
    """The column ``shard``, with a dictionary of all shard paths.

    Args:
        numbers: shape (rows,), int32: the place in ``shards`` of each row's.
    """
    paths = pa.array([shard.path for shard in shards], pa.string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), paths)])


def _duplicate_keys(index: Index) -> Iterator[Fault]:
    """Keys that occur in several shards (within one shard a key occurs once)."""
    hashes = key_hashes(index.table["key"])
    doubtful = np.flatnonzero(_twice(hashes))
    if not doubtful.size:
        return
    table = take_rows(index.table.select(["shard", "key", "offset"]), doubtful)
    counts = pc.value_counts(table["key"])
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    named = twice.slice(0, _MAX_NAMED)
    places: dict[str, list[dict[str, Any]]] = {}
    for row in table.filter(pc.is_in(table["key"], value_set=named)).to_pylist():
        places.setdefault(row["key"], []).append(row)
    for key, where in places.items():
        shards = " and ".join(row["shard"] for row in where)
        yield Fault("duplicate-key", where[0]["shard"], key, where[0]["offset"], f"key {key!r} occurs in {shards}")
    if len(twice) > len(named):
        detail = f"{len(twice) - len(named)} more keys occur in several shards"
        yield Fault("duplicate-key", index.shards[0].path, None, None, detail)


def _twice(hashes: Hashes) -> BoolArray:
    """Shape (n,), bool: which occur again."""
    ordered = np.sort(hashes)
    again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    found = np.zeros(len(hashes), np.bool_)
    for start in range(0, len(hashes) if len(again) else 0, SPAN):
        block = hashes[start : start + SPAN]
        found[start : start + SPAN] = again[np.minimum(np.searchsorted(again, block), len(again) - 1)] == block
    return found
