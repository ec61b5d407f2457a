"""What tests of shards are made of: tars by Python's own `tarfile`, and readings by other readers than ours."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from shards.indexing import index
from shards.indexing.index import Index
from shards.io import shard_set

Members = Sequence[tuple[str, bytes]]


def write_tar(path: Path, members: Members, format: int = tarfile.USTAR_FORMAT) -> None:
    """A tar with these members, in this order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format) as tar:
        for name, body in members:
            member = tarfile.TarInfo(name)
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))


def make_store(folder: Path, shards: Mapping[str, Members]) -> Index:
    """A folder of tars, and its index."""
    for name, members in shards.items():
        write_tar(folder / name, members)
    return indexed(folder)


def indexed(folder: Path) -> Index:
    return index.build(shard_set.resolve(folder))[0]


def numbered(first: int, count: int, size: int = 700, seed: int = 0) -> list[tuple[str, bytes]]:
    """Samples of an image and a text, of random sizes around ``size``; bytes that no one decodes."""
    rng = np.random.default_rng([seed, first])
    members = []
    for number in range(first, first + count):
        members.append((f"{number:06d}.jpg", rng.bytes(int(rng.integers(1, 2 * size)))))
        members.append((f"{number:06d}.txt", f"caption {number}".encode()))
    return members


def read_tar(path: Path) -> list[tuple[str, bytes]]:
    """All regular members in order, by `tarfile`."""
    with tarfile.open(path) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar if member.isreg()]  # type: ignore[union-attr]


def read_set(folder: Path) -> list[tuple[str, bytes]]:
    """All regular members of all tars of a folder, sorted by path, by `tarfile`."""
    return [member for path in sorted(folder.rglob("*.tar")) for member in read_tar(path)]


def manifest_of(index: Index, rows: Iterable[int]) -> pa.Table:
    """A manifest as a person makes it: shard and key."""
    return index.table.select(["shard", "key"]).take(pa.array(list(rows), pa.int64()))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its relative path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def samples_of(index: Index, rows: list[int]) -> list[tuple[str, bytes]]:
    """The members of these rows, by `tarfile` and the key alone (keys differ in the stores of these tests)."""
    keys = set(index.table["key"].take(pa.array(rows)).to_pylist())
    return [member for member in read_set(Path(index.root)) if member[0].split(".")[0] in keys]
