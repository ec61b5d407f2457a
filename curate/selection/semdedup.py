"""SemDeDup: one image of each that look the same is kept, whatever they are to be used for.

After Abbas, Tirumala, Simig, Ganguli, Morcos, "SemDeDup: Data-efficient learning at web-scale through semantic
deduplication" (arXiv 2303.09540) and its authors' code: k-means of directions; in each cluster images stand from the
one least like the centre on; one is dropped whose cosine with any that stands before it is above 1 - epsilon.
**Readings:** the square root of the number of images as clusters (the authors: 50,000 for 440 million); centres found
on a sample. A score is half of 1 - the greatest cosine with one before, so that a budget (``--keep``) is what the paper
does: the epsilon that leaves so many.
"""

from __future__ import annotations

import numpy as np

from curate.duplicates.cells import SAMPLED, centres_of
from curate.duplicates.directions import blocks, unit
from curate.selection.base import Scores, Vectors
from curate.types import Floats

#: 1 - cosine below which an image is dropped, where no budget says how many.
EPSILON = 0.04
#: Images of a cluster that are compared with it in one go.
AT_ONCE = 2048


def semdedup(store: Vectors, target: Vectors, seed: int) -> Scores:
    """Scores by how unlike an image is to those that are kept before it; looks at no target.

    Facts: ``clusters``.
    """
    directions = unit(store)
    count = max(1, round(len(directions) ** 0.5))
    centres = unit(centres_of(directions[:: max(1, len(directions) // (count * SAMPLED))], count))
    cluster, closeness = np.empty(len(directions), np.int64), np.empty(len(directions), np.float32)
    for part in blocks(0, len(directions)):
        cosines = directions[part] @ centres.T
        cluster[part], closeness[part] = cosines.argmax(1), cosines.max(1)
    score = np.empty(len(directions), np.float32)
    order = np.lexsort((closeness, cluster))
    for rows in np.split(order, np.flatnonzero(np.diff(cluster[order])) + 1):
        score[rows] = (1 - likeness_before(directions[rows])) / 2
    return Scores(score, score >= EPSILON / 2, {"clusters": float(count)}, EPSILON / 2)


def likeness_before(directions: Floats) -> Floats:
    """The greatest cosine of each with one that stands before it, -1 for the first: shape (m,), in [-1, 1].

    Args:
        directions: shape (m, d): of one cluster, in the order in which they are preferred.
    """
    found = np.full(len(directions), -1, np.float32)
    for at in range(0, len(directions), AT_ONCE):
        stop = min(at + AT_ONCE, len(directions))
        cosines = directions[at:stop] @ directions[:stop].T
        cosines[np.arange(stop) >= np.arange(at, stop)[:, None]] = -1
        found[at:stop] = cosines.max(1)
    return np.clip(found, -1, 1)
