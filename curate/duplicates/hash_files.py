"""Hashes of a store on disk: one Parquet file a shard, published whole, beside the store's index.

The folder's name ends in a key of store and definition, so what is there under it is what is wanted, and a part that is
there is done. Columns: ``shard``, ``key``, ``image`` and ``pixels`` (digests), ``hash`` and ``mirror``, ``flat``,
``width``, ``height``, ``error``; docs/formats/duplicates.md says what they mean.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curate.data.photos import Photos
from curate.duplicates import hashes
from curate.duplicates.hashes import DIGEST, Look, PerceptualHashes
from curate.errors import CurateError
from curate.ledger import table_file
from curate.progress import Progress
from curate.types import ERRORS, Codes, Counts, Mask
from shards import stream
from shards.indexing.index import Index, select_shards
from shards.io import remote
from shards.io.folders import OWN_FOLDER
from shards.io.locks import locked
from shards.io.parallel import map_shards
from shards.member_names import storable

VERSION = 1
#: Images whose thumbnails are in memory at a time.
BATCH = 1024
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("shard", "key")),
        *(pa.field(name, pa.binary(DIGEST)) for name in ("image", "pixels")),
        *(pa.field(name, pa.uint64()) for name in ("hash", "mirror")),
        pa.field("flat", pa.bool_()),
        *(pa.field(name, pa.int32()) for name in ("width", "height")),
        pa.field("error", pa.string()),
    ]
)

#: Digests as two numbers each, which compare faster than bytes do.
Digests = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Hashed:
    """What n images are known by, aligned.

    Args:
        names: columns ``shard`` and ``key``.
        image, pixels: shape (n, 2), uint64: digests; zeros where there is none.
        look: hashes; those of an image with an error say nothing.
        width, height: shape (n,), int32.
        error: shape (n,), uint8: place in `ERRORS`.
    """

    names: pa.Table
    image: Digests
    pixels: Digests
    look: PerceptualHashes
    width: Counts
    height: Counts
    error: Codes

    def __len__(self) -> int:
        return len(self.error)

    @property
    def comparable(self) -> Mask:
        """Whose hash says something."""
        return np.asarray((self.error == 0) & ~self.look.flat)


def of_store(index: Index, places: Sequence[Path], workers: int, progress: Progress) -> Hashed:
    """The hashes of a store: read from the first of ``places`` that has them all, else made in the last.

    Raises:
        Busy: another process is making them.
        ShardError, CurateError: the store or its hashes cannot be read.
        OSError: disk full, no permission; parts that are there stay.
    """
    there = next((folder for folder in places if is_whole(folder, index)), None)
    return load(there or made(index, places[-1], workers, progress), index)


def folder_in(place: Path, index: Index) -> Path:
    """Where a store's hashes lie in a folder of several."""
    identity = {"version": VERSION, "of": index.fingerprint}
    return place / f"hashes-{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]}"


def places_of(index: Index, out: Path | None) -> list[Path]:
    """Where hashes are looked for, and in the last made: beside the store where it may be written to, else in ``out``.

    Of a store that may not be written to, without ``out``, the last cannot be made (`may_be_made`); of a remote one
    there is none.
    """
    if remote.is_url(index.root):
        return [] if out is None else [folder_in(out, index)]
    beside = folder_in(Path(index.root) / OWN_FOLDER, index)
    return [beside] if out is None or may_be_made(beside) else [beside, folder_in(out, index)]


def may_be_made(folder: Path) -> bool:
    """Whether this process may write a folder, there or not."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return os.access(there, os.W_OK)


def is_whole(folder: Path, index: Index) -> bool:
    """Whether the hashes of every shard are there."""
    return not _missing(folder, index)


def made(index: Index, folder: Path, workers: int, progress: Progress) -> Path:
    """Hash what is missing, a part a shard, shards in parallel; returns the folder. Raises as `of_store`."""
    with locked(folder), progress.shards("hashes"):
        todo = [(number, select_shards(index, [index.shards[number].path])) for number in _missing(folder, index)]
        for _ in map_shards(partial(_hash_shard, folder), todo, max(1, workers)):
            pass
    return folder


def of_photos(photos: Photos, workers: int = 1) -> Hashed:
    """The hashes of image files, of the shard ``""``; nothing is kept.

    Raises:
        CurateError: one is gone, or may not be read.
    """
    parts = [Photos(photos.root, photos.paths[at : at + BATCH]) for at in range(0, len(photos), BATCH)]
    return _of_table(pa.concat_tables([SCHEMA.empty_table(), *map_shards(_hash_photos, parts, max(1, workers))]))


def in_memory(index: Index) -> Hashed:
    """The hashes of a small store; nothing is kept."""
    return _of_table(_of_shard(index))


def load(folder: Path, index: Index) -> Hashed:
    """All hashes of a store.

    Raises:
        CurateError: a part is of other samples.
        Unfinished: a part is damaged.
    """
    parts = []
    for number, shard in enumerate(index.shards):
        path = _part(folder, number)
        table_file.footer_of(path, "hashes", VERSION)
        part = table_file.read(path, SCHEMA.names, SCHEMA).select(SCHEMA.names).cast(SCHEMA)
        if len(part) != len(index.rows(number)):
            raise CurateError(f"{path}: {len(part)} rows, {shard.path} has {len(index.rows(number))}; remove {folder}")
        parts.append(part)
    return _of_table(pa.concat_tables(parts) if parts else SCHEMA.empty_table())


def joined(one: Hashed, other: Hashed) -> Hashed:
    """Both, one after the other."""
    look = PerceptualHashes(*(np.concatenate(pair) for pair in zip(one.look, other.look)))
    arrays = (np.concatenate([getattr(one, name), getattr(other, name)]) for name in ("image", "pixels"))
    sizes = (np.concatenate([getattr(one, name), getattr(other, name)]) for name in ("width", "height", "error"))
    return Hashed(pa.concat_tables([one.names, other.names]), *arrays, look, *sizes)


def taken(held: Hashed, rows: npt.NDArray[np.int64]) -> Hashed:
    """Some of the images, in this order."""
    look = PerceptualHashes(*(values[rows] for values in held.look))
    sizes = (values[rows] for values in (held.width, held.height, held.error))
    return Hashed(held.names.take(pa.array(rows)), held.image[rows], held.pixels[rows], look, *sizes)


def _part(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.parquet"


def _missing(folder: Path, index: Index) -> list[int]:
    return [number for number in range(len(index.shards)) if not _part(folder, number).is_file()]


def _hash_photos(photos: Photos) -> pa.Table:
    names = pa.table(
        {"shard": pa.array([""] * len(photos), pa.string()), "key": pa.array(map(storable, photos.paths), pa.string())}
    )
    return _table(names, np.zeros(len(photos), np.bool_), photos.bodies())


def _hash_shard(folder: Path, item: tuple[int, Index]) -> None:
    number, index = item
    footer = {"format": "hashes", "version": VERSION}
    table_file.write(_part(folder, number), _of_shard(index), footer, dense=_DENSE)


def _of_shard(index: Index) -> pa.Table:
    names = index.table.select(["shard", "key"])
    return _table(names, index.table["image"].is_null().to_numpy(), stream.images(index, np.arange(len(index))))


_DENSE = ("image", "pixels", "hash", "mirror")


def _table(names: pa.Table, absent: Mask, bodies: Iterable[bytes]) -> pa.Table:
    """The columns of `SCHEMA`, with nulls where there is no image or where it does not decode."""
    looks, found = [], []
    for body in bodies:
        looks.append(hashes.look(body))
        if len(looks) == BATCH:
            found.append(_columns(looks))
            looks = []
    found.append(_columns(looks))
    columns = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    error = np.where(absent, ERRORS.index("no-image"), columns.pop("error")).astype(np.uint8)
    image = columns.pop("image")
    arrays = {name: pa.array(values, mask=error != 0) for name, values in columns.items()}
    arrays |= {"image": pa.array(image, mask=absent), "error": pc.take(pa.array(ERRORS, pa.string()), pa.array(error))}
    cast = {"shard": names["shard"].cast(pa.string()), "key": names["key"].cast(pa.string()), **arrays}
    return pa.table([cast[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)


def _columns(looks: list[Look]) -> dict[str, npt.NDArray[np.generic]]:
    thumbnails = (
        np.stack([one.thumbnail for one in looks]) if looks else np.zeros((0, hashes.SIDE, hashes.SIDE), np.uint8)
    )
    found = hashes.perceptual(thumbnails)
    return {
        "image": np.array([one.image for one in looks], object),
        "pixels": np.array([one.pixels or bytes(DIGEST) for one in looks], object),
        **found._asdict(),
        "width": np.array([one.width for one in looks], np.int32),
        "height": np.array([one.height for one in looks], np.int32),
        "error": np.array([one.error for one in looks], np.uint8),
    }


def _of_table(table: pa.Table) -> Hashed:
    def numbers(name: str) -> npt.NDArray[np.generic]:
        values = pc.fill_null(table[name], False if name == "flat" else 0)
        return np.asarray(values.to_numpy())

    def digests(name: str) -> Digests:
        column = pc.fill_null(table[name], bytes(DIGEST)).combine_chunks()
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return np.concatenate([np.zeros((0, 2), np.uint64), *map(_numbers_of, chunks)])

    error = pc.fill_null(pc.index_in(table["error"], pa.array(ERRORS[1:], pa.string())), -1).to_numpy() + 1
    look = PerceptualHashes(*(numbers(name) for name in ("hash", "mirror", "flat")))  # type: ignore[arg-type]
    names = table.select(["shard", "key"])
    sizes = (numbers(name).astype(np.int32) for name in ("width", "height"))
    return Hashed(names, digests("image"), digests("pixels"), look, *sizes, error.astype(np.uint8))


def _numbers_of(column: pa.FixedSizeBinaryArray) -> Digests:
    raw = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * DIGEST :][: len(column) * DIGEST]
    return raw.view(np.uint64).reshape(-1, 2)
