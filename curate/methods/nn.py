"""NN-Weighter: an image weighs the less the farther it is from the nearest of the target's training images.

The distances come ready (`curate.runs.target_distances`); here they become weights (docs/method.md section 5).
"""

from __future__ import annotations

import torch

from curate.methods.base import FixedWeights, MethodInputs


class Nn(FixedWeights):
    """w = exp(-beta d), fixed for the run; 0 where the image does not decode, whose distance is infinite.

    Args:
        given: `distances`, and beta as `decay`.
    """

    def __init__(self, given: MethodInputs) -> None:
        assert given.distances is not None
        distances = torch.from_numpy(given.distances).to(given.device, torch.float64)
        self.table = torch.exp(-given.decay * distances).float()
