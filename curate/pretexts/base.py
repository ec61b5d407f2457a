"""What every pretext task offers: a view of the images, drawn once a step, and one loss an image."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from curate.models.networks import Network


class Pretext(Protocol):
    """A self-supervised task. Two calls, so that the tangent sees the very view that the gradient saw."""

    #: Whether the task itself makes an image's loss depend on the others of its batch, whatever the network.
    couples: bool

    def view(self, pixels: Tensor, generator: torch.Generator) -> Any:
        """Augmented network inputs with everything random in them, from uint8 images (k, C, S, S)."""

    def plain_view(self, pixels: Tensor, generator: torch.Generator) -> Any:
        """The same without augmentation: centre crops."""

    def losses(self, network: Network, view: Any) -> Tensor:
        """One loss an image, shape (k,): a pure function of the network and the view."""
