"""DataWeighter: every image has a point weight in [0, 1] that descends the signal (docs/method.md section 5).

All weights start at 0, so the first epoch trains nothing but what weight decay moves; its meta-gradients lift the
images that would help. With a prior they start where it puts them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from curate.config.resolved import ResolvedPrune
from curate.methods.base import MethodInputs, PointWeights, Summary
from curate.types import Floats, Prior


class Dw(PointWeights):
    """Weights that are clipped to [0, 1] after every move.

    Args:
        given: rows and device; of the belief: eta.
        dtype: of the state.
    """

    looks_ahead = prunes = True

    def __init__(self, given: MethodInputs, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(given, dtype)
        self.eta = given.belief.rate

    def begin_from(self, prior: Prior, rule: ResolvedPrune) -> Summary:
        """Point weights by `point_prior`."""
        return Summary(point_prior(prior, rule.lam), None, None)

    def take_up(self, weights: Summary) -> None:
        """The ledger's weights."""
        self.weight.copy_(torch.from_numpy(np.array(weights.mean)))

    def weights(self, rows: Tensor) -> Tensor:
        """The weights as they are now."""
        return self.weight[rows]

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """w -= eta * signal, clipped."""
        moved = self.weight[rows].double() - self.eta * signal.double()
        self.weight[rows] = moved.clamp(0, 1).to(self.weight.dtype)


def point_prior(known: Prior, lam: float) -> Floats:
    """Weights that a prior means: its means themselves; where it has a cut, the straight line from 0 at a mean of 0 to
    ``lam`` at the cut, and on to 1 at a mean of 1, so that what it keeps lies above ``lam`` and what it drops does not.

    Where nothing is known the weight is the least that is kept.

    Args:
        known: n images.
        lam: weight at or below which an image is dropped, in [0, 1).

    Returns:
        Shape (n,), float32, in [0, 1].
    """
    cut = np.float32(lam)
    above = np.nextafter(cut, np.float32(1))
    weight = known.mean
    if known.kept is not None and known.cut is not None:
        below_cut = lam * weight / max(known.cut, 1e-30)
        above_cut = lam + (1 - lam) * (weight - known.cut) / max(1 - known.cut, 1e-30)
        weight = np.where(known.kept, above_cut, below_cut)
        weight = np.where(known.kept, np.clip(weight, above, 1), np.clip(weight, 0, cut))
    return np.where(np.isnan(known.mean), above, weight).astype(np.float32)
