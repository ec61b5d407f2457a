"""All pairs of 64-bit hashes within a Hamming distance: every one, and none that is not.

The bits are cut into b blocks. Two hashes that differ in at most d bits agree in b - d blocks at least, so each choice
of b - d blocks is a table: what agrees there is sorted together and compared in full (Manku, Jain and Das Sarma,
"Detecting Near-Duplicates for Web Crawling", 2007, have it for look-ups). Few blocks make few tables with long runs,
many blocks many tables with short ones; a sample tells which is cheaper for the hashes at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb

import numpy as np
import numpy.typing as npt

from curate.duplicates.hashes import Hashes
from curate.duplicates.sorted_pairs import Pairs, gathering
from curate.types import Ints
from shards.shuffle import permutation

BITS = 64
#: The greatest distance for which tables are fewer than what they save.
MOST = 12
#: Hashes that are compared at a time: what the processor's nearest cache holds.
_AT_ONCE = 1 << 16
#: What sorting an entry of a table takes, in comparisons of two hashes; measured.
_SORTING = 60
_SAMPLE = 1 << 15


@dataclass(frozen=True)
class Tables:
    """How bits are cut, and which blocks make a table.

    Args:
        masks: shape (b,), uint64: the bits of each block, which stand together.
        chosen: for each table, the places of its blocks, rising.
    """

    masks: Hashes
    chosen: tuple[tuple[int, ...], ...]


def within(hashes: Hashes, mirrors: Hashes, distance: int, threads: int = 1) -> Iterator[Pairs]:
    """All pairs of images whose hashes, or the hash of one and the mirror hash of the other, differ in few bits.

    Memory grows with the number of images (about 40 bytes each a thread), that of pairs is bounded by `sorted_pairs`.

    Args:
        hashes, mirrors: shape (n,), uint64; preferably without repetitions (`groups.distinct`).
        distance: the most bits, 0 to `MOST`.
        threads: tables that are worked at at a time.

    Returns:
        Sorted by (left, right), each pair once, with the least of its distances.
    """
    n = len(hashes)
    entries = _dealt(np.concatenate([hashes, mirrors]))
    tables = plan(entries, distance)
    with gathering(n) as gathered, ThreadPoolExecutor(threads) as pool:
        for one, other in pool.map(lambda chosen: _of_table(entries, tables.masks, chosen, distance), tables.chosen):
            wanted = (np.minimum(one, other) < n) & (one % n != other % n)  # two mirror images are as far as two images
            one, other = one[wanted] % n, other[wanted] % n
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
    order = permutation(0, "sample of hashes", 0, len(entries))[:_SAMPLE]
    sample = entries[order]
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
    return n * (_SORTING + n * expected / 2)


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


def _of_table(entries: Hashes, masks: Hashes, chosen: tuple[int, ...], distance: int) -> tuple[Ints, Ints]:
    """Pairs of places in ``entries`` within the distance whose first blocks that agree are the chosen ones."""
    n_bits = np.uint64(len(entries).bit_length())  # a key and a place in one number, which sorts five times as fast
    packed = _key(entries, masks[list(chosen)]) << n_bits | np.arange(len(entries), dtype=np.uint64)
    packed.sort()
    order = (packed & (np.uint64(1) << n_bits) - np.uint64(1)).astype(np.int64)
    packed >>= n_bits
    starts = np.flatnonzero(np.concatenate([[True], packed[1:] != packed[:-1]]))
    lengths = np.diff(np.append(starts, len(packed)))
    del packed
    values = entries[order]
    found = [np.zeros((2, 0), np.int64)]
    for length in np.unique(lengths[lengths > 1]).tolist():
        found += [
            pair[:, _first_agreement(values[pair[0]] ^ values[pair[1]], masks, chosen)]
            for pair in _in_runs(values, starts[lengths == length], length, distance)
        ]
    one, other = order[np.concatenate(found, axis=1)]
    return one, other


def _in_runs(values: Hashes, starts: Ints, length: int, distance: int) -> Iterator[Ints]:
    """Pairs of places in ``values`` within the distance, both in one run: arrays of shape (2, k).

    Args:
        starts: of runs of ``length`` hashes.
    """
    runs_at_once = max(1, _AT_ONCE // length)
    for at in range(0, len(starts), runs_at_once):
        places = starts[at : at + runs_at_once] + np.arange(length)[:, None]
        block = values[places]
        for row in range(length - 1):
            near = np.bitwise_count(block[row + 1 :] ^ block[row]) <= distance
            if near.any():
                below, run = np.nonzero(near)
                yield np.stack([places[row, run], places[row + 1 + below, run]])


def _first_agreement(differing: Hashes, masks: Hashes, chosen: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Whether a pair is this table's: others in which it stands, too, come later."""
    agree = (differing[:, None] & masks) == 0
    return np.asarray((agree[:, : chosen[-1] + 1].sum(axis=1) == len(chosen)) & agree[:, list(chosen)].all(axis=1))
