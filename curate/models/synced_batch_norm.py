"""Batch norm that goes by the images of all ranks: the statistics of the whole batch, as one process would have them.

torch's SyncBatchNorm does the same without forward-mode derivatives, and on CUDA alone. Here the ranks' means and
variances are put together by one sum over ranks that has all derivatives (`curate.ranks`), and the rest is plain torch.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from curate import ranks

#: A network, of whatever class.
Synced = TypeVar("Synced", bound=nn.Module)


class SyncedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """`nn.BatchNorm1d` or `nn.BatchNorm2d` over all ranks, with the same parameters and running statistics."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of places."""

    def forward(self, input: Tensor) -> Tensor:
        """(k, channels, ...) -> the same shape; every rank must call it, with as many channels."""
        if not self.training and self.running_mean is not None:
            return super().forward(input)
        x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        mean, variance, count = statistics(x)
        self._move_running(mean.detach(), variance.detach(), count)
        scale = torch.rsqrt(variance + self.eps)
        scale = scale if self.weight is None else scale * self.weight
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        places = (-1, *[1] * (x.ndim - 2))
        return torch.addcmul(shift.view(places), x, scale.view(places)).to(input.dtype)

    @torch.no_grad()
    def _move_running(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """As torch's own: the variance with n - 1."""
        if self.running_mean is None or self.running_var is None or not self.training:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        rate = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var.dtype), rate)


def statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each channel over all images and places of all ranks, and how many numbers that are.

    Each rank's own are put together, not sums of squares, which would cancel (Chan, Golub, LeVeque 1983).

    Args:
        x: shape (k, channels, ...); k may differ among ranks.

    Returns:
        Of shape (channels,), (channels,) and (1,).
    """
    channels = x.shape[1]
    own_variance, own_mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
    own_count = own_mean.new_full((1,), x.numel() // channels)
    rows = ranks.stacked(torch.cat([own_mean, own_variance, own_count]))
    means, variances, counts = torch.split(rows, [channels, channels, 1], dim=1)
    share = counts / counts.sum(0)
    mean = (share * means).sum(0)
    variance = (share * (variances + (means - mean).square())).sum(0)
    # Of a batch that is too small to be spread every rank has all images: they count once.
    copies = (rows == rows[:1]).all(1).sum()
    return mean, variance, counts.sum(0) / copies


def synced(network: Synced) -> Synced:
    """The network, each batch norm of it over all ranks from now on; its parameters and their names stay."""
    for part in network.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.__class__ = SyncedBatchNorm  # the same layer by another rule
    return network
