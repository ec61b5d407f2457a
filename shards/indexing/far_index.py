"""The index of a shard set as an object: beside the shards of an object store, or where ``--index`` says."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shards.errors import Misuse, ShardError
from shards.indexing import index_file
from shards.indexing.index import Index
from shards.io.folders import OWN_FOLDER
from shards.io.json_files import json_bytes
from shards.io.storage import ranges
from shards.io.storage.objects import ObjectInfo, head, put, put_if_absent, put_if_same


def beside(root: str) -> str:
    """Where the index of the shards below a URL lies, or goes; as `index_file.beside`."""
    plain = root + index_file.FILE_NAME
    return plain if head(plain) is not None else f"{root}{OWN_FOLDER}/{index_file.FILE_NAME}"


def root_of(url: str) -> str:
    """The URL of the shards that an index belongs to by its own place."""
    folder = url.rpartition("/")[0]
    return folder.removesuffix(OWN_FOLDER).rstrip("/") + "/"


def load(url: str, root: str) -> Index:
    """Read an index; as `index_file.load`.

    Raises:
        NoSuchObject: there is none.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / index_file.FILE_NAME
        _fetch(ranges.info_of(url), path)
        try:
            return index_file.load(path, root)
        except ShardError as error:
            told: dict[str, Any] = {"expected": error.expected, "found": error.found, "todo": error.todo}
            raise type(error)(error.problem, shard=url, **told) from error


def _fetch(info: ObjectInfo, path: Path) -> None:
    with open(path, "wb") as file:
        for block in ranges.read_blocks(info, 0, info.size):
            file.write(block)


def check_place(url: str) -> ObjectInfo | None:
    """What is at a place for an index: nothing, or an index that may be replaced.

    Raises:
        Misuse: something else is there.
    """
    info = head(url)
    if info is not None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / url.rpartition("/")[2]
            _fetch(info, path)
            try:
                index_file.check_place(path)
            except Misuse as error:
                raise Misuse(error.problem, shard=url, todo=error.todo) from error
    return info


def save(index: Index, url: str, report: dict[str, Any]) -> None:
    """Write an index and what was found beside it, unless somebody else has written there since.

    Raises:
        Misuse: as `check_place`.
        ShardError: another process has written it at the same time.
    """
    there, data = check_place(url), BytesIO()
    index_file.write(index, data, root_of(url))
    if there is None or there.etag is None:
        written = put_if_absent(url, data.getvalue())
    else:
        written = put_if_same(url, data.getvalue(), there.etag) is not None
    if not written:
        raise ShardError("was written by another process at the same time", shard=url, todo="index the shards again")
    put(f"{url.removesuffix('.parquet')}.report.json", json_bytes(report))
