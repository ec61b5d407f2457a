"""The vectorised half of the tar walk: parses runs of plain members with numpy instead of one by one.

Plain is what nearly every tar is made of: a regular file with an octal size and its whole name in its header, alone or
after a PAX header that says nothing of name or size. The size fields lead from header to header; then all header blocks
found are validated at once (checksums, digits, PAX records), and no body is touched. A member that is not plain ends
the run; `shards.tar.walk` parses it, and gives the same result for plain members, only more slowly.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from shards.arrays import BoolArray, Int64Array, UInt8Array
from shards.tar.blocks import blocks_of, concatenated_ranges, digit_values, octal_numbers
from shards.tar.header import BLOCK, BadHeader, pax_records, until_nul
from shards.tar.header_chain import follow_chains, guess_headers

#: Header blocks that are followed before they are validated; `next_lookahead` chooses a number between these.
MIN_LOOKAHEAD, MAX_LOOKAHEAD = 16, 1024
#: Headers that a chain has where many are followed at once, as far as those that come next tell.
_HEADERS_A_CHAIN = 32
#: Bytes of a header that hold its name.
NAME_BYTES = 100
#: PAX keywords that set neither name, size nor kind.
IGNORED_KEYWORDS = frozenset(("mtime", "atime", "ctime", "uid", "gid", "uname", "gname", "comment"))
_MAX_PAX_BYTES = 4096
#: Bytes of a PAX record of a time, in nanoseconds at the finest, and some more.
_MAX_TIME_BYTES = 40
_FILE, _PAX, _LINE_FEED = ord("0"), ord("x"), ord("\n")
#: Type flags with which a run may begin.
PLAIN_TYPES = (_FILE, _PAX)


class MemberRun(NamedTuple):
    """Consecutive plain members.

    Args:
        names: shape (n, 100), uint8: the name fields; `decode_names` decodes them.
        starts, bodies, sizes, ends: shape (n,), int64, bytes: offset of each member's first header block, offset and
            size of its body, end of its padding.
    """

    names: UInt8Array
    starts: Int64Array
    bodies: Int64Array
    sizes: Int64Array
    ends: Int64Array


def member_runs(buffer: bytes | mmap.mmap, offset: int, n_headers: int) -> Iterator[tuple[MemberRun, memoryview]]:
    """Yield runs of plain members from byte ``offset`` on, each with the bytes of its headers, extensions included.

    Ends at the first member that is not plain, or after the lookahead.

    Args:
        n_headers: lookahead, from `MIN_LOOKAHEAD`; `MAX_LOOKAHEAD` follows many chains at once.
    """
    data, done = blocks_of(buffer), 0
    found = (
        _header_blocks_ahead(buffer, data, offset // BLOCK)
        if n_headers >= MAX_LOOKAHEAD
        else _header_blocks(buffer, offset, n_headers)
    )
    while done < len(found):
        # Few enough at a time for their headers to stay in the processor's cache.
        run, headers, n = _leading_run(data, found[done : done + MAX_LOOKAHEAD])
        if n == 0:
            return
        yield run, headers
        done += n


def _leading_run(data: UInt8Array, found: Int64Array) -> tuple[MemberRun, memoryview, int]:
    """The plain members at the beginning of these blocks, the bytes of their headers, and the number of blocks used."""
    blocks = data.take(found, axis=0)
    sound, sizes = _parse_headers(blocks)
    after = found + 1 + (sizes + BLOCK - 1) // BLOCK
    is_file = blocks[:, 156] == _FILE
    plain = sound & (after <= len(data)) & (is_file | _ignorable_pax(data, blocks, found, sizes))
    plain[1:] &= is_file[:-1] | is_file[1:]  # one PAX header a member
    own = np.flatnonzero(is_file[: _n_leading_true(plain)])
    n = int(own[-1]) + 1 if len(own) else 0  # a PAX header at the end waits for its member
    headers = blocks[:n]
    if len(own) < n:  # a PAX header goes with its body
        counts = np.where(is_file[:n], 1, after[:n] - found[:n])
        headers = data.take(concatenated_ranges(found[:n], counts), axis=0)
    behind_pax = ~is_file[own - 1] & (own > 0)
    starts, bodies, ends = found[own - behind_pax], found[own] + 1, after[own]
    run = MemberRun(blocks[own, :NAME_BYTES], starts * BLOCK, bodies * BLOCK, sizes[own], ends * BLOCK)
    return run, headers.reshape(-1).data, n


def next_lookahead(n_headers: int, n_members: int) -> int:
    """The next lookahead: four times as long where at least a quarter of it was plain, else the shortest."""
    return min(4 * n_headers, MAX_LOOKAHEAD) if 4 * n_members >= n_headers else MIN_LOOKAHEAD


def decode_names(fields: UInt8Array) -> list[str]:
    """Name fields, shape (n, 100) -> names, decoded as UTF-8 with ``surrogateescape``."""
    raw: list[bytes] = fields.view(f"S{NAME_BYTES}")[:, 0].tolist()
    joined = b"\n".join(raw)
    if b"\0" in joined:
        # A field may hold rubbish behind the NUL that ends its text.
        return [until_nul(name).decode("utf-8", "surrogateescape") for name in raw]
    # A line feed ends every sequence of UTF-8, so that all names can be decoded as one text.
    names = joined.decode("utf-8", "surrogateescape").split("\n")
    return names if len(names) == len(raw) else [name.decode("utf-8", "surrogateescape") for name in raw]


def _header_blocks(buffer: bytes | mmap.mmap, offset: int, max_headers: int) -> Int64Array:
    """Numbers of up to ``max_headers`` blocks to which the size fields lead; not validated yet."""
    places = []
    # What `int` rejects, `_parse_headers` rejects, too: such a block stands last, and ends the run.
    with suppress(ValueError):
        for _ in range(max_headers):
            places.append(offset)
            offset += BLOCK + (int(buffer[offset + 124 : offset + 135], 8) + BLOCK - 1 & -BLOCK)
    found = np.array(places, np.int64)
    return found[: _n_leading_true((found >= 0) & (found <= len(buffer) - BLOCK))] // BLOCK


def _header_blocks_ahead(buffer: bytes | mmap.mmap, data: UInt8Array, first: int) -> Int64Array:
    """As `_header_blocks` but far ahead, along many chains at once, up to the first that does not meet the next."""
    near = _header_blocks(buffer, first * BLOCK, _HEADERS_A_CHAIN)
    beginnings = guess_headers(data, first, int(near[-1]) - first if len(near) else 1)
    steps = follow_chains(data, beginnings[:-1], beginnings[1:])
    found = steps.numbers[steps.chains < _n_leading_true(steps.arrived)]
    return found if len(found) else _header_blocks(buffer, first * BLOCK, MAX_LOOKAHEAD)


def _n_leading_true(mask: BoolArray) -> int:
    """Length of the leading stretch of True."""
    return len(mask) if mask.all() else int(mask.argmin())


def _parse_headers(blocks: UInt8Array) -> tuple[BoolArray, Int64Array]:
    """Shape (n, 512) -> valid (n,), bool, and sizes (n,), int64.

    Valid: the checksum holds, size and checksum are plain octal digits, and there is no name prefix.
    """
    size, checksum = digit_values(blocks[:, 124:135]), digit_values(blocks[:, 148:154])
    total = blocks.sum(axis=1, dtype=np.uint32).astype(np.int64)
    # The checksum's own bytes, six digits, a NUL and one that may be anything, are summed as if they were spaces.
    field = checksum.sum(axis=0, dtype=np.int64) + 6 * ord("0") + blocks[:, 155]
    sound: BoolArray = octal_numbers(checksum) == total - field + 8 * ord(" ")
    sound &= (size.max(axis=0) < 8) & (checksum.max(axis=0) < 8)
    sound &= ((blocks[:, 135] == 0) | (blocks[:, 135] == ord(" "))) & (blocks[:, 154] == 0) & (blocks[:, 345] == 0)
    return sound, octal_numbers(size)


def _ignorable_pax(data: UInt8Array, blocks: UInt8Array, found: Int64Array, sizes: Int64Array) -> BoolArray:
    """Shape (n,), bool: which blocks are PAX headers that set neither name, size nor kind."""
    harmless = np.zeros(len(blocks), np.bool_)
    rows = np.flatnonzero((blocks[:, 156] == _PAX) & (found + 1 < len(data)) & (sizes <= _MAX_PAX_BYTES))
    if len(rows):
        bodies, lengths = data[:, :_MAX_TIME_BYTES][found[rows] + 1], sizes[rows]
        # One time and nothing else, as most writers make it: "NN mtime=...\n" of NN bytes.
        digits = bodies[:, :2].T.astype(np.int64) - ord("0")
        one_time = (lengths > 9) & (lengths <= _MAX_TIME_BYTES) & (digits[0] * 10 + digits[1] == lengths)
        one_time &= (digits >= 0).all(axis=0) & (digits < 10).all(axis=0)
        one_time &= (bodies[:, 2:9] == np.frombuffer(b" mtime=", np.uint8)).all(axis=1)
        one_time &= (bodies == _LINE_FEED).argmax(axis=1) == lengths - 1
        harmless[rows] = one_time
        for row in rows[~one_time]:
            body = data[found[row] + 1 :][: -(-sizes[row] // BLOCK)].reshape(-1)[: sizes[row]]
            harmless[row] = len(body) == sizes[row] and _is_ignorable(body.tobytes())
    return harmless


def _is_ignorable(body: bytes) -> bool:
    try:
        return IGNORED_KEYWORDS.issuperset(pax_records(body))
    except BadHeader:
        return False
