"""SimCore: round by round, each of the target's centres takes the image of the store that is most like it.

After Kim, Bae, Yun, "Coreset Sampling from Open-Set for Fine-Grained Self-Supervised Learning", CVPR 2023: 100 centres
of the target's features by k-means, cosine similarity, and a stop where the mean similarity of a round falls below .95
of the first round's. **Readings:** features are standardised on the store first, or cosines of unlike images would
hardly differ; the first round is the one to compare with (the authors' code takes the twentieth); a centre that finds
its best taken in an earlier round takes the next.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from curate.selection.base import Scores, Vectors
from curate.selection.nearest import standardised
from curate.types import Floats, Ints

CENTRES, STOP = 100, 0.95


def simcore(store: Vectors, target: Vectors, seed: int) -> Scores:
    """Scores by the order of taking, those never taken behind by similarity; keeps what was taken before the stop.

    Facts: ``rounds``.
    """
    near, own = (_unit(x) for x in standardised(store, target))
    similarity = near @ centres_of(own, seed).T
    taken, rounds = take(similarity)
    rest = np.setdiff1d(np.argsort(-similarity.max(1), kind="stable"), taken, assume_unique=True)
    rest = rest[np.argsort(-similarity.max(1)[rest], kind="stable")]
    score = np.empty(len(store), np.float32)
    score[np.concatenate([taken, rest])] = 1 - np.arange(len(store)) / len(store)
    own_rule = np.zeros(len(store), np.bool_)
    own_rule[taken] = True
    return Scores(score, own_rule, {"rounds": float(rounds)})


def centres_of(target: Floats, seed: int) -> Floats:
    """At most `CENTRES` directions, of unit length."""
    if len(target) <= CENTRES:
        return target
    return _unit(KMeans(CENTRES, n_init=1, random_state=seed % 2**32).fit(target).cluster_centers_)


def take(similarity: Floats) -> tuple[Ints, int]:
    """The rows in the order in which they are taken, and the rounds.

    Args:
        similarity: shape (n, centres).
    """
    order = np.argsort(-similarity, axis=0, kind="stable")
    n, centres = similarity.shape
    at, gone = np.zeros(centres, np.int64), np.zeros(n, np.bool_)
    taken: list[int] = []
    first, rounds = None, 0
    while len(taken) + centres <= n or not rounds:
        for centre in range(centres):
            while at[centre] < n and gone[order[at[centre], centre]]:
                at[centre] += 1
        if (at == n).any():
            break
        picked = order[at, np.arange(centres)]
        value = float(similarity[picked, np.arange(centres)].mean())
        first = value if first is None else first
        if value < STOP * first:
            break
        fresh = list(dict.fromkeys(picked.tolist()))  # two centres may want one image
        gone[fresh] = True
        taken += fresh
        rounds += 1
    return np.array(taken, np.int64), rounds


def _unit(x: Floats) -> Floats:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), np.float32)
