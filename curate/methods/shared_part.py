"""What look-alikes believe together: the part of log a and log b that the visits of one image teach the others.

log a of an image is its own part and a shared one. A visit that would move both by v moves the own part by `OWN` v and
gives `SHARED` v to the look-alikes, in equal parts, so that an epoch moves an image by .3 of its own signal and by the
mean signal of those like it (docs/method.md section 10). Everything is gathers and scatters of the batch's rows.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from curate.methods import beta
from curate.methods.base import Clusters, LookAlikes

#: How much of a visit's move an image keeps for itself, and how much its look-alikes get together.
OWN, SHARED = 0.3, 1.0


class SharedPart(Protocol):
    """The shared part of log a and log b, side by side.

    Attributes:
        logs: a row a cluster, or a row an image; within [`beta.LOWEST`, `beta.HIGHEST`].
    """

    logs: Tensor

    def of(self, rows: Tensor) -> Tensor:
        """The shared part of each of ``rows``: shape (k, 2)."""

    def teach(self, rows: Tensor, moves: Tensor) -> None:
        """Give what visits to ``rows`` are worth, shape (k, 2), to their look-alikes."""


class OfClusters:
    """A part a cluster, which all its images have; each gets 1/m of a move, m the images of the cluster.

    An image that is dropped still counts: a cluster of which few are left moves little.

    Args:
        among: n images.
        like: gives the device.
    """

    def __init__(self, among: Clusters, like: Tensor) -> None:
        self.cluster = torch.from_numpy(among.cluster).to(like.device)
        # Sums of thousands of small moves: in float64, for there are few clusters.
        self.logs = torch.zeros((among.count, 2), dtype=torch.float64, device=like.device)
        self.size = torch.bincount(self.cluster, minlength=among.count).double()[:, None]

    def of(self, rows: Tensor) -> Tensor:
        """The part of each row's cluster, float64."""
        return self.logs[self.cluster[rows]]

    def teach(self, rows: Tensor, moves: Tensor) -> None:
        """Add the moves to the clusters of their rows, each over its images."""
        at = self.cluster[rows]
        self.logs.index_add_(0, at, moves.double() / self.size[at])
        self.logs.clamp_(beta.LOWEST, beta.HIGHEST)


class OfNeighbours:
    """A part an image, moved by the visits of those images that have it among their N nearest: each gets 1/N of a move.

    Args:
        nearest: shape (n, N), int32.
        like: gives type and device of what n images have.
    """

    def __init__(self, nearest: Tensor, like: Tensor) -> None:
        self.nearest = nearest.to(like.device)
        self.logs = torch.zeros_like(like)

    def of(self, rows: Tensor) -> Tensor:
        """What the neighbours' visits have taught each row."""
        return self.logs[rows]

    def teach(self, rows: Tensor, moves: Tensor) -> None:
        """Spread each move over the N nearest of its row."""
        near = self.nearest[rows]
        at = near.flatten()
        self.logs.index_add_(0, at, (moves / near.shape[1]).repeat_interleave(near.shape[1], 0))
        self.logs[at] = self.logs[at].clamp_(beta.LOWEST, beta.HIGHEST)


def shared_part(among: LookAlikes, like: Tensor) -> SharedPart:
    """The shared part, 0 at the start, among such look-alikes.

    Args:
        like: shape (n, 2): log a and log b of the images, whose type and device are taken.
    """
    if isinstance(among, Clusters):
        return OfClusters(among, like)
    return OfNeighbours(torch.from_numpy(among.nearest), like)
