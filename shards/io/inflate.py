"""A gzip reader that returns every byte that can be decompressed, and then says what is damaged.

Python's `gzip` raises at a wrong checksum and loses what stands before damage. This one goes on through all members of
a gzip (some writers begin one every 64 kB), whatever the checksum of the one before.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import IO

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20
_DEFLATE, _RAW = 8, -zlib.MAX_WBITS
# Flags of a member's header: what else stands in it.
_HEADER_CHECKSUM, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16


class GzipReader(io.RawIOBase):
    """The uncompressed bytes of a gzip, as a sequential raw stream.

    Attributes:
        damage: why decompression stopped before the end, else None; valid after the last read.
        mismatch: which checksum is wrong, else None: all bytes were returned, some may be wrong.
    """

    def __init__(self, packed: IO[bytes]) -> None:
        self.damage: str | None = None
        self.mismatch: str | None = None
        self._packed, self._rest, self._held = packed, b"", b""
        self._pieces = self._members()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._held:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._held = piece
        n = min(len(buffer), len(self._held))
        buffer[:n] = self._held[:n]
        self._held = self._held[n:]
        return n

    def _members(self) -> Iterator[bytes]:
        """All bytes of all members, in pieces of at most `CHUNK` bytes."""
        number = 0
        try:
            while self._more():
                self._skip_header()
                yield from self._body(number)
                number += 1
                # Zeros may fill up the last block of a tape or disk.
                while self._more() and not self._rest.lstrip(b"\0"):
                    self._rest = b""
                self._rest = self._rest.lstrip(b"\0")
        except EOFError:
            self.damage = "it ends early"
        except zlib.error as error:
            self.damage = str(error)

    def _body(self, number: int) -> Iterator[bytes]:
        """The bytes of one member, then the check of its checksum.

        Raises:
            EOFError: it ends early.
            zlib.error: it cannot be unpacked any further.
        """
        unpacker, crc, size = zlib.decompressobj(_RAW), 0, 0
        while not unpacker.eof:
            before, fed = unpacker.copy(), self._rest
            try:
                piece = unpacker.decompress(fed, CHUNK)
            except zlib.error:
                yield _intact_part(before, fed)
                raise
            self._rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            crc, size = zlib.crc32(piece, crc), size + len(piece)
            yield piece
            if not unpacker.eof and not piece and not self._more():
                raise EOFError
        trailer = self._take(8)
        if trailer != crc.to_bytes(4, "little") + (size % (1 << 32)).to_bytes(4, "little"):
            which = "CRC" if trailer[:4] != crc.to_bytes(4, "little") else "length"
            where = f"of its member {number}" if number else "of the gzip"
            self.mismatch = self.mismatch or f"the {which} {where} is wrong"

    def _skip_header(self) -> None:
        fixed = self._take(10)
        if fixed[:2] != GZIP_MAGIC or fixed[2] != _DEFLATE:
            raise zlib.error("no gzip header where one should be")
        flags = fixed[3]
        if flags & _EXTRA:
            self._take(int.from_bytes(self._take(2), "little"))
        for flag in (_NAME, _COMMENT):
            if flags & flag:
                self._skip_text()
        if flags & _HEADER_CHECKSUM:
            self._take(2)

    def _skip_text(self) -> None:
        while b"\0" not in self._rest:
            self._rest = b""
            if not self._more():
                raise EOFError
        self._rest = self._rest.partition(b"\0")[2]

    def _take(self, n: int) -> bytes:
        while len(self._rest) < n:
            more = self._packed.read(CHUNK)
            if not more:
                raise EOFError
            self._rest += more
        taken, self._rest = self._rest[:n], self._rest[n:]
        return taken

    def _more(self) -> bool:
        """Whether there is anything left to unpack."""
        self._rest = self._rest or self._packed.read(CHUNK)
        return bool(self._rest)


def _intact_part(unpacker: zlib._Decompress, fed: bytes) -> bytes:
    """The longest output that can be decompressed of ``fed``, by bisection."""
    whole, piece, too_many = 0, b"", CHUNK
    while too_many - whole > 1:
        n = (whole + too_many) // 2
        try:
            piece, whole = unpacker.copy().decompress(fed, n), n
        except zlib.error:
            too_many = n
    return piece
