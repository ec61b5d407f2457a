"""Writes tars whose bytes depend on their members alone, in shards of a given size.

New members are USTAR, PAX where a name needs it, without times or owners. The packers choose what goes into a sample;
`shards.rewriting.copy` copies members with their own headers.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from shards.errors import Misuse
from shards.io.atomic import atomic_write

BLOCK = tarfile.BLOCKSIZE
#: What ends a tar: two blocks of zeros.
END = bytes(2 * BLOCK)
#: Size of a new shard where nobody asks for another: 256 MiB.
SHARD_SIZE = 256 << 20
#: Bytes that no shard may exceed.
MAX_SHARD_SIZE = 1 << 60

#: The members of one sample: (name, body), in the order in which they are written.
Sample = Sequence[tuple[str, bytes]]


def shard_name(number: int) -> str:
    """File name of the n-th shard.

    >>> shard_name(7)
    '000007.tar'
    """
    return f"{number:06d}.tar"


def member_header(name: str, size: int) -> bytes:
    """Header blocks of a regular member, mode 0644 and nothing else set; a PAX header first where the name needs one.

    Args:
        name: as `tarfile` gives it: bytes that are not UTF-8 stand as lone surrogates.
        size: of the body, in bytes.
    """
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    """The zeros that fill the last block of a body of ``size`` bytes."""
    return bytes(-size % BLOCK)


def sample_bytes(sample: Sample) -> bytes:
    """Headers, bodies and padding of one sample's members, concatenated."""
    return b"".join(
        part for name, body in sample for part in (member_header(name, len(body)), body, padding(len(body)))
    )


def write_shards(folder: Path, samples: Iterable[Sample], *, shard_size: int = SHARD_SIZE) -> list[Path]:
    """Write ``000000.tar``, ``000001.tar`` ... with every sample whole.

    A shard is closed before the sample that would make it, end blocks included, larger than ``shard_size``;
    a sample larger than that has a shard of its own.

    Args:
        folder: made where it is missing.
        samples: read once, one at a time; none of them may be empty.
        shard_size: bytes, at least 1.

    Returns:
        The shards in order; none where there is no sample.

    Raises:
        Misuse: ``shard_size`` is not positive.
        OSError: disk full, no permission; shards closed before stay.
    """
    return [path for path, _ in written_shards(folder, samples, shard_size=shard_size)]


def written_shards(
    folder: Path, samples: Iterable[Sample], *, shard_size: int, first_number: int = 0
) -> Iterator[tuple[Path, int]]:
    """As `write_shards`: each shard when it is closed, and the number of its samples.

    Args:
        first_number: of the first shard; those before it were written earlier.
    """
    check_shard_size(shard_size)
    pending = (sample_bytes(sample) for sample in samples)
    first, number = next(pending, None), first_number
    while first is not None:
        path = folder / shard_name(number)
        with atomic_write(path) as file:
            first, n_samples = _write_shard(file, first, pending, shard_size)
        yield path, n_samples
        number += 1


def check_shard_size(shard_size: int) -> None:
    """Raise `Misuse` unless ``shard_size`` is 1 to `MAX_SHARD_SIZE` bytes."""
    if not 1 <= shard_size <= MAX_SHARD_SIZE:
        expected, todo = f"1 to {MAX_SHARD_SIZE} bytes", "give another size"
        raise Misuse("the size of a shard", expected=expected, found=shard_size, todo=todo)


def _write_shard(file: BinaryIO, first: bytes, pending: Iterator[bytes], shard_size: int) -> tuple[bytes | None, int]:
    """Write one shard that begins with ``first``; the sample that did not fit, None after the last, and the count."""
    size, n_samples = file.write(first) + len(END), 1
    for sample in pending:
        if size + len(sample) > shard_size:
            file.write(END)
            return sample, n_samples
        size, n_samples = size + file.write(sample), n_samples + 1
    file.write(END)
    return None, n_samples
