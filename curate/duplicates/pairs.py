"""All pairs of 64-bit hashes within a Hamming distance: every one, and none that is not.

The bits are cut into b blocks. Two hashes that differ in at most d bits agree in b - d blocks at least, so each choice
of b - d blocks is a table: what agrees there is sorted together and compared in full (Manku, Jain and Das Sarma,
"Detecting Near-Duplicates for Web Crawling", 2007, have it for look-ups). Few blocks make few tables with long runs,
many blocks many tables with short ones; a sample tells which is cheaper for the hashes at hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from math import comb
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from curate.duplicates.hashes import Hashes
from curate.duplicates.sorted_pairs import Pairs, gathering
from curate.types import Ints
from shards.io.parallel import map_here
from shards.shuffle import permutation

BITS = 64
#: The greatest distance for which tables are fewer than what they save.
MOST = 12
#: Hashes that are compared at a time: what the processor's nearest cache holds.
_AT_ONCE = 1 << 16
#: What sorting an entry of a table takes, in comparisons of two hashes; measured.
_SORTING = 60
#: Hashes of the sample, and the prime by which their places leap, so that neighbours of a sorted list do not come.
_SAMPLE, _FAR_APART = 1 << 15, 2_654_435_761


@dataclass(frozen=True)
class Tables:
    """How bits are cut, and which blocks make a table.

    Args:
        masks: shape (b,), uint64: the bits of each block, which stand together.
        chosen: for each table, the places of its blocks, rising.
    """

    masks: Hashes
    chosen: tuple[tuple[int, ...], ...]


class Runs(NamedTuple):
    """Runs of hashes that agree in a table's blocks, in each the images before the mirror images.

    Args:
        starts, lengths: shape (r,): where each begins, and how many hashes it has.
        images: shape (r,): how many of them are no mirror images.
    """

    starts: Ints
    lengths: Ints
    images: Ints


def within(hashes: Hashes, mirrors: Hashes, distance: int, workers: int = 1) -> Iterator[Pairs]:
    """All pairs of images whose hashes, or the hash of one and the mirror hash of the other, differ in few bits.

    Memory grows with the number of images (about 100 bytes each a process), that of pairs is bounded by `sorted_pairs`.

    Args:
        hashes, mirrors: shape (n,), uint64; preferably without repetitions (`groups.distinct`).
        distance: the most bits, 0 to `MOST`.
        workers: processes, each with a table at a time.

    Returns:
        Sorted by (left, right), each pair once, with the least of its distances.
    """
    n = len(hashes)
    entries = _dealt(np.concatenate([hashes, mirrors]))
    tables = plan(entries, distance)
    with gathering(n) as gathered, tempfile.TemporaryDirectory(prefix=".hash-pairs-") as scratch:
        path = Path(scratch) / "entries.npy"
        np.save(path, entries)
        del entries
        for one, other in map_here(partial(_of_table, path, n, tables.masks, distance), tables.chosen, workers):
            unlike = one % n != other % n  # an image may be near its own mirror image
            one, other = one[unlike] % n, other[unlike] % n
            gathered.add(np.minimum(one, other), np.maximum(one, other))
        for left, right in gathered.read():
            yield Pairs(left, right, apart(hashes, mirrors, left, right))


def apart(hashes: Hashes, mirrors: Hashes, left: Ints, right: Ints) -> npt.NDArray[np.uint8]:
    """In how many bits images differ, mirrored or not: shape (k,), uint8."""
    straight = np.bitwise_count(hashes[left] ^ hashes[right])
    turned = np.minimum(
        np.bitwise_count(hashes[left] ^ mirrors[right]), np.bitwise_count(mirrors[left] ^ hashes[right])
    )
    return np.asarray(np.minimum(straight, turned), np.uint8)


def plan(entries: Hashes, distance: int) -> Tables:
    """The cheapest cut for these hashes, as a sample of them tells."""
    sample = entries[np.arange(_SAMPLE) * _FAR_APART % len(entries)] if len(entries) > _SAMPLE else entries
    best: tuple[float, Tables] | None = None
    for needed in range(1, 5):
        n_blocks = distance + needed
        masks = _masks(n_blocks)
        a_table = _cost(sample, masks[:needed], len(entries))
        cost = comb(n_blocks, needed) * a_table
        if best is None or cost < best[0]:
            best = cost, Tables(masks, tuple(combinations(range(n_blocks), needed)))
    assert best is not None
    return best[1]


def _cost(sample: Hashes, blocks: Hashes, n: int) -> float:
    """Of one table over ``n`` hashes, in comparisons: sorting, and pairs that agree in all ``blocks``."""
    _, counts = np.unique(sample & np.bitwise_or.reduce(blocks), return_counts=True)
    alike = (counts * (counts - 1.0)).sum() / max(1, len(sample) * (len(sample) - 1))
    expected = max(alike, 2.0 ** -int(np.bitwise_count(blocks).sum()))
    return float(n * (_SORTING + n * expected / 2))


def _dealt(hashes: Hashes) -> Hashes:
    """The same bits in another order, so that neighbours, which depend on each other, come into different blocks."""
    dealt = np.zeros_like(hashes)
    for place, bit in enumerate(permutation(0, "order of bits", 0, BITS).tolist()):
        dealt |= (hashes >> np.uint64(bit) & np.uint64(1)) << np.uint64(place)
    return dealt


def _masks(n_blocks: int) -> Hashes:
    """Blocks of bits that differ in size by one at most."""
    ends = np.linspace(0, BITS, n_blocks + 1).round().astype(np.int64).tolist()
    return np.array([2**end - 2**start for start, end in pairwise(ends)], np.uint64)


def _key(hashes: Hashes, masks: Hashes) -> Hashes:
    """The bits of some blocks, moved together to the low end."""
    key = np.zeros_like(hashes)
    for mask in masks.tolist():
        lowest = (mask & -mask).bit_length() - 1
        key = key << np.uint64(mask.bit_count()) | (hashes & np.uint64(mask)) >> np.uint64(lowest)
    return key


def _of_table(path: Path, n: int, masks: Hashes, distance: int, chosen: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Pairs of entries, by their places, within the distance whose first blocks that agree are the chosen ones.

    Args:
        path: of the entries, an .npy file.
        n: the first ``n`` of them are images, the others mirror images, which are not compared with each other: two of
            them are as far apart as the two images.
    """
    entries = np.asarray(np.load(path, mmap_mode="r"))
    n_bits = np.uint64(len(entries).bit_length())
    packed = _packed(entries, masks[list(chosen)], n_bits)
    packed.sort()
    order = (packed & (np.uint64(1) << n_bits) - np.uint64(1)).view(np.int64)
    packed >>= n_bits
    starts = np.flatnonzero(np.concatenate([[True], packed[1:] != packed[:-1]]))
    lengths = np.diff(np.append(starts, len(packed)))
    del packed
    images = np.add.reduceat(order < n, starts, dtype=np.int64) if len(order) else starts
    values, rounded = entries[order], _rounded(lengths)
    found = [np.zeros((2, 0), np.int64)]
    for size in np.unique(rounded[lengths > 1]).tolist():
        of_size = (rounded == size) & (lengths > 1) & (images > 0)
        runs = Runs(starts[of_size], lengths[of_size], images[of_size])
        for pair in _batches(_in_runs(values, runs, size, distance)):
            found.append(pair[:, _first_agreement(values[pair[0]] ^ values[pair[1]], masks, chosen)])
    one, other = order[np.concatenate(found, axis=1)]
    return one, other


def _packed(entries: Hashes, masks: Hashes, n_bits: np.uint64) -> Hashes:
    """Keys, and below them the entries' places: one number each, which sorts five times as fast as two.

    A piece at a time, which stays in the cache: over all at once this took as long as sorting and comparing.
    """
    packed = np.empty_like(entries)
    for at in range(0, len(entries), _AT_ONCE):
        key = _key(entries[at : at + _AT_ONCE], masks)
        packed[at : at + len(key)] = key << n_bits | np.arange(at, at + len(key), dtype=np.uint64)
    return packed


def _batches(pairs: Iterator[Ints]) -> Iterator[Ints]:
    """The same pairs, arrays of shape (2, k), in fewer arrays, none much longer than it has to be."""
    held: list[Ints] = []
    n_held = 0
    for each in pairs:
        held.append(each)
        n_held += each.shape[1]
        if n_held >= _AT_ONCE:
            yield np.concatenate(held, axis=1)
            held, n_held = [], 0
    if held:
        yield np.concatenate(held, axis=1)


def _rounded(lengths: Ints) -> Ints:
    """Lengths rounded up, by an eighth at the most, so that runs of about one length are compared together."""
    step = np.left_shift(1, np.maximum(np.log2(np.maximum(lengths, 1)).astype(np.int64) - 3, 0))
    return -(-lengths // step) * step


def _in_runs(values: Hashes, runs: Runs, size: int, distance: int) -> Iterator[Ints]:
    """Pairs of places in ``values`` within the distance, both in one run: arrays of shape (2, k).

    Args:
        runs: of at most ``size`` hashes.
    """
    rows = np.arange(size)[:, None]
    at_once = max(1, _AT_ONCE // size)
    for at in range(0, len(runs.starts), at_once):
        starts, lengths, images = (part[at : at + at_once] for part in runs)
        places = starts + np.minimum(rows, lengths - 1)  # a short run ends in its last hash again
        block = values[places]
        differing, bits = np.empty_like(block), np.empty(block.shape, np.uint8)
        for row in range(min(size - 1, int(images.max()))):
            below = block[row + 1 :]
            np.bitwise_count(np.bitwise_xor(below, block[row], differing[: len(below)]), bits[: len(below)])
            near = bits[: len(below)] <= distance
            found = np.flatnonzero(near)  # of one dimension, as of two numpy goes bit by bit
            if len(found):
                place, run = np.divmod(found, near.shape[1])
                there = (row < images[run]) & (row + 1 + place < lengths[run])
                yield np.stack([places[row, run[there]], places[row + 1 + place[there], run[there]]])


def _first_agreement(differing: Hashes, masks: Hashes, chosen: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Whether a pair is this table's: others in which it stands, too, come later."""
    agree = (differing[:, None] & masks) == 0
    return np.asarray((agree[:, : chosen[-1] + 1].sum(axis=1) == len(chosen)) & agree[:, list(chosen)].all(axis=1))
