"""Tars made block by block, as no library makes them, and what the walk and Python's `tarfile` find in a tar."""

from __future__ import annotations

import io
import struct
import tarfile

from shards.faults import Fault
from shards.tar.header import BLOCK
from shards.tar.walk import Member, walk

END = bytes(2 * BLOCK)


def header(name: bytes, size: int = 0, kind: bytes = b"0", link: bytes = b"", size_field: bytes = b"") -> bytes:
    """A ustar header by hand."""
    fields = (name, b"0000644\0", b"0001000\0", b"0001000\0", size_field or b"%011o\0" % size, b"%011o\0" % 0)
    start = struct.pack("100s8s8s8s12s12s", *fields)
    rest = struct.pack("c100s8s", kind, link, b"ustar\00000")
    return summed((start + b" " * 8 + rest).ljust(BLOCK, b"\0"))


def summed(block: bytes, signed: bool = False) -> bytes:
    """A header with its checksum made right."""
    blank = block[:148] + b" " * 8 + block[156:]
    total = sum(byte - 256 if signed and byte > 127 else byte for byte in blank)
    return blank[:148] + b"%06o\0 " % total + blank[156:]


def padded(body: bytes) -> bytes:
    return body + bytes(-len(body) % BLOCK)


def member(name: bytes, body: bytes = b"", kind: bytes = b"0", link: bytes = b"") -> bytes:
    return header(name, len(body), kind, link) + padded(body)


def pax(*records: bytes, kind: bytes = b"x") -> bytes:
    """A PAX header; each record is ``keyword=value``."""
    return member(b"PaxHeaders/x", b"".join(line(record) for record in records), kind)


def line(record: bytes) -> bytes:
    n = len(record) + 2
    n += len(str(n + len(str(n))))
    return b"%d %s\n" % (n, record)


def found(tar: bytes) -> tuple[list[Member], list[Fault]]:
    both = list(walk(tar, "x.tar"))
    return [one for one in both if isinstance(one, Member)], [one for one in both if isinstance(one, Fault)]


def names(tar: bytes) -> list[str]:
    return [one.name for one in found(tar)[0]]


def faults(tar: bytes) -> list[tuple[str, int | None]]:
    return [(fault.kind, fault.offset) for fault in found(tar)[1]]


def listed(tar: bytes) -> list[tuple[str, int, int, int]]:
    """Name, first block, body and size of every member, by Python's reader."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return [(one.name, one.offset, one.offset_data, one.size if one.isreg() else 0) for one in archive]
