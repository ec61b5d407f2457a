"""Groups of items that are alike, each around a representative.

Every member lies within the distance of its group's representative, not merely of another member: a chain of small
steps (frames of a film) joins nothing whose ends are unlike. Which item represents is the caller's rank, and nothing
else, so the groups do not depend on the order in which pairs were found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from curate.duplicates.sorted_pairs import Pairs, gathering
from curate.types import Ints


def group(n: int, pairs: Iterable[Pairs], order: Ints, within: float) -> Ints:
    """The representative of each of ``n`` items; its own where it stands alone or represents others.

    Items are taken from the most preferred on: one that no representative covers yet becomes one, and covers all that
    lie within the distance of it and are not covered. So no two representatives are within the distance of each other.

    Args:
        n: of items.
        pairs: in any order and in chunks, each pair once or more; those that are further apart are passed over.
        order: shape (n,), int64: the rank of each item, a permutation; the item of rank 0 is the most preferred.
        within: the greatest distance that counts.

    Returns:
        Shape (n,), int64.
    """
    by_rank = np.empty(n, np.int64)
    by_rank[order] = np.arange(n)
    with gathering(n) as gathered:
        for left, right, distance in pairs:
            near = distance <= within
            one, other = order[left[near]], order[right[near]]
            gathered.add(np.minimum(one, other), np.maximum(one, other))
        return np.asarray(by_rank[_covered(n, gathered.read())[order]])


def _covered(n: int, chunks: Iterator[tuple[Ints, Ints]]) -> Ints:
    """The rank of the representative of each rank.

    Args:
        chunks: pairs of ranks, sorted by the first. When one comes first, all pairs in which it comes second are over,
            so that it is known whether it represents.
    """
    of = np.arange(n, dtype=np.int64)
    covered = bytearray(n)
    seen = np.frombuffer(covered, np.bool_)
    for left, right in chunks:
        open_still = ~(seen[left] | seen[right])  # what is covered stays so: most pairs of a large group go here
        for one, other in zip(left[open_still].tolist(), right[open_still].tolist()):
            if not covered[one] and not covered[other]:
                covered[other] = 1
                of[other] = one
    return of


def connected(n: int, pairs: Iterable[Pairs], within: float) -> Ints:
    """The group of each of ``n`` items where steps are followed, from one near item to the next: shape (n,), from 0.

    Args:
        pairs, within: as `group` has them.
    """
    of = np.arange(n)
    for left, right, distance in pairs:
        near = distance <= within
        edges = coo_array((np.ones(near.sum(), np.bool_), (of[left[near]], of[right[near]])), shape=(n, n))
        of = connected_components(edges, directed=False)[1][of]
    return np.asarray(np.unique(of, return_inverse=True)[1], np.int64)


def distinct(*values: np.ndarray[tuple[int, ...], np.dtype[np.generic]], order: Ints) -> tuple[Ints, Ints]:
    """One item of each kind, so that copies of one are compared once: 20,000 of them would make 200 million pairs.

    Items of equal values have the same neighbours and are each other's, so groups of these, spread again by
    ``inverse``, are the groups of all.

    Args:
        values: arrays of shape (n,), compared item by item.
        order: as `group` has it.

    Returns:
        ``first``: shape (m,), int64, the most preferred item of each kind; ``inverse``: shape (n,), int64, the place
        there of each item's kind.
    """
    by_value = np.lexsort((order, *values))
    changes = np.zeros(len(by_value), np.bool_)
    changes[:1] = True
    for value in values:
        sorted_value = value[by_value]
        changes[1:] |= sorted_value[1:] != sorted_value[:-1]
    inverse = np.empty(len(by_value), np.int64)
    inverse[by_value] = np.cumsum(changes) - 1
    return by_value[changes], inverse
