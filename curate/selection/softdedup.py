"""Soft deduplication: what is common in a store has less chance of a place, and nothing is dropped for being a copy.

After He et al., "SoftDedup: an Efficient Data Reweighting Method for Speeding Up Language Model Pre-training" (ACL
2024, arXiv 2407.06654): a text's chance of being drawn is as 1 over its commonness, its probability under an n-gram
model of all texts. **Readings:** an image has no words, so its commonness is the share of the store whose features lie
within a cosine distance of its own, itself among them; and since a choice is drawn once, not in every epoch, it is a
draw of images without replacement with these chances (Efraimidis, Spirakis 2006), as many as the budget says.
"""

from __future__ import annotations

import numpy as np

from curate.duplicates.near_pairs import DISTANCE, digests, near_pairs
from curate.selection.base import Scores, Vectors
from curate.types import Ints, Reals
from shards import shuffle


def softdedup(store: Vectors, target: Vectors, seed: int) -> Scores:
    """Scores in whose order images are drawn; looks at no target, and has no rule of its own.

    Facts: ``distinct``, the sum of 1 / (images like this one): how many there would be without copies.
    """
    weight = 1 / neighbours(store)
    score = np.empty(len(store), np.float32)
    score[drawn(weight, seed)] = 1 - np.arange(len(store)) / len(store)
    return Scores(score, facts={"distinct": float(weight.sum())})


def drawn(weight: Reals, seed: int) -> Ints:
    """All places in a random order: the first, and each next of those left, with chances as the weights are.

    Args:
        weight: shape (n,), positive.
    """
    uniform = (shuffle.random_bits(seed, "soft deduplication", 0, len(weight)) + 0.5) / 2.0**64
    return np.argsort(-np.log(uniform) / weight, kind="stable")


def neighbours(values: Vectors) -> Ints:
    """How many images lie within `DISTANCE` of each, itself among them: shape (n,), int64."""
    _, first, kind, copies = np.unique(digests(values), return_index=True, return_inverse=True, return_counts=True)
    found = copies.copy()
    for left, right, _ in near_pairs(values[first], DISTANCE):
        found += np.bincount(left, copies[right], len(found)).astype(np.int64)
        found += np.bincount(right, copies[left], len(found)).astype(np.int64)
    return np.asarray(found[kind])
