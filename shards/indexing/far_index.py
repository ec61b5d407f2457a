"""The index of a shard set as an object: beside the shards of an object store, or where ``--index`` says."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shards.errors import Misuse, ShardError
from shards.indexing import index_file
from shards.indexing.index import Index
from shards.io.folders import OWN_FOLDER
from shards.io.json_files import json_bytes
from shards.io.mapped import read_whole
from shards.io.storage import ranges
from shards.io.storage.objects import ObjectInfo, head, put, put_if_absent, put_if_same, read_range
from shards.io.storage.uploads import send_file

#: Bytes of a file that is put by one request, and only where nobody has written since.
MAX_CONDITIONAL = 64 << 20
#: Bytes behind the footer of a Parquet file: its length, and a magic word.
_FOOT = 8


def beside(root: str) -> str:
    """Where the index of the shards below a URL lies, or goes; as `index_file.beside`."""
    plain = root + index_file.FILE_NAME
    return plain if head(plain) is not None else f"{root}{OWN_FOLDER}/{index_file.FILE_NAME}"


def root_of(url: str) -> str:
    """The URL of the shards that an index belongs to by its own place."""
    return url.rpartition("/")[0].removesuffix(f"/{OWN_FOLDER}") + "/"


def load(url: str, root: str) -> Index:
    """Read an index; as `index_file.load`.

    Raises:
        NoSuchObject: there is none.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / index_file.FILE_NAME
        with open(path, "wb") as file:
            read_whole(ranges.info_of(url), file)
        try:
            return index_file.load(path, root)
        except ShardError as error:
            told: dict[str, Any] = {"expected": error.expected, "found": error.found, "todo": error.todo}
            raise type(error)(error.problem, shard=url, **told) from error


def check_place(url: str) -> ObjectInfo | None:
    """What is at a place for an index: nothing, or an index that may be replaced.

    Raises:
        Misuse: something else is there.
    """
    info = head(url)
    if info is not None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / url.rpartition("/")[2]
            _fetch_footer(info, path)
            try:
                index_file.check_place(path)
            except Misuse as error:
                raise Misuse(error.problem, shard=url, todo=error.todo) from error
    return info


def _fetch_footer(info: ObjectInfo, path: Path) -> None:
    """A file of the object's size with its end: the footer of a Parquet file, with its length behind it."""
    end = read_range(info.url, max(0, info.size - _FOOT), min(_FOOT, info.size), info.etag)
    length = int.from_bytes(end[:4], "little") + _FOOT
    start = max(0, info.size - length) if end[4:] == b"PAR1" else info.size
    with open(path, "wb") as file:
        file.truncate(info.size)
        file.seek(start)
        for block in ranges.read_blocks(info, start, info.size):
            file.write(block)


def save(index: Index, url: str, report: dict[str, Any]) -> None:
    """Write an index and what was found beside it, unless somebody else has written there since.

    Raises:
        Misuse: as `check_place`.
        ShardError: another process has written it at the same time.
    """
    there = check_place(url)
    with TemporaryDirectory() as folder:
        path = Path(folder) / index_file.FILE_NAME
        with open(path, "wb") as file:
            index_file.write(index, file, root_of(url))
        if not _replaced(url, path, there):
            problem = "was written by another process at the same time"
            raise ShardError(problem, shard=url, todo="index the shards again")
    put(f"{url.removesuffix('.parquet')}.report.json", json_bytes(report))


def _replaced(url: str, path: Path, there: ObjectInfo | None) -> bool:
    """Put a file where ``there`` still is, or nothing; whether that was so."""
    if path.stat().st_size > MAX_CONDITIONAL:  # in parts: no store takes a condition with them all
        found = head(url)
        if found != there:
            return False
        send_file(path, url)
        return True
    if there is None or there.etag is None:
        return put_if_absent(url, path.read_bytes())
    return put_if_same(url, path.read_bytes(), there.etag) is not None
