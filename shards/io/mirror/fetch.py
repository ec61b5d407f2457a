"""Makes a copy what the objects are: what is missing or another is fetched, what is gone is removed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shards.errors import NoSuchObject, NotShards, ShardsChanged
from shards.io import claim
from shards.io.atomic import atomic_write_unsynced
from shards.io.mirror.copy import RECORD, Copy, Held, files_in, is_left_out, stat_of
from shards.io.storage.clients import split_url
from shards.io.storage.objects import ObjectInfo, head, list_objects, read_range

#: Files that are fetched at a time; bytes of a request.
AT_A_TIME, BLOCK = 8, 8 << 20
#: Times that a folder is listed, where it changes while it is fetched.
_TIMES = 5


def fetch(copy: Copy, without: tuple[str, ...]) -> None:
    """Make a copy what the objects are.

    Args:
        without: patterns of files of which only the size matters; they come as holes.

    Raises:
        ShardError: the objects cannot be read.
    """
    for left in reversed(range(_TIMES)):
        there = listed(copy.url)
        try:
            _fetch(copy, there, without)
            return
        except (NoSuchObject, ShardsChanged):  # whoever writes there has just replaced or removed it
            if not left:
                raise


def listed(url: str) -> dict[str, ObjectInfo]:
    """What lies at or below a URL, by the path from there; claims are no part of it.

    Raises:
        NotShards: it cannot be listed, or a name is none that a file can have.
    """
    alone = head(url) if split_url(url)[2] else None
    found = {"": alone} if alone is not None else {}
    for info in list_objects(url):
        name = info.url.removeprefix(f"{url}/")
        if {"", ".", ".."} & set(name.split("/")) or "\0" in name:
            raise NotShards("a name that no file can have", shard=info.url, todo="rename or remove the object")
        if name.rpartition("/")[2] != claim.NAME:
            found[name] = info
    both = next((name for name in found if not found.keys().isdisjoint(_folders_of(name))), None)
    if both is not None:
        where = f"{url}/{next(folder for folder in _folders_of(both) if folder in found)}".rstrip("/")
        raise NotShards("an object and a folder of one name", shard=where, todo="rename or remove one of them")
    return found


def _folders_of(name: str) -> list[str]:
    """What an object below a folder lies in: ``a/b/c`` -> ``"", a, a/b``."""
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts))] if name else []


def hole(path: Path, etag: str | None, size: int) -> Held:
    """Make a file of a size, without content, that takes no room."""
    with atomic_write_unsynced(path) as file:
        file.truncate(size)
    return stat_of(path, etag, hole=True)


def _fetch(copy: Copy, there: dict[str, ObjectInfo], without: tuple[str, ...]) -> None:
    for name in files_in(copy, copy.path).keys() - there.keys():
        _remove(copy.path / name, copy.home)
    copy.objects = {name: held for name, held in copy.objects.items() if name in there}
    left_out = {name for name in there if is_left_out(name, without)}
    todo = [name for name, info in there.items() if not _is_current(copy, info, name, name in left_out)]
    for name in left_out.intersection(todo):
        copy.objects[name] = hole(copy.path / name, there[name].etag, there[name].size)
    whole = [name for name in todo if name not in left_out]
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        for name, held in zip(whole, threads.map(lambda name: _received(copy.path / name, there[name]), whole)):
            copy.objects[name] = held
    copy.ahead = False
    if there or (copy.home / RECORD).exists():
        copy.save()


def _is_current(copy: Copy, info: ObjectInfo, name: str, may_be_hole: bool) -> bool:
    held, path = copy.objects.get(name), copy.path / name
    if held is None or held.etag is None or held.etag != info.etag or (held.hole and not may_be_hole):
        return False
    return path.is_file() and stat_of(path).is_same(held)


def _received(path: Path, info: ObjectInfo) -> Held:
    with atomic_write_unsynced(path) as file:
        for at in range(0, info.size, BLOCK):
            file.write(read_range(info.url, at, min(BLOCK, info.size - at), info.etag))
    return stat_of(path, info.etag)


def _remove(path: Path, home: Path) -> None:
    """Remove a file, and folders that are empty then: they might mean something."""
    path.unlink()
    for folder in path.parents:
        if folder == home or any(folder.iterdir()):
            return
        folder.rmdir()
