"""A network as it was drawn, made a baseline: its batch norms measure the images before anything is compared with it.

Without this their running statistics are those of no image at all, and an untrained network scores like a broken one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

BATCH_NORM = nn.modules.batchnorm._BatchNorm


@torch.no_grad()
def calibrate(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set the running statistics of every batch norm to the mean over ``batches``; parameters stay.

    Args:
        network: changed in place, and left in evaluation mode.
        batches: normalised images (k, C, H, W), on its device, at least two in each.
    """
    norms = [part for part in network.modules() if isinstance(part, BATCH_NORM)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
    network.train()
    for batch in batches if norms else ():
        if len(batch) > 1:
            network(batch)
    for norm, momentum in zip(norms, usual):
        norm.momentum = momentum
    network.eval()
