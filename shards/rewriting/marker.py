"""The form of a curated folder: its files, and the two JSON files that say whether it is finished.

`unfinished.json` is written first, so that a later attempt recognises the folder as its own; `curated.json`, the
marker, last, so that a folder without it is unfinished. Readers of curated folders check it here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import xxhash

from shards.errors import Misuse, ShardError, Unfinished
from shards.indexing.index import Index
from shards.indexing.index_file import FILE_NAME as INDEX
from shards.indexing.index_file import load
from shards.io import parquet
from shards.io.atomic import remove_path, sync_folder
from shards.io.json_files import parse_json, sha256_of, write_json
from shards.io.regular_files import open_regular, read_regular
from shards.io.spilled import spilled
from shards.rewriting.plan import OUTCOMES

FORMAT_VERSION = 1
MARKER, IN_PROGRESS, MANIFEST = "curated.json", "unfinished.json", "manifest.parquet"
_TAR = re.compile(r"\d{6,}\.tar")
_CHUNK = 1 << 20
_SOURCES = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("source_shard", "source_key")])


@dataclass(frozen=True)
class FileHashes:
    """Size (bytes) and hex digests of a file."""

    bytes: int
    sha256: str
    xxh3: str


def hash_file(path: Path) -> FileHashes:
    """Hash a file in one pass."""
    with open_regular(path) as file:
        return hash_stream(file)


def hash_stream(stream: IO[bytes]) -> FileHashes:
    """Hash what is left of a stream."""
    sha256, xxh3, size = hashlib.sha256(), xxhash.xxh3_64(), 0
    while chunk := stream.read(_CHUNK):
        sha256.update(chunk)
        xxh3.update(chunk)
        size += len(chunk)
    return FileHashes(size, sha256.hexdigest(), xxh3.hexdigest())


def read_marker(folder: Path) -> dict[str, Any]:
    """The content of ``curated.json``.

    Raises:
        Unfinished: it is missing.
        ShardError: it is damaged, or of an unknown version.
    """
    path = folder / MARKER
    try:
        marker: dict[str, Any] = parse_json(read_regular(path))
        version = marker["version"]
    except FileNotFoundError as error:
        raise unfinished(str(folder)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ShardError("damaged", shard=str(path), todo="rewrite into a new folder") from error
    if version != FORMAT_VERSION:
        raise ShardError(
            "unknown format",
            shard=str(path),
            expected=f"version {FORMAT_VERSION}",
            found=version,
            todo="read it with the version of curate that wrote it, or rewrite it",
        )
    checksum = marker.pop("checksum", None)  # older markers have none
    if not _is_marker(marker) or checksum not in (None, _checksum(marker)):
        raise ShardError("damaged", shard=str(path), todo="rewrite into a new folder")
    return marker


def unfinished(place: str) -> Unfinished:
    """The error for a curated set without its marker."""
    todo = "run the same rewrite again to finish it"
    return Unfinished(f"no {MARKER}, so this is no finished curated set", shard=place, todo=todo)


def damaged(shard: str, n_bytes: int, found: int | str) -> ShardError:
    """The error for a shard of a finished set that is gone or has another size."""
    todo = "remove the folder and rewrite it"
    return ShardError("damaged since it was finished", shard=shard, expected=f"{n_bytes} bytes", found=found, todo=todo)


def _is_marker(marker: dict[str, Any]) -> bool:
    """Whether the content has every field that readers use, and names only files of its own folder."""
    hashed = {"bytes": int, "sha256": str, "xxh3": str}
    summary = dict.fromkeys(("shards", "bytes", "shared_keys", "new_headers"), int)
    counts = dict.fromkeys(("in", *OUTCOMES), int)
    try:
        return (
            _has_fields(marker, {"plan": str, "shard_size": int, "summary": dict, "shards": list, "files": dict})
            and marker["shard_size"] > 0
            and marker["summary"].keys() == {*summary, "counts"}
            and _has_fields(marker["summary"], summary | {"counts": dict})
            and _has_fields(marker["summary"]["counts"], counts)
            and all(_has_fields(shard, {"name": str, "samples": int, "bytes": int}) for shard in marker["shards"])
            and all(_has_fields(shard, hashed) or _is_copied(shard) for shard in marker["shards"])
            and all(_TAR.fullmatch(shard["name"]) for shard in marker["shards"])
            and marker["files"].keys() == {INDEX, MANIFEST}
            and all(_has_fields(file, hashed) for file in marker["files"].values())
            and _has_fields(marker["source"], {"fingerprint": str, "counts": dict})
            and all(_has_fields(line, counts) for line in marker["source"]["counts"].values())
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _is_copied(shard: dict[str, Any]) -> bool:
    """Whether a shard has no hash, as a server copied parts of it, and says so."""
    hashes = shard["sha256"], shard["xxh3"]
    return hashes == (None, None) and isinstance(shard["etag"], str) and isinstance(shard["copied"], str)


def _has_fields(fields: dict[str, Any], kinds: Mapping[str, type]) -> bool:
    """Whether an object has these fields, each of exactly this type; further ones are allowed."""
    return all(type(fields[name]) is kind for name, kind in kinds.items())


def _checksum(marker: dict[str, Any]) -> str:
    return sha256_of(marker)


def load_curated(folder: Path) -> Index:
    """The index of a finished curated folder.

    Raises:
        Unfinished, ShardError: as `read_marker`.
    """
    read_marker(folder)
    return load(folder / INDEX)


def sources_of(folder: Path) -> pa.Table:
    """The origin in the store of each sample of a curated folder: columns ``shard`` and ``key``, strings."""
    path, todo = folder / INDEX, "rewrite it from the store"
    groups = (
        parquet.cast_to_schema(group, _SOURCES, path, "index of a curated set", todo)
        for group in parquet.read_groups(path, todo)
    )
    return spilled(_SOURCES, (batch for group in groups for batch in group.to_batches())).rename_columns(
        ["shard", "key"]
    )


def refuse_unfinished(folder: Path) -> None:
    """Raise `Unfinished` where ``folder`` holds a rewrite that was begun and not finished."""
    if (folder / IN_PROGRESS).exists() and not (folder / MARKER).exists():
        read_marker(folder)


def mark_begun(folder: Path, plan: str, keep: set[str]) -> None:
    """Prepare ``folder`` for writing: write ``unfinished.json``, delete what an earlier attempt left except ``keep``.

    Raises:
        Misuse: it holds other files, or a finished set.
    """
    check_output_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _say_begun(folder, plan)
    for path in folder.iterdir():
        if path.name not in keep | {IN_PROGRESS}:
            path.unlink()
    sync_folder(folder)


def _say_begun(folder: Path, plan: str) -> None:
    write_json(folder / IN_PROGRESS, {"version": FORMAT_VERSION, "plan": plan})


def check_output_folder(folder: Path) -> None:
    """Raise `Misuse` unless ``folder`` is missing, empty, or an unfinished rewrite."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise Misuse("not a folder", shard=str(folder), todo="choose another --out")
    refuse_foreign(str(folder), {path.name for path in folder.iterdir()})


def refuse_foreign(place: str, names: set[str]) -> None:
    """Raise `Misuse` unless a place that holds ``names`` holds nothing, or an unfinished rewrite."""
    if MARKER in names:
        todo = "choose another --out or remove the folder"
        raise Misuse("holds another finished curated set", shard=place, todo=todo)
    foreign = sorted(name for name in names if not is_own_file(name))
    if foreign or (names - {f".{IN_PROGRESS}.partial"} and IN_PROGRESS not in names):
        raise Misuse(
            f"holds something else ({(foreign or sorted(names))[0]})",
            shard=place,
            expected="a missing, empty or unfinished output folder",
            todo="choose another --out",
        )


def remove(folder: Path) -> None:
    """Remove a curated folder and what else is in it; killed at any moment, it is finished or an unfinished rewrite."""
    for path in folder.iterdir():
        if not is_own_file(path.name):
            remove_path(path)
    if (folder / MARKER).exists():
        _say_begun(folder, "")
        (folder / MARKER).unlink()
        sync_folder(folder)
    for path in folder.iterdir():
        if path.name != IN_PROGRESS:
            remove_path(path)
    shutil.rmtree(folder)


def write_marker(folder: Path, marker: dict[str, Any]) -> None:
    """Write ``curated.json`` with its own checksum, then delete ``unfinished.json``."""
    fields = {"version": FORMAT_VERSION, **marker}
    write_json(folder / MARKER, {**fields, "checksum": _checksum(fields)})
    forget_beginning(folder)


def forget_beginning(folder: Path) -> None:
    """Delete ``unfinished.json``, which does no harm beside the marker, so nothing is synced."""
    (folder / IN_PROGRESS).unlink(missing_ok=True)


def is_own_file(name: str) -> bool:
    """Whether a rewrite writes a file of this name."""
    name = name.removeprefix(".").removesuffix(".partial") if name.startswith(".") else name
    return name in (IN_PROGRESS, MARKER, MANIFEST, INDEX, "sizes.json", "__len__", "shards.json", "README.md") or bool(
        _TAR.fullmatch(name)
    )
