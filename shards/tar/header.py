"""Parses a single 512-byte tar header block (v7, ustar, GNU, PAX): numbers, checksum, names, PAX records.

`shards.tar.walk` puts blocks together to members.
"""

from __future__ import annotations

import re
from typing import NamedTuple

BLOCK = 512
#: Where a header keeps its checksum, which is summed as if it were spaces.
_CHECKSUM = slice(148, 156)
_SPACES = 8 * ord(" ")
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*", re.DOTALL)

Records = dict[str, bytes]


class BadHeader(ValueError):
    """The block is no valid header; the text says why."""


class Header(NamedTuple):
    """A header block as it stands, before any extension is applied.

    Args:
        type: the type flag, one byte.
        name, link: bytes up to the first NUL, the ustar prefix joined to the name.
        size: bytes of the body as the size field has it, >= 0.
    """

    type: bytes
    name: bytes
    link: bytes
    size: int


def parse(block: bytes) -> Header:
    """Parse one block of 512 bytes.

    Raises:
        BadHeader: the checksum or a number field is invalid.
    """
    if not checksum_holds(block):
        raise BadHeader("bad header checksum")
    size = number(block[124:136])
    if size < 0:
        raise BadHeader(f"negative size {size}")
    name = until_nul(block[:100])
    # GNU headers keep times where ustar keeps the prefix, and v7 headers keep nothing there.
    if block[345] and block[257:263] == b"ustar\0":
        name = until_nul(block[345:500]) + b"/" + name
    return Header(block[156:157], name, until_nul(block[157:257]), size)


def checksum_holds(block: bytes) -> bool:
    """Whether a block's checksum field is the sum of its bytes, unsigned or, as in old tars, signed."""
    try:
        stored = number(block[_CHECKSUM])
    except BadHeader:
        return False
    total = sum(block) - sum(block[_CHECKSUM]) + _SPACES
    if stored == total:
        return True
    n_negative = sum(byte > 127 for byte in block) - sum(byte > 127 for byte in block[_CHECKSUM])
    return n_negative > 0 and stored == total - 256 * n_negative


def number(field: bytes) -> int:
    """A number of a header: octal digits between spaces and NULs, or base-256 where its first bit is set.

    Raises:
        BadHeader: it is neither.

    >>> number(b"00000000014" + bytes(1)), number(b"\\x80" + bytes(10) + b"\\x0c")
    (12, 12)
    """
    if field[0] in (0x80, 0xFF):
        value = int.from_bytes(field[1:], "big")
        return value if field[0] == 0x80 else value - (1 << 8 * (len(field) - 1))
    match = _OCTAL.match(field)
    # What follows the first NUL is not looked at, as in every reader.
    if match is None or (match.end() < len(field) and b"\0" not in match[0]):
        raise BadHeader(f"not a number: {field!r}")
    return int(match[1] or b"0", 8)


def until_nul(field: bytes) -> bytes:
    """A text field up to its first NUL."""
    return field.partition(b"\0")[0]


def pax_records(data: bytes) -> Records:
    """The records of a PAX header: ``length keyword=value`` lines; the last of a keyword counts.

    Raises:
        BadHeader: a record's length does not hold.
    """
    records: Records = {}
    offset = 0
    while offset < len(data) and data[offset]:
        space = data.find(b" ", offset, offset + 20)
        digits = data[offset:space]
        if space < 0 or not digits.isdigit():
            raise BadHeader("PAX record without a length")
        end = offset + int(digits)
        keyword, equals, value = data[space + 1 : end - 1].partition(b"=")
        if end > len(data) or end <= space or not equals or data[end - 1] != 0x0A:
            raise BadHeader(f"PAX record of {int(digits)} bytes does not end where it says")
        records[keyword.decode("utf-8", "surrogateescape")] = value
        offset = end
    return records
