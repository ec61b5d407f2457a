"""The index of a shard set: a table with one row a sample, in reading order, with the byte offsets of each.

Builds it from all shards in parallel (`shards.indexing.scan` reads one), and selects parts of it. Its file is
`shards.indexing.index_file`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shards.errors import NotShards, ShardsChanged
from shards.faults import Fault
from shards.indexing.scan import Scan, Shard, scan_shard
from shards.indexing.schema import ROW
from shards.io.folders import PassedOver
from shards.io.parallel import map_shards
from shards.io.shard_set import ShardSet, locate

__all__ = ["Index", "Report", "Shard", "build", "select_shards"]

FORMAT_VERSION = 1
SHARD = pa.field("shard", pa.dictionary(pa.int32(), pa.string()), nullable=False)
SCHEMA = pa.schema([SHARD, *ROW])
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
        paths = pa.array([shard.path for shard in self.shards], pa.string())
        column = self.table["shard"].unify_dictionaries().combine_chunks()
        places = pc.index_in(column.dictionary, value_set=paths).to_numpy(zero_copy_only=False)
        return np.asarray(places[column.indices.to_numpy()], np.int32) if len(self) else np.zeros(0, np.int32)

    def rows(self, number: int) -> range:
        """The rows of shard ``number``."""
        first, end = np.searchsorted(self.shard_numbers, [number, number + 1])
        return range(int(first), int(end))

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) of shards and rows: the same wherever the store lies, changed by any header, offset or image."""
        digest = hashlib.sha256(json.dumps([FORMAT_VERSION, [asdict(shard) for shard in self.shards]]).encode())
        for name in ("offset", "size", "image_offset", "image_size"):
            column = pc.fill_null(self.table[name], -1).to_numpy()
            digest.update(np.ascontiguousarray(column, "<i8").tobytes())
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
    scans = list(map_shards(task, shard_set.paths, workers))
    refused = [one.faults[0] for one in scans if one.shard is None]
    if refused and (not skip_bad or len(refused) == len(scans)):
        raise NotShards(_all_named(refused), todo="fetch them again, or pass --skip-bad-shards to go on without them")
    index = _join(shard_set.root, scans)
    images = sum((one.images for one in scans), Counter())
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
    faults += [fault for one in scans for fault in one.faults]
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
    table = index.table.take(pa.array(np.concatenate([np.arange(rows.start, rows.stop) for rows in held])))
    return Index(index.root, shards, table.set_column(0, SHARD, _shard_column(shards, [len(rows) for rows in held])))


def _all_named(refused: list[Fault]) -> str:
    named = ", ".join(f"{fault.shard}: {fault.detail}" for fault in refused)
    return named if len(refused) == 1 else f"{len(refused)} shards are no tars: {named}"


def _join(root: str, scans: list[Scan]) -> Index:
    """Concatenate the rows of all shards, with one dictionary of all shard paths."""
    good = [(one.shard, one.rows) for one in scans if one.shard is not None]
    shards = tuple(shard for shard, _ in good)
    table = pa.Table.from_batches([rows for _, rows in good], ROW).combine_chunks()
    return Index(root, shards, table.add_column(0, SHARD, _shard_column(shards, [rows.num_rows for _, rows in good])))


def _shard_column(shards: Sequence[Shard], counts: Sequence[int]) -> pa.ChunkedArray:
    """The column ``shard``, with a dictionary of all shard paths."""
    numbers = np.repeat(np.arange(len(shards), dtype=np.int32), counts)
    paths = pa.array([shard.path for shard in shards], pa.string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(numbers), paths)])


def _duplicate_keys(index: Index) -> Iterator[Fault]:
    """Keys that occur in several shards (within one shard a key occurs once)."""
    counts = pc.value_counts(index.table["key"])
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(twice) == 0:
        return
    named = twice.slice(0, _MAX_NAMED)
    rows = index.table.filter(pc.is_in(index.table["key"], value_set=named)).select(["shard", "key", "offset"])
    places: dict[str, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        places.setdefault(row["key"], []).append(row)
    for key, where in places.items():
        shards = " and ".join(row["shard"] for row in where)
        yield Fault("duplicate-key", where[0]["shard"], key, where[0]["offset"], f"key {key!r} occurs in {shards}")
    if len(twice) > len(named):
        detail = f"{len(twice) - len(named)} more keys occur in several shards"
        yield Fault("duplicate-key", index.shards[0].path, None, None, detail)
