"""Follows many chains of tar headers at once with numpy: each size field tells where the next header stands.

Serves three callers: hashing all headers of a shard whose sample offsets are known, finding headers ahead in a tar of
which nothing is known (`guess_headers`; a chain that arrives where the next begins proves that guess), and finding
repeated names. No body is read. What is not recognised is left to `shards.tar.walk`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xxhash

from shards.arrays import BoolArray, Int64Array
from shards.tar.blocks import Blocks, blocks_of, concatenated_ranges, digit_values, octal_numbers
from shards.tar.header import BLOCK
from shards.tar.text_hashes import Hashes, any_twice, hashes_of

_FILE, _EXTENSION, _BODILESS = 1, 2, 3
#: By type flag: files; extension headers, whose body belongs to the header that follows; links, devices and folders.
_KINDS = np.zeros(256, dtype=np.uint8)
_KINDS[list(b"0\x007")], _KINDS[list(b"xXLK")], _KINDS[list(b"123456")] = _FILE, _EXTENSION, _BODILESS
#: Runs per batch: few enough that their headers stay in the processor's cache.
_BATCH = 1024
#: For guesses: the number of chains, and the blocks searched at the beginning of each.
_MAX_CHAINS, _SEARCH_BLOCKS = 1024, 64
#: Bytes 256 to 259 of a header: the end of an empty link name, and the beginning of "ustar".
_LOOKS_LIKE_A_HEADER = int.from_bytes(b"\0ust", "little")
#: The bit that makes a letter of ASCII a small one; it makes some other characters alike, too.
_LOWER = np.uint8(0x20)


def hash_headers(blocks: Blocks, first: Int64Array, counts: Int64Array, digest: xxhash.xxh3_64) -> bool:
    """Update ``digest`` with the headers of runs of whole members, in order.

    Args:
        blocks: the tar, as `blocks_of` gives it.
        first, counts: shape (n,), int64: first block and number of blocks of each run.

    Returns:
        False where only a walk can tell the headers; part of them may have been hashed then.
    """
    for found in _headers_of_runs(blocks, first, counts):
        if found is None:
            return False
        digest.update(found.blocks.data)
    return True


def hash_distinct(blocks: Blocks, first: Int64Array, counts: Int64Array, digest: xxhash.xxh3_64) -> bool:
    """As `hash_headers`, but False, too, where two members may have the same name, case ignored."""
    names: list[Hashes | None] = []
    for found in _headers_of_runs(blocks, first, counts):
        if found is None:
            return False
        digest.update(found.blocks.data)
        names.append(_name_hashes(found.blocks[found.own]))
    plain = [one for one in names if one is not None]
    if len(plain) == len(names) and not (plain and any_twice(np.concatenate(plain))):
        return True
    return not may_have_duplicates(blocks, first, counts)


class RunHeaders(NamedTuple):
    """The header blocks of some runs.

    Args:
        blocks: shape (m, 512), uint8: bodies of extension headers included.
        own: shape (members,), int64: the places of the members' own headers among them.
    """

    blocks: Blocks
    own: Int64Array


def _headers_of_runs(blocks: Blocks, first: Int64Array, counts: Int64Array) -> Iterator[RunHeaders | None]:
    """`run_headers` of some runs after the other; ends after None."""
    for start in range(0, len(first), _BATCH):
        found = run_headers(blocks, first[start : start + _BATCH], counts[start : start + _BATCH])
        yield found
        if found is None:
            return


def run_headers(blocks: Blocks, first: Int64Array, counts: Int64Array) -> RunHeaders | None:
    """The header blocks of runs of whole members.

    Args:
        blocks, first, counts: as in `hash_headers`.

    Returns:
        None where a run is no chain of headers that ends where the run ends: a size in base-256 or in a PAX record, a
        sparse member, damage.
    """
    stops = first + counts
    if first.size and int(stops.max()) > len(blocks):
        return None
    steps = follow_chains(blocks, first, stops)
    if not steps.arrived.all():
        return None
    if (steps.counts == 1).all():
        return RunHeaders(blocks.take(steps.numbers, axis=0), np.arange(len(steps.numbers)))
    headers = blocks.take(concatenated_ranges(steps.numbers, steps.counts), axis=0)
    # An extension header may say how long its member is: a chain may arrive without it, by way of its body.
    if b" size=" in headers.tobytes():
        return None
    own = np.cumsum(steps.counts) - steps.counts
    return RunHeaders(headers, own[_KINDS[headers[own, 156]] != _EXTENSION])


class ChainedHeaders(NamedTuple):
    """The headers found along chains, chain after chain.

    Args:
        arrived: shape (chains,), bool: whether a chain leads exactly to its end.
        chains: shape (n,), int64: the chain of each header.
        numbers: shape (n,), int64: the number of its block.
        counts: shape (n,), int64: its blocks; those of an extension header include its body.
    """

    arrived: BoolArray
    chains: Int64Array
    numbers: Int64Array
    counts: Int64Array


def follow_chains(blocks: Blocks, first: Int64Array, stops: Int64Array) -> ChainedHeaders:
    """Go from block ``first[i]`` to ``stops[i]``, header by header, all i at once; an invalid header ends its chain.

    Args:
        first, stops: shape (chains,), int64, block numbers; ``first < stops <= len(blocks)``.
    """
    chains, numbers, arrived = np.arange(len(first)), first, np.zeros(len(first), np.bool_)
    steps = [(chains[:0], numbers[:0], numbers[:0])]
    while chains.size:
        fields = blocks[:, 124:157][numbers]
        size, sound = _parse_sizes(fields[:, :12])
        kind = _KINDS[fields[:, 32]]
        n_body = -(-size // BLOCK)
        after, stop = numbers + 1 + n_body, stops[chains]
        sound &= (kind > 0) & ((kind != _BODILESS) | (size == 0)) & (after <= stop)
        n_blocks = np.where(kind == _EXTENSION, 1 + n_body, 1)
        if not sound.all():
            chains, numbers, n_blocks, after, stop = (x[sound] for x in (chains, numbers, n_blocks, after, stop))
        steps.append((chains, numbers, n_blocks))
        goes_on = after < stop
        arrived[chains[~goes_on]] = True
        chains, numbers = chains[goes_on], after[goes_on]
    found = [np.concatenate(column) for column in zip(*steps, strict=True)]
    # Of short numbers numpy sorts by radix.
    order = np.argsort(found[0].astype(np.uint16) if len(first) <= 1 << 16 else found[0], kind="stable")
    return ChainedHeaders(arrived, *(column[order] for column in found))


def guess_headers(blocks: Blocks, first: int, apart: int) -> Int64Array:
    """Blocks that look like headers: ``first``, and at most one near the beginning of each stretch that follows.

    Args:
        apart: blocks of a stretch; no less than twice those that are searched are taken.

    Returns:
        Shape (n,), int64, increasing, 1 <= n <= `_MAX_CHAINS`.
    """
    begins = first + max(2 * _SEARCH_BLOCKS, apart) * np.arange(1, _MAX_CHAINS)
    begins = begins[begins + _SEARCH_BLOCKS <= len(blocks)]
    seems = blocks.view("<u4")[:, 64][begins[:, None] + np.arange(_SEARCH_BLOCKS)] == _LOOKS_LIKE_A_HEADER
    return np.concatenate(([first], (begins + seems.argmax(axis=1))[seems.any(axis=1)]))


def may_have_duplicates(blocks: Blocks, first: Int64Array, counts: Int64Array) -> bool:
    """Whether two members of these runs may have the same name, case ignored; long names that begin alike count.

    Args:
        blocks, first, counts: as in `hash_headers`.
    """
    headers = blocks.take(follow_chains(blocks, first, first + counts).numbers, axis=0)
    own = headers[_KINDS[headers[:, 156]] != _EXTENSION]
    # GNU headers keep times where ustar keeps the beginning of a long name.
    is_ustar = (own[:, 257:263] == np.frombuffer(b"ustar\0", np.uint8)).all(axis=1, keepdims=True)
    fields = np.concatenate((_until_nul(own[:, 345:500]) * is_ustar, _until_nul(own[:, :100])), axis=1)
    names = {name.decode("utf-8", "surrogateescape").lower() for name in fields.view("S255")[:, 0].tolist()}
    return len(names) < len(own)


def _name_hashes(own: Blocks) -> Hashes | None:
    """Hashes of names that do not differ where the names do not, case ignored; None where that needs a closer look.

    Args:
        own: headers of members.
    """
    if own[:, 345].any():
        return None  # a prefix, or a GNU header's time
    width = int(np.flatnonzero(np.bitwise_or.reduce(own[:, :100], axis=0)).max(initial=0)) + 1
    fields = np.ascontiguousarray(own[:, :width])
    is_end = fields == 0
    if fields.max(initial=0) > 127 or (is_end[:, :-1] & ~is_end[:, 1:]).any():
        return None
    return hashes_of(fields | _LOWER * ~is_end)


def _until_nul(fields: Blocks) -> Blocks:
    """Text fields, zeroed after the first NUL of each."""
    return fields * np.logical_and.accumulate(fields != 0, axis=1)


def headers_checksum(buffer: bytes | mmap.mmap, starts: Int64Array, sizes: Int64Array) -> str | None:
    """xxh3 (hex) of all headers of a tar, as `scan.size_and_checksum` computes it, but without a walk.

    Args:
        starts, sizes: shape (n,), int64, bytes: the runs of all its samples, in order of offset.

    Returns:
        None where the samples do not fill the tar, or a header is not recognised: walk it then.
    """
    ends = starts + sizes
    if not starts.size or starts[0] != 0 or (starts[1:] != ends[:-1]).any() or (sizes % BLOCK).any():
        return None
    digest = xxhash.xxh3_64()
    if not hash_headers(blocks_of(buffer), starts // BLOCK, sizes // BLOCK, digest):
        return None
    return None if bytes(buffer[int(ends[-1]) :]).strip(b"\0") else digest.hexdigest()


def _parse_sizes(fields: Blocks) -> tuple[Int64Array, BoolArray]:
    """Size fields, shape (n, 12) -> numbers (n,), int64, and whether each is eleven octal digits and an end byte."""
    digits, end = digit_values(fields[:, :11]), fields[:, 11]
    return octal_numbers(digits), (digits.max(axis=0) < 8) & ((end == 0) | (end == ord(" ")))
