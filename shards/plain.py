"""Runs of plain members, read in one go: the fast half of the walk.

Plain is what nearly every shard is made of: a regular file with an octal size and its whole name in its header, alone
or behind a PAX header that says nothing of names and sizes. Sizes are followed one by one, everything else (checksums,
digits, names) is judged for the whole run at once. Whatever is not plain ends the run and is left to `shards.tars`,
which gives the same answer for plain members, only more slowly.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shards.headers import BLOCK, BadHeader, pax_records, until_nul

#: Headers of a run. More would only take memory.
_LONGEST = 512
#: PAX keywords that leave name, size and kind alone.
_HARMLESS = frozenset(("mtime", "atime", "ctime", "uid", "gid", "uname", "gname", "comment"))
_LARGEST_PAX = 4096
#: How a PAX header of a given size begins that holds one time and nothing else.
_A_TIME = {size: b"%d mtime=" % size for size in range(10, 100)}
_FILE, _PAX = ord("0"), ord("x")
_OCTAL_6 = 8 ** np.arange(5, -1, -1, dtype=np.int64)
_OCTAL_11 = 8 ** np.arange(10, -1, -1, dtype=np.int64)


class Run(NamedTuple):
    """Plain members that follow one another.

    Args:
        names: decoded as UTF-8 with ``surrogateescape``.
        starts, bodies, sizes, ends: of each member: its first block, its body, the bytes of that, its padding's end.
        headers: the bytes of all its headers, extensions included, in order.
    """

    names: list[str]
    starts: list[int]
    bodies: list[int]
    sizes: list[int]
    ends: list[int]
    headers: memoryview


def plain_run(buffer: bytes | mmap.mmap, place: int) -> Run | None:
    """The plain members from ``place`` on, up to `_LONGEST` headers; None where not even the first is plain."""
    places = np.array(_follow(buffer, place), np.int64)
    if not len(places):
        return None
    data = np.frombuffer(buffer, np.uint8, len(buffer) // BLOCK * BLOCK).reshape(-1, BLOCK)
    blocks = data.take(places // BLOCK, axis=0)
    good = _sound(blocks)
    n_good = len(good) if good.all() else int(good.argmin())
    is_file = blocks[:n_good, 156] == _FILE
    own = np.flatnonzero(is_file)
    if not len(own):
        return None
    n_good = int(own[-1]) + 1  # a PAX header at the end waits for its member
    places, blocks = places[:n_good], blocks[:n_good]
    sizes = (blocks[:, 124:135] - np.uint8(48)).astype(np.int64) @ _OCTAL_11
    behind_pax = own > np.concatenate(([-1], own[:-1])) + 1
    headers = blocks if len(own) == n_good else data.take(_with_bodies(places, sizes, is_file[:n_good]), axis=0)
    starts, bodies, sizes = places[own - behind_pax], places[own] + BLOCK, sizes[own]
    ends = bodies + _padded(sizes)
    numbers = [column.tolist() for column in (starts, bodies, sizes, ends)]
    return Run(_decoded(blocks[own, :100]), *numbers, headers=headers.data.cast("B"))


def _follow(buffer: bytes | mmap.mmap, place: int) -> list[int]:
    """The places of headers that follow one another by their sizes: files, and PAX headers directly before files."""
    places: list[int] = []
    limit, after_pax = len(buffer), False
    for _ in range(_LONGEST):
        try:
            size, kind = int(buffer[place + 124 : place + 135], 8), buffer[place + 156]
        except (ValueError, IndexError):
            break
        end = place + BLOCK + (size + 511 & -BLOCK)
        if not place < end <= limit:
            break
        if kind == _FILE:
            after_pax = False
        elif kind == _PAX and not after_pax and _is_harmless(buffer, place + BLOCK, size):
            after_pax = True
        else:
            break
        places.append(place)
        place = end
    return places


def _decoded(fields: npt.NDArray[np.uint8]) -> list[str]:
    """Shape (n, 100), name fields -> names."""
    names: list[bytes] = fields.view("S100")[:, 0].tolist()
    # A field may hold rubbish behind the NUL that ends its text.
    return [(name if b"\0" not in name else until_nul(name)).decode("utf-8", "surrogateescape") for name in names]


def _padded(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (sizes + BLOCK - 1) // BLOCK * BLOCK


def _with_bodies(
    places: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], is_file: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Block numbers of all headers, each PAX header with the blocks of its body."""
    counts = np.where(is_file, 1, 1 + _padded(sizes) // BLOCK)
    firsts = np.cumsum(counts) - counts
    return np.repeat(places // BLOCK - firsts, counts) + np.arange(counts.sum())


def _is_harmless(buffer: bytes | mmap.mmap, body: int, size: int) -> bool:
    """Whether the records of a PAX header leave name, size and kind alone."""
    if size > _LARGEST_PAX:
        return False
    data = buffer[body : body + size]
    if data.startswith(_A_TIME.get(size, b"?")) and data.find(b"\n") == size - 1:
        return True  # one record, a time with fractions, as most writers make it
    try:
        return _HARMLESS.issuperset(pax_records(data))
    except BadHeader:
        return False


def _sound(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Shape (n, 512) -> (n,): which blocks are plain headers: digits, checksum, and no prefix."""
    size_digits = blocks[:, 124:135] - np.uint8(48)
    sum_digits = blocks[:, 148:154] - np.uint8(48)
    total = blocks.sum(axis=1, dtype=np.uint32).astype(np.int64)
    field = blocks[:, 148:156].sum(axis=1, dtype=np.int64)
    stored = sum_digits.astype(np.int64) @ _OCTAL_6
    return np.asarray(
        (size_digits < 8).all(axis=1)
        & (sum_digits < 8).all(axis=1)
        & (blocks[:, 154] == 0)
        & ((blocks[:, 135] == 0) | (blocks[:, 135] == 32))
        & (blocks[:, 345] == 0)
        & (stored == total - field + 256)
    )
