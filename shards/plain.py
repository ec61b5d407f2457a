"""Runs of plain members, read in one go: the fast half of the walk.

Plain is what nearly every shard is made of: a regular file with an octal size and its whole name in its header, alone
or behind a PAX header that says nothing of names and sizes. All blocks of a window that look like headers are judged at
once (checksums, digits, whether each stands where the one before it ends). Whatever is not plain ends the run and is
left to `shards.tars`, which gives the same answer for plain members, only more slowly.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shards.headers import BLOCK, BadHeader, pax_records, until_nul

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Blocks that are looked at for one run, at first and at most; `next_window` chooses between.
SHORTEST_WINDOW, LONGEST_WINDOW = 128, 8192
#: Blocks a member on average, above which looking at every block costs more than it saves.
_SPARSE = 64
#: PAX keywords that leave name, size and kind alone.
_HARMLESS = frozenset(("mtime", "atime", "ctime", "uid", "gid", "uname", "gname", "comment"))
_LARGEST_PAX = 4096
_FILE, _PAX, _LINE_FEED = ord("0"), ord("x"), ord("\n")
#: Bytes 256 to 259 of a header: the end of an empty link name, and the beginning of "ustar".
_LOOKS_LIKE_A_HEADER = int.from_bytes(b"\0ust", "little")
_OCTAL = 8 ** np.arange(10, -1, -1, dtype=np.int64)


class Run(NamedTuple):
    """Plain members that follow one another.

    Args:
        names: decoded as UTF-8 with ``surrogateescape``.
        starts, bodies, sizes, ends: of each member: its first block, its body, the bytes of that, its padding's end.
    """

    names: list[str]
    starts: list[int]
    bodies: list[int]
    sizes: list[int]
    ends: list[int]


def plain_run(buffer: bytes | mmap.mmap, place: int, n_blocks: int) -> tuple[Run, memoryview] | None:
    """The plain members whose headers lie within ``n_blocks`` blocks from ``place`` on; None where there is none.

    Beside the run: the bytes of all its headers, extensions included, in order.
    """
    data = np.frombuffer(buffer, np.uint8, len(buffer) // BLOCK * BLOCK).reshape(-1, BLOCK)
    first = place // BLOCK
    window = data[first : first + n_blocks]
    found = np.flatnonzero(window.view("<u4")[:, 64] == _LOOKS_LIKE_A_HEADER)
    if not len(found) or found[0] != 0:
        return None
    blocks = window.take(found, axis=0)
    sizes = _octal(blocks[:, 124:135])
    after = found + 1 + (sizes + BLOCK - 1) // BLOCK
    follows = np.concatenate(([True], after[:-1] == found[1:]))
    is_file = blocks[:, 156] == _FILE
    plain = (
        _sound(blocks) & follows & (first + after <= len(data)) & (is_file | _harmless(window, blocks, found, sizes))
    )
    plain[1:] &= is_file[:-1] | is_file[1:]  # one PAX header a member
    own = np.flatnonzero(is_file[: _n_leading(plain)])
    if not len(own):
        return None
    n = int(own[-1]) + 1  # a PAX header at the end waits for its member
    headers = blocks[:n] if len(own) == n else window.take(_with_bodies(found[:n], after[:n], is_file[:n]), axis=0)
    behind_pax = ~is_file[own - 1] & (own > 0)
    starts, bodies = first + found[own - behind_pax], first + found[own] + 1
    run = Run(
        names=_decoded(blocks[own, :100]),
        starts=(starts * BLOCK).tolist(),
        bodies=(bodies * BLOCK).tolist(),
        sizes=sizes[own].tolist(),
        ends=((first + after[own]) * BLOCK).tolist(),
    )
    return run, headers.data.cast("B")


def next_window(n_blocks: int, n_members: int) -> int:
    """How many blocks to look at next: twice as many where members lie close, few where their bodies are large."""
    if n_members * _SPARSE < n_blocks:
        return SHORTEST_WINDOW
    return min(2 * n_blocks, LONGEST_WINDOW)


def _n_leading(mask: Mask) -> int:
    """How many are true before the first that is not."""
    return len(mask) if mask.all() else int(mask.argmin())


def _octal(digits: Bytes) -> Ints:
    """Shape (n, k) characters -> (n,) numbers; rubbish where `_sound` finds no digits."""
    values: Ints = (digits - np.uint8(48)).astype(np.int64) @ _OCTAL[-digits.shape[1] :]
    return values


def _sound(blocks: Bytes) -> Mask:
    """Shape (n, 512) -> (n,): which blocks are headers with plain digits, a checksum that holds, and no prefix."""
    total = blocks.sum(axis=1, dtype=np.uint32).astype(np.int64)
    field = blocks[:, 148:156].sum(axis=1, dtype=np.int64)
    sound: Mask = _octal(blocks[:, 148:154]) == total - field + 256
    sound &= ((blocks[:, 124:135] - np.uint8(48)) < 8).all(axis=1)
    sound &= ((blocks[:, 148:154] - np.uint8(48)) < 8).all(axis=1)
    sound &= (blocks[:, 135] == 0) | (blocks[:, 135] == 32)
    sound &= (blocks[:, 154] == 0) & (blocks[:, 345] == 0)
    return sound


def _harmless(window: Bytes, blocks: Bytes, found: Ints, sizes: Ints) -> Mask:
    """Shape (n,): which blocks are PAX headers whose records leave name, size and kind alone."""
    harmless = np.zeros(len(blocks), np.bool_)
    rows = np.flatnonzero((blocks[:, 156] == _PAX) & (found + 1 < len(window)) & (sizes <= _LARGEST_PAX))
    if len(rows):
        bodies, lengths = window.take(found[rows] + 1, axis=0)[:, :100], sizes[rows]
        # One time and nothing else, as most writers make it: "NN mtime=...\n" of NN bytes.
        one_time = (lengths > 9) & (lengths < 100) & (_two_digits(bodies) == lengths)
        one_time &= (bodies[:, 2:9] == np.frombuffer(b" mtime=", np.uint8)).all(axis=1)
        one_time &= (bodies == _LINE_FEED).argmax(axis=1) == lengths - 1
        harmless[rows] = one_time
        for row in rows[~one_time]:
            body = window[found[row] + 1 :].reshape(-1)[: sizes[row]]
            harmless[row] = len(body) == sizes[row] and _are_harmless(body.tobytes())
    return harmless


def _two_digits(bodies: Bytes) -> Ints:
    digits = bodies[:, :2].astype(np.int64) - 48
    return np.where(((digits >= 0) & (digits < 10)).all(axis=1), digits @ np.array([10, 1]), -1)


def _are_harmless(body: bytes) -> bool:
    try:
        return _HARMLESS.issuperset(pax_records(body))
    except BadHeader:
        return False


def _with_bodies(found: Ints, after: Ints, is_file: Mask) -> Ints:
    """The blocks of all headers, each PAX header with those of its body."""
    counts = np.where(is_file, 1, after - found)
    firsts = np.cumsum(counts) - counts
    return np.repeat(found - firsts, counts) + np.arange(counts.sum())


def _decoded(fields: Bytes) -> list[str]:
    """Shape (n, 100), name fields -> names."""
    raw: list[bytes] = fields.view("S100")[:, 0].tolist()
    joined = b"\n".join(raw)
    if b"\0" in joined:
        # A field may hold rubbish behind the NUL that ends its text.
        return [until_nul(name).decode("utf-8", "surrogateescape") for name in raw]
    # A line feed ends every sequence of UTF-8, so that all names can be decoded as one text.
    names = joined.decode("utf-8", "surrogateescape").split("\n")
    return names if len(names) == len(raw) else [name.decode("utf-8", "surrogateescape") for name in raw]
