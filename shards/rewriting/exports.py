"""Exports beside shards for other readers: open_clip's sizes, wids' index, NVIDIA DALI's indexes, DataComp's uids.

Each format is a pure function of an index (and of the shards, where member bytes are needed), and a `write_...` beside
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shards.errors import ShardError
from shards.indexing.index import Index
from shards.indexing.members import members_by_key, members_of_key
from shards.io.atomic import atomic_write, atomic_write_unsynced, write_bytes
from shards.io.json_files import json_bytes, parse_json
from shards.io.mapped import open_mapped
from shards.member_names import is_safe
from shards.rewriting import exports, marker, metadata
from shards.stream import samples
from shards.tar.walk import FILE

SIZES, LENGTH, WIDS, UIDS = "sizes.json", "__len__", "shards.json", "uids.npy"
#: A DataComp uid: 128 bits, as two numbers in the order of its hex digits.
UID = np.dtype("u8,u8")


def sizes(index: Index) -> dict[str, int]:
    """Number of samples by shard: the content of open_clip's ``sizes.json``."""
    counts = np.bincount(index.shard_numbers, minlength=len(index.shards))
    return {shard.path: int(count) for shard, count in zip(index.shards, counts, strict=True)}


def wids_index(index: Index) -> dict[str, Any]:
    """The content of wids' ``shards.json``: file, samples and bytes of each shard."""
    counts = sizes(index)
    shards = [{"url": s.path, "nsamples": counts[s.path], "filesize": s.size} for s in index.shards]
    return {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}


def write_counts(index: Index, folder: Path) -> None:
    """Write ``sizes.json``, ``__len__`` and ``shards.json`` into ``folder``, which the caller syncs."""
    files = {
        SIZES: json_bytes(sizes(index)),
        LENGTH: f"{len(index)}\n".encode("ascii"),
        WIDS: json_bytes(wids_index(index)),
    }
    for name, data in files.items():
        with atomic_write_unsynced(folder / name) as file:
            file.write(data)


def dali_lines(index: Index, number: int) -> Iterator[str]:
    """The lines of the DALI index of one shard: ``v1.2 SAMPLES``, then of each member extension, offset, size, name.

    Raises:
        ShardError: a member cannot be named there (white space in its name), or the shard is a gzip.
    """
    shard = index.shards[number]
    if shard.gzip:
        raise ShardError("DALI reads no gzip shards", shard=shard.path, todo="rewrite the store, then export")
    keys = [index.table["key"][row].as_py() for row in index.rows(number)]
    yield f"v1.2 {len(keys)}"
    with open_mapped(index.path(number)) as source:
        walked = members_by_key(source.buffer, shard.path)
        for key in keys:
            parts = [
                (part, member.name) for part, member in members_of_key(walked, key, shard.path) if part.kind == FILE
            ]
            blank = next((name for _, name in parts if len(name.split()) != 1), None)
            if blank is not None:
                raise ShardError("DALI takes no name with white space", shard=shard.path, key=blank)
            yield " ".join(f"{_extension(name)} {part.body} {part.size} {name}" for part, name in parts)


def dali_index(index: Index, number: int) -> bytes:
    """The DALI index of one shard, as its file holds it."""
    return b"".join(line.encode("utf-8", "surrogateescape") + b"\n" for line in dali_lines(index, number))


def _extension(name: str) -> str:
    """What follows the first dot of the base name, case kept, as DALI's own indexer does it."""
    return name.rpartition("/")[2].partition(".")[2]


def write_dali(index: Index, folder: Path) -> list[Path]:
    """Write ``NAME.idx`` for every shard ``NAME.tar`` below ``folder``, and return their paths.

    Raises:
        ShardError: as `dali_lines`; files written before stay.
    """
    paths = []
    for number, shard in enumerate(index.shards):
        if not is_safe(shard.path):
            raise ShardError("would be written outside the folder", shard=shard.path, todo="index the shards again")
        path = folder / Path(shard.path).with_suffix(".idx")
        write_bytes(path, dali_index(index, number))
        paths.append(path)
    return paths


def datacomp_uids(index: Index) -> npt.NDArray[Any]:
    """The ``uid`` in each sample's ``json`` member, sorted: shape (n,), dtype `UID`.

    Raises:
        ShardError: a sample has no uid of 32 hex digits; the message names it.
    """
    uids = np.zeros(len(index), dtype=UID)
    for row, sample in enumerate(samples(index, np.arange(len(index)))):
        uids[row] = _uid(sample)
    uids.sort()
    return uids


def write_datacomp(index: Index, path: Path) -> int:
    """Write the sorted uids as ``.npy`` and return how many they are."""
    uids = datacomp_uids(index)
    with atomic_write(path) as file:
        np.save(file, uids, allow_pickle=False)
    return len(uids)


def _uid(sample: dict[str, Any]) -> tuple[int, int]:
    try:
        text = parse_json(sample["json"])["uid"]
        if len(text) != 32:
            raise ValueError
        return int(text[:16], 16), int(text[16:], 16)
    except (KeyError, TypeError, ValueError) as error:
        raise ShardError(
            "no uid",
            shard=sample["__url__"],
            key=sample["__key__"],
            expected="a json member with a uid of 32 hex digits",
            todo="export it only for stores that carry uids",
        ) from error


def export_for(
    folder: Path, *, dali: bool, datacomp: bool, metadata_of: Index | None = None, further: pa.Table | None = None
) -> list[Path]:
    """Write the exports asked for into a finished curated folder; returns the paths written.

    Args:
        dali: ``NAME.idx`` beside each tar.
        datacomp: ``uids.npy``.
        metadata_of: index of the store, whose files beside its shards become `metadata.write_metadata`'s.
        further: columns joined to them, by the store's ``shard`` and ``key``.

    Raises:
        Unfinished: the folder has no marker.
        ShardError: a sample lacks what the format needs, or the set was made of another store.
    """
    index = marker.load_curated(folder)
    written = exports.write_dali(index, folder) if dali else []
    if datacomp:
        exports.write_datacomp(index, folder / exports.UIDS)
        written.append(folder / exports.UIDS)
    if metadata_of is not None:
        made_of, found = marker.read_marker(folder)["source"]["fingerprint"], metadata_of.fingerprint
        if made_of != found:
            raise ShardError("was made of another store", shard=str(folder), expected=made_of, found=found)
        written += metadata.write_metadata(index, marker.sources_of(folder), metadata_of, further, folder)
    return written
