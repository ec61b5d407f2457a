"""The index of a shard set: one row a sample, in reading order, with the place of its bytes.

Owns the table, its file (Parquet, the set described in the footer), and the comparison with the shards as they are.
How one shard becomes rows is `shards.scan`'s. The format is described in FORMAT.md.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shards import remote
from shards.errors import NotShards, ShardError, ShardsChanged
from shards.faults import Fault
from shards.names import ShardSet, locate
from shards.publish import publishing
from shards.rows import ROW
from shards.scan import Scan, Shard, scan, state
from shards.tasks import map_shards

__all__ = ["Index", "Report", "Shard", "build", "compare", "load", "save"]

FORMAT_VERSION = 1
FILE_NAME = "index.parquet"
SHARD = pa.field("shard", pa.dictionary(pa.int32(), pa.string()), nullable=False)
SCHEMA = pa.schema([SHARD, *ROW])
_FOOTER = b"curate.index"
#: Keys that occur in several shards are named one by one up to this many.
_MOST_NAMED = 1000


@dataclass(frozen=True)
class Index:
    """The samples of a shard set; a row is a sample's place in ``table``.

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
        """The path or URL under which shard ``number`` is opened."""
        return locate(self.root, self.shards[number].path)

    @cached_property
    def shard_numbers(self) -> npt.NDArray[np.int32]:
        """Shape (rows,): the place in ``shards`` of each row's shard; never falls."""
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
        """sha256 over shards and rows: the same wherever the store lies, another where a header or a choice differs."""
        digest = hashlib.sha256(json.dumps([FORMAT_VERSION, [asdict(shard) for shard in self.shards]]).encode())
        for name in ("offset", "size", "image_offset", "image_size"):
            column = pc.fill_null(self.table[name], -1).to_numpy()
            digest.update(np.ascontiguousarray(column, "<i8").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Report:
    """What was found while indexing: counts, images by last suffix (with a check: those that decode), and faults."""

    shards: int
    samples: int
    images: dict[str, int]
    bytes: int
    faults: tuple[Fault, ...]

    def record(self) -> dict[str, Any]:
        """The JSON form: ``shards``, ``samples``, ``images``, ``bytes``, ``faults``."""
        return {**asdict(self), "faults": [fault.record() for fault in self.faults]}


def build(
    shard_set: ShardSet, *, workers: int = 1, check: bool = False, image: str | None = None, skip_bad: bool = False
) -> tuple[Index, Report]:
    """Index a shard set by reading its headers, the shards in parallel; the same for any number of workers.

    Args:
        check: also decode every image, and parse every ``.json`` and ``.cls``.
        image: the extension that is the image; None takes the first image in tar order.
        skip_bad: leave out shards that are no tar at all.

    Raises:
        NotShards: shards that are no tar at all, every one named; with ``skip_bad`` only where nothing else is left.
    """
    task = partial(scan, shard_set.root, check=check, image=image)
    scans = list(map_shards(task, shard_set.paths, workers))
    refused = [one.faults[0] for one in scans if one.shard is None]
    if refused and (not skip_bad or len(refused) == len(scans)):
        raise NotShards(_all_named(refused), todo="fetch them again, or pass --skip-bad-shards to go on without them")
    index = _join(shard_set.root, scans)
    images = sum((one.images for one in scans), Counter())
    faults = [Fault("missing-shard", path, None, None, f"{path} does not exist") for path in shard_set.missing]
    faults += [fault for one in scans for fault in one.faults]
    faults += _duplicate_keys(index)
    n_bytes = sum(shard.size for shard in index.shards)
    return index, Report(len(index.shards), len(index), dict(sorted(images.items())), n_bytes, tuple(faults))


def save(index: Index, path: Path) -> None:
    """Write an index. Where it lies in the root of its shards, it names them relative to itself, and so can move."""
    with publishing(path) as file:
        write(index, file, path.parent)


def write(index: Index, file: BinaryIO, folder: Path) -> None:
    """Write the bytes of an index that is going to lie in ``folder``."""
    inside = not remote.is_url(index.root) and folder.resolve() == Path(index.root).resolve()
    footer = {
        "version": FORMAT_VERSION,
        "tool": f"curate-bdw {version('curate-bdw')}",
        "root": "." if inside else index.root,
        "shards": [asdict(shard) for shard in index.shards],
    }
    table = index.table.combine_chunks().replace_schema_metadata({_FOOTER: json.dumps(footer).encode()})
    pq.write_table(table, file, compression="zstd", row_group_size=1 << 20)


def load(path: Path, root: str | None = None) -> Index:
    """Read an index.

    Args:
        root: where its shards are now, if they moved.

    Raises:
        ShardError: there is none, it is cut, no index, or of a version that this reader does not know.
    """
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise ShardError("no such index", shard=str(path), todo="make it with 'curate index'") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise ShardError(
            f"not a whole Parquet file ({error})", shard=str(path), todo="index the shards again"
        ) from error
    metadata = table.schema.metadata or {}
    if _FOOTER not in metadata:
        raise ShardError("not an index of shards", shard=str(path), expected="a footer 'curate.index'", found="none")
    footer = _read_footer(metadata[_FOOTER], path)
    place = root or (str(path.parent.resolve()) if footer["root"] == "." else footer["root"])
    shards = tuple(Shard(**shard) for shard in footer["shards"])
    return Index(place, shards, table.replace_schema_metadata(None).select(SCHEMA.names).cast(SCHEMA))


def _read_footer(text: bytes, path: Path) -> dict[str, Any]:
    try:
        footer: dict[str, Any] = json.loads(text)
        found = footer["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ShardError("its footer cannot be read", shard=str(path), todo="index the shards again") from error
    if found != FORMAT_VERSION:
        todo = "index the shards again"
        raise ShardError("unknown index format", shard=str(path), expected=FORMAT_VERSION, found=found, todo=todo)
    return footer


def compare(index: Index, *, workers: int = 1) -> None:
    """Make sure that the shards are those that were indexed: same sizes, same headers.

    Raises:
        ShardsChanged: the first shard that is not.
    """
    for shard, found in zip(index.shards, map_shards(partial(_state, index.root), index.shards, workers)):
        if found != (shard.size, shard.checksum):
            changed = "size" if found[0] != shard.size else "headers"
            raise ShardsChanged(
                f"{changed} changed since it was indexed",
                shard=shard.path,
                expected=f"{shard.size} bytes, checksum {shard.checksum}",
                found=f"{found[0]} bytes, checksum {found[1]}",
                todo="index the shards again, or restore the shard",
            )


def _state(root: str, shard: Shard) -> tuple[int, str | None]:
    locator = locate(root, shard.path)
    if not remote.is_url(locator) and os.path.exists(locator) and os.path.getsize(locator) != shard.size:
        return os.path.getsize(locator), None
    return state(locator)


def _all_named(refused: list[Fault]) -> str:
    named = ", ".join(f"{fault.shard}: {fault.detail}" for fault in refused)
    return named if len(refused) == 1 else f"{len(refused)} shards are no tars: {named}"


def _join(root: str, scans: list[Scan]) -> Index:
    """Rows of all shards, one below the other, with a dictionary of all shard paths."""
    good = [(one.shard, one.rows) for one in scans if one.shard is not None]
    shards = tuple(shard for shard, _ in good)
    numbers = np.repeat(np.arange(len(good), dtype=np.int32), [rows.num_rows for _, rows in good])
    paths = pa.array([shard.path for shard in shards], pa.string())
    table = pa.Table.from_batches([rows for _, rows in good], ROW).combine_chunks()
    column = pa.DictionaryArray.from_arrays(pa.array(numbers), paths)
    return Index(root, shards, table.add_column(0, SHARD, pa.chunked_array([column])))


def _duplicate_keys(index: Index) -> Iterator[Fault]:
    """Keys that occur in several shards (within one shard a key occurs once)."""
    counts = pc.value_counts(index.table["key"])
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(twice) == 0:
        return
    named = twice.slice(0, _MOST_NAMED)
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
