"""How sure it is that two images show the same, and groups at each level.

``exact``: the same bytes, or the same pixels. ``perceptual``: that, or hashes of the look within a distance, mirrored
or not. ``semantic`` (`curate.duplicates.semantic`): features within a distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from curate.duplicates.groups import distinct, group
from curate.duplicates.hash_files import Digests, Hashed, taken
from curate.duplicates.pairs import within as pairs_within
from curate.duplicates.sorted_pairs import Pairs
from curate.types import Ints, Mask

LEVELS = ("exact", "perceptual", "semantic")
#: Bits of 64 in which near-copies may differ.
DISTANCE = 8


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


def perceptual_groups(held: Hashed, order: Ints, distance: int = DISTANCE, threads: int = 1) -> Ints:
    """Representatives by the look, exact copies included; an image whose hash says nothing is compared exactly.

    Args:
        distance: the most bits that differ.
    """
    first, kind = _kinds(held, order)
    rank = np.argsort(np.argsort(order[first]))
    of_kind = group(len(first), _pairs(held, first, distance, threads), rank, distance)
    return np.asarray(first[of_kind][kind])


def nearest_of_other(held: Hashed, others: int, level: str, distance: int = DISTANCE, threads: int = 1) -> Nearest:
    """For each image the nearest of the other part, and of those as near the first.

    Args:
        held: two parts, one after the other.
        others: images of the second part.
        level: exact or perceptual.
    """
    n = len(held)
    first_of_part = [np.arange(n - others), np.arange(n - others, n)]
    order = np.arange(n)
    if level == "exact":
        identity = _identity(held)
        _, kind = distinct(*identity.T, order=order)
        near: Iterator[Pairs] = iter(())
    else:
        first, kind = _kinds(held, order)
        near = _pairs(held, first, distance, threads)
    n_kinds = int(kind.max(initial=-1)) + 1
    # The first image of each kind in either part; an image looks for the one in the part that is not its own.
    firsts = np.full((2, n_kinds), n)
    for part, places in enumerate(first_of_part):
        np.minimum.at(firsts[part], kind[places], places)
    best = np.where(firsts < n, firsts, (BEYOND := 65) * n + n)
    for left, right, bits in near:
        for one, other in ((left, right), (right, left)):
            for part in (0, 1):
                there = firsts[part][other] < n
                value = bits[there].astype(np.int64) * n + firsts[part][other[there]]
                np.minimum.at(best[part], one[there], value)
    found = np.concatenate([best[1][kind[first_of_part[0]]], best[0][kind[first_of_part[1]]]])
    none = found >= BEYOND * n
    return Nearest(np.where(none, -1, found % max(1, n)), np.where(none, -1, found // max(1, n)))


def _kinds(held: Hashed, order: Ints) -> tuple[Ints, Ints]:
    """As `groups.distinct`, of images that look the same to the hash, or are the same where it says nothing."""
    comparable = held.comparable
    look = np.stack([held.look.hash, held.look.mirror], axis=1)
    values = np.where(comparable[:, None], look, _identity(held))
    return distinct(comparable, *values.T, order=order)


def _pairs(held: Hashed, first: Ints, distance: int, threads: int) -> Iterator[Pairs]:
    """Pairs of kinds by their hashes, places in ``first``."""
    there = np.flatnonzero(held.comparable[first])
    look = taken(held, first[there]).look
    for left, right, bits in pairs_within(look.hash, look.mirror, distance, threads):
        yield Pairs(there[left], there[right], bits)


def _identity(held: Hashed) -> Digests:
    """What exact copies have in common: their pixels. What does not decode is like nothing but itself."""
    own = np.stack([np.arange(len(held), dtype=np.uint64), np.zeros(len(held), np.uint64)], axis=1)
    return np.where((held.error == 0)[:, None], held.pixels, own)
