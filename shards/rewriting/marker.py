"""The form of a curated folder: its files, its marker, and what a reader demands of it.

`curated.json` is written last, so a folder without it is unfinished; `unfinished.json` is written first, so that a
later attempt knows the folder for its own. What goes into the shards is `rewrite`'s.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import xxhash

from shards.errors import Misuse, ShardError, Unfinished
from shards.indexing.index import FILE_NAME as INDEX
from shards.indexing.index import Index, load
from shards.io.atomic import sync_folder
from shards.io.json_files import from_json, publish_json

FORMAT_VERSION = 1
MARKER, BEGUN, MANIFEST = "curated.json", "unfinished.json", "manifest.parquet"
_TAR = re.compile(r"\d{6,}\.tar")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Hashes:
    """Size in bytes and hex digests of a file."""

    bytes: int
    sha256: str
    xxh3: str


def hashes(path: Path) -> Hashes:
    """Read a file once and hash it."""
    sha256, xxh3, size = hashlib.sha256(), xxhash.xxh3_64(), 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            xxh3.update(chunk)
            size += len(chunk)
    return Hashes(size, sha256.hexdigest(), xxh3.hexdigest())


def read_marker(folder: Path) -> dict[str, Any]:
    """What ``curated.json`` says.

    Raises:
        Unfinished: it is not there.
        ShardError: it is damaged, or of a version that this reader does not know.
    """
    path = folder / MARKER
    try:
        marker: dict[str, Any] = from_json(path.read_bytes())
        version = marker["version"]
    except FileNotFoundError as error:
        raise Unfinished(
            f"no {MARKER}, so this is no finished curated set",
            shard=str(folder),
            todo="run the same rewrite again to finish it",
        ) from error
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
    if not _is_marker(marker):
        raise ShardError("damaged", shard=str(path), todo="rewrite into a new folder")
    return marker


def _is_marker(marker: dict[str, Any]) -> bool:
    """Whether everything stands in ``curated.json`` that its readers take from it."""
    hashed = {field.name for field in fields(Hashes)}
    try:
        return (
            marker.keys() >= {"plan", "shard_size"}
            and marker["summary"].keys() == {"shards", "bytes", "counts", "shared_keys", "new_headers"}
            and all(shard.keys() >= {"name", "samples"} | hashed for shard in marker["shards"])
            and all(file.keys() >= hashed for file in marker["files"].values())
            and marker["source"].keys() >= {"fingerprint", "counts"}
        )
    except (KeyError, TypeError, AttributeError):
        return False


def load_curated(folder: Path) -> Index:
    """The index of a finished curated folder.

    Raises:
        Unfinished, ShardError: as `read_marker`.
    """
    read_marker(folder)
    return load(folder / INDEX)


def refuse_unfinished(folder: Path) -> None:
    """Raise `Unfinished` where ``folder`` is a rewrite that was begun and not finished; other folders pass."""
    if (folder / BEGUN).exists() and not (folder / MARKER).exists():
        read_marker(folder)


def begin(folder: Path, plan: str, keep: set[str]) -> None:
    """Make ``folder`` ready for writing: mark it begun, remove what an earlier attempt left beyond ``keep``.

    Raises:
        Misuse: it holds something that no rewrite left there, or another finished set.
    """
    check_mine(folder)
    folder.mkdir(parents=True, exist_ok=True)
    publish_json(folder / BEGUN, {"version": FORMAT_VERSION, "plan": plan})
    for path in folder.iterdir():
        if path.name not in keep | {BEGUN}:
            path.unlink()
    sync_folder(folder)


def check_mine(folder: Path) -> None:
    """Raise `Misuse` unless ``folder`` is missing, empty, or an unfinished rewrite."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise Misuse("not a folder", shard=str(folder), todo="choose another --out")
    if (folder / MARKER).exists():
        raise Misuse(
            "holds another finished curated set", shard=str(folder), todo="choose another --out or remove the folder"
        )
    names = {path.name for path in folder.iterdir()}
    foreign = sorted(name for name in names if not _may_be_mine(name))
    if foreign or (names - {f".{BEGUN}.partial"} and BEGUN not in names):
        raise Misuse(
            f"holds something else ({(foreign or sorted(names))[0]})",
            shard=str(folder),
            expected="a missing, empty or unfinished output folder",
            todo="choose another --out",
        )


def finish(folder: Path, marker: dict[str, Any]) -> None:
    """Write the marker, then forget that the folder was begun."""
    publish_json(folder / MARKER, {"version": FORMAT_VERSION, **marker})
    forget_beginning(folder)


def forget_beginning(folder: Path) -> None:
    """Remove what a kill between the marker and here would leave; beside the marker it does no harm, so no sync."""
    (folder / BEGUN).unlink(missing_ok=True)


def _may_be_mine(name: str) -> bool:
    name = name.removeprefix(".").removesuffix(".partial") if name.startswith(".") else name
    return name in (BEGUN, MARKER, MANIFEST, INDEX, "sizes.json", "__len__", "shards.json") or bool(
        _TAR.fullmatch(name)
    )
