"""How many to keep by a score that a few images of the target have, too: the cut with the best F1 bound.

No label says which images of the store are like the target. But a share 1 - q of such images scores at least the q
quantile of target images that the score has not seen, so kept(q) / (1 - q) bounds their number from above, and the
least of these bounds over q is an estimate pi. With it, every cut has an estimated purity and recall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curate.types import Reals

#: The quantiles of the target's scores that are tried: .02, .04 .. .80.
QUANTILES = tuple(step / 50 for step in range(1, 41))


@dataclass(frozen=True)
class Cut:
    """A cut.

    Args:
        threshold: keep what scores at least this.
        quantile: of the target's scores; among equals the largest, which keeps least.
        like: pi, the estimated number of the store's images that are like the target.
        kept: how many of the store score as high.
        purity: estimated share of the kept that is like the target.
    """

    threshold: float
    quantile: float
    like: float
    kept: int
    purity: float


def f1_cut(store: Reals, held_out: Reals) -> Cut:
    """The cut at the q that maximises 2 min(pi (1 - q), kept) / (kept + pi).

    Args:
        store: shape (n,): scores of the store's images.
        held_out: shape (t,), t > 0: scores of target images by models that have not seen them.

    Returns:
        `Cut`; ``kept`` is 0 where nothing in the store scores like the target (pi = 0).

    >>> cut = f1_cut(np.array([0.1] * 90 + [0.9] * 10), np.array([0.8, 0.9, 0.9, 0.9, 0.9]))
    >>> cut.kept, round(cut.threshold, 3), round(cut.like, 3)
    (10, 0.808, 10.204)
    """
    quantiles = np.array(QUANTILES)
    thresholds = np.quantile(held_out, quantiles)
    kept = len(store) - np.searchsorted(np.sort(store), thresholds, side="left")
    like = float((kept / (1 - quantiles)).min())
    if like == 0:
        return Cut(float("inf"), QUANTILES[-1], 0.0, 0, 0.0)
    true = np.minimum(like * (1 - quantiles), kept)
    score = 2 * true / (kept + like)
    best = len(score) - 1 - int(np.argmax(score[::-1]))
    return Cut(float(thresholds[best]), QUANTILES[best], like, int(kept[best]), float(true[best] / kept[best]))
