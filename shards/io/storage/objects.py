"""Single objects of an object store: list, look up, read, write, delete.

Every read names its first byte and its size, as an open-ended one is billed to the object's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from shards.errors import NoSuchObject, NotShards
from shards.io.storage.clients import as_shard_error, open_store, split_url


@dataclass(frozen=True)
class ObjectInfo:
    """An object: where it lies, its bytes, and its ETag (None where the store has none), which changes with them."""

    url: str
    size: int
    etag: str | None


def list_objects(url: str) -> Iterator[ObjectInfo]:
    """All objects below a folder, at any depth, in the order of their keys.

    Raises:
        NotShards: the bucket cannot be listed.
    """
    store, prefix = open_store(url)
    import obstore

    scheme, bucket, _ = split_url(url)
    with as_shard_error("cannot be listed", url):
        for page in obstore.list(store, prefix.rstrip("/") or None):
            yield from (ObjectInfo(f"{scheme}://{bucket}/{meta['path']}", meta["size"], meta["e_tag"]) for meta in page)


def head(url: str) -> ObjectInfo | None:
    """What is known of an object; None where there is none.

    Raises:
        NotShards: the store does not answer.
    """
    store, key = open_store(url)
    import obstore

    try:
        with as_shard_error("cannot be looked up", url):
            meta = obstore.head(store, key)
    except NoSuchObject:
        return None
    return ObjectInfo(url, meta["size"], meta["e_tag"])


def read_range(url: str, offset: int, size: int, etag: str | None = None) -> bytes:
    """Bytes ``offset`` to ``offset + size`` of an object, by one request.

    Args:
        etag: what its ETag must be; None for any.

    Raises:
        NoSuchObject: nothing is there.
        ShardsChanged: it has another ETag.
        NotShards: it cannot be read, or ends before.
    """
    if not size:
        return b""
    store, key = open_store(url)
    import obstore

    options: Any = {"range": (offset, offset + size)} | ({"if_match": etag} if etag else {})
    with as_shard_error(f"bytes {offset} to {offset + size} cannot be read", url):
        data = obstore.get(store, key, options=options).bytes().to_bytes()
        if len(data) < size:
            raise EOFError(f"{len(data)} of {size} bytes came")
    return data


def read_all(url: str, max_bytes: int) -> bytes:
    """All bytes of an object.

    Raises:
        NoSuchObject: nothing is there.
        NotShards: it cannot be read, or has more than ``max_bytes``.
    """
    return read_object(url, max_bytes)[1]


def read_object(url: str, max_bytes: int) -> tuple[ObjectInfo, bytes]:
    """What is known of an object, and all of its bytes, by one request, so that they belong together.

    Raises:
        NoSuchObject, NotShards: as `read_all`.
    """
    store, key = open_store(url)
    import obstore

    with as_shard_error("cannot be read", url):
        found = obstore.get(store, key)
        if found.meta["size"] > max_bytes:
            expected = f"at most {max_bytes} bytes"
            raise NotShards("too long", shard=url, expected=expected, found=found.meta["size"])
        return ObjectInfo(url, found.meta["size"], found.meta["e_tag"]), found.bytes().to_bytes()


def put(url: str, data: bytes) -> None:
    """Write an object whole, in place of one that is there; for a large one see `uploads.upload`.

    Raises:
        NotShards: it cannot be written.
    """
    store, key = open_store(url)
    import obstore

    with as_shard_error("cannot be written", url):
        obstore.put(store, key, data, use_multipart=False)


def put_if_absent(url: str, data: bytes) -> bool:
    """Write an object unless there is one; whether it is there now with these bytes.

    A claim has bytes that no other's has: an answer may be lost, and then only they tell whose the object is.

    Raises:
        NotShards: it cannot be written.
    """
    store, key = open_store(url)
    import obstore
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    with as_shard_error("cannot be written", url):
        try:
            obstore.put(store, key, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            found = head(url)
            return found is not None and found.size == len(data) and read_range(url, 0, len(data)) == data
    return True


def put_if_same(url: str, data: bytes, etag: str) -> str | None:
    """Write an object in place of one whose ETag is this; its own ETag, None where another is there, or none.

    Raises:
        NotShards: it cannot be written.
    """
    store, key = open_store(url)
    import obstore
    from obstore.exceptions import PreconditionError

    with as_shard_error("cannot be written", url):
        try:
            there = obstore.head(store, key)
            if there["e_tag"] != etag:
                return None
            known: Any = {"e_tag": etag} | ({"version": there["version"]} if there.get("version") else {})
            return obstore.put(store, key, data, mode=known, use_multipart=False)["e_tag"]
        except (PreconditionError, FileNotFoundError):
            return None


def delete(urls: Iterable[str]) -> None:
    """Delete objects; one that is not there is no fault.

    Raises:
        NotShards: an object cannot be deleted.
    """
    import obstore

    for _, some in groupby(urls, key=lambda url: split_url(url)[:2]):
        held = list(some)
        store, _ = open_store(held[0])
        try:
            with as_shard_error("cannot be deleted", held[0]):
                obstore.delete(store, [split_url(url)[2] for url in held])
        except NoSuchObject:  # ends it on some stores, others not yet deleted
            for url in held:
                with suppress(NoSuchObject), as_shard_error("cannot be deleted", url):
                    obstore.delete(store, split_url(url)[2])
