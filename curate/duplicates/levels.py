"""How sure it is that two images show the same, and groups at each level.

``exact``: the same bytes, or the same pixels. ``perceptual``: that, or hashes of the look within a distance, mirrored
or not. ``semantic`` (`curate.duplicates.semantic`): features within a distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from curate.duplicates import groups
from curate.duplicates.groups import distinct, group
from curate.duplicates.hash_table import Digests, Hashed
from curate.duplicates.pairs import within as pairs_within
from curate.duplicates.sorted_pairs import Pairs
from curate.types import Ints, Mask

LEVELS = ("exact", "perceptual", "semantic")
#: Bits of 64 in which near-copies may differ; and more than any two hashes do.
DISTANCE, BEYOND = 8, 65


class Nearest(NamedTuple):
    """For each of n images another one.

    Args:
        place: shape (n,), int64; -1 where there is none.
        bits: shape (n,), int64: in which they differ; 0 of exact copies, -1 where there is none.
    """

    place: Ints
    bits: Ints


def same(held: Hashed, one: Ints, other: Ints) -> tuple[Mask, Mask]:
    """Whether pairs of images that decode have the same bytes, and whether they have the same pixels."""
    decode = (held.error[one] == 0) & (held.error[other] == 0)
    image, pixels = (decode & (values[one] == values[other]).all(axis=1) for values in (held.image, held.pixels))
    return image, pixels


def exact_groups(held: Hashed, order: Ints) -> Ints:
    """Representatives by bytes and pixels: shape (n,), int64, each image's own where it is alone.

    Args:
        order: as `groups.group` has it.
    """
    first, inverse = distinct(*_identity(held).T, order=order)
    return np.asarray(first[inverse])


def perceptual_groups(held: Hashed, order: Ints, distance: int = DISTANCE, workers: int = 1) -> Ints:
    """Representatives by the look, exact copies included; an image whose hash says nothing is compared exactly.

    Args:
        distance: the most bits that differ.
    """
    first, kind = _kinds(held, order)
    rank = np.argsort(np.argsort(order[first]))
    of_kind = group(len(first), _pairs(held, first, distance, workers), rank, distance)
    return np.asarray(first[of_kind][kind])


def connected(held: Hashed, distance: int = DISTANCE, workers: int = 1) -> Ints:
    """Groups that no two images within the distance are parted by: shape (n,), int64, as `groups.connected`."""
    first, kind = _kinds(held, np.arange(len(held)))
    return np.asarray(groups.connected(len(first), _pairs(held, first, distance, workers), distance)[kind])


def nearest_of_other(held: Hashed, others: int, level: str, distance: int = DISTANCE, workers: int = 1) -> Nearest:
    """For each image the nearest of the other part: an exact copy, else of the fewest bits; the first of several.

    Args:
        held: two parts, one after the other.
        others: images of the second part.
        level: exact or perceptual.
    """
    order = np.arange(len(held))
    _, kind = distinct(*_identity(held).T, order=order)
    exact = _nearest_kind(kind, others, iter(()))
    if level == "exact":
        return exact
    first, kind = _kinds(held, order)
    near = _nearest_kind(kind, others, _pairs(held, first, distance, workers))
    return Nearest(*(np.where(exact.place >= 0, one, other) for one, other in zip(exact, near)))


def _nearest_kind(kind: Ints, others: int, pairs: Iterator[Pairs]) -> Nearest:
    """The nearest of the other part, when images of one kind are 0 bits apart.

    Args:
        kind: shape (n,), int64, from 0.
        others: images of the second part, the last ones.
        pairs: of kinds.
    """
    n, half = len(kind), len(kind) - others
    # The first image of each kind in either part, n where there is none; an image looks into the part not its own.
    first = np.full((2, int(kind.max(initial=-1)) + 1), n)
    for part, places in enumerate((np.arange(half), np.arange(half, n))):
        np.minimum.at(first[part], kind[places], places)
    # Bits and place as one number, so that the least has the fewest bits and, of these, comes first.
    base = n + 1
    best = np.where(first < n, first, BEYOND * base)
    for left, right, bits in pairs:
        for one, other in ((left, right), (right, left)):
            for part in (0, 1):
                there = first[part][other] < n
                value = bits[there].astype(np.int64) * base + first[part][other[there]]
                np.minimum.at(best[part], one[there], value)
    found = np.concatenate([best[1][kind[:half]], best[0][kind[half:]]])
    none = found >= BEYOND * base
    return Nearest(np.where(none, -1, found % base), np.where(none, -1, found // base))


def _kinds(held: Hashed, order: Ints) -> tuple[Ints, Ints]:
    """As `groups.distinct`, of images that look the same to the hash, or are the same where it says nothing."""
    comparable = held.comparable
    look = np.stack([held.look.hash, held.look.mirror], axis=1)
    values = np.where(comparable[:, None], look, _identity(held))
    return distinct(comparable, *values.T, order=order)


def _pairs(held: Hashed, first: Ints, distance: int, workers: int) -> Iterator[Pairs]:
    """Pairs of kinds by their hashes, places in ``first``."""
    there = np.flatnonzero(held.comparable[first])
    hashes, mirrors = (values[first[there]] for values in (held.look.hash, held.look.mirror))
    for left, right, bits in pairs_within(hashes, mirrors, distance, workers):
        yield Pairs(there[left], there[right], bits)


def _identity(held: Hashed) -> Digests:
    """What exact copies have in common: their pixels. What does not decode is like nothing but itself."""
    own = np.stack([np.arange(len(held), dtype=np.uint64), np.zeros(len(held), np.uint64)], axis=1)
    return np.where((held.error == 0)[:, None], held.pixels, own)
