"""Recognises files that are no tar (zip, zstd, Git LFS pointer, HTML ...) by their first bytes.

A damaged tar is still a tar: `shards.tar.walk` reads it.
"""

from __future__ import annotations

from shards.faults import Fault
from shards.io.mapped import Buffer
from shards.tar.header import BLOCK
from shards.tar.walk import is_header, next_header

_MAGICS = {
    b"PK\x03\x04": "a zip file",
    b"PK\x05\x06": "a zip file",
    b"version https://git-lfs": "a Git LFS pointer; fetch it with 'git lfs pull'",
    b"BZh": "a bzip2 file; unpack it first",
    b"\xfd7zXZ\0": "an xz file; unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd file; unpack it first",
    b"7z\xbc\xaf\x27\x1c": "a 7z file",
    b"<": "markup, perhaps the error page of a download",
    b"PAR1": "a Parquet file",
}


def not_a_tar_fault(buffer: Buffer, shard: str, damage: str | None = None) -> Fault | None:
    """The fault of a file that is no tar: empty, another format, or without any header; None where it is one.

    Args:
        damage: why decompression of its gzip stopped early, if it did.
    """
    if len(buffer) == 0 and damage is None:
        return Fault("truncated", shard, None, 0, "0 bytes, not a tar archive")
    beginning = bytes(buffer[:BLOCK])
    if len(beginning) == BLOCK and (not any(beginning) or is_header(beginning)):
        return None
    other = next((what for magic, what in _MAGICS.items() if beginning.startswith(magic)), None)
    if other is None and next_header(buffer, BLOCK) < len(buffer):
        return None
    if damage is not None:
        held = f"no header in the {len(buffer)} bytes that can be unpacked of this gzip ({damage})"
        return Fault("truncated", shard, None, 0, f"not a tar archive: {held}")
    return Fault("not-a-tar", shard, None, 0, f"not a tar archive: {other or 'no header in it'}")
