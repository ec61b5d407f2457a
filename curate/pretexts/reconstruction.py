"""The VAE's negative evidence lower bound, summed over pixels (Kingma, Welling 2014; docs/method.md section 6)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from curate.config.schema import NetworkConfig
from curate.data.augment import Augment
from curate.models.networks import Network
from curate.rng import drawn


class Noisy(NamedTuple):
    """Images (k, C, crop, crop) and the standard normal noise (k, latent) of their codes."""

    images: Tensor
    noise: Tensor


class Reconstruction:
    """Squared error summed over pixels, plus the KL divergence of the code from the standard normal."""

    couples = False

    def __init__(self, augment: Augment, latent: int) -> None:
        self.augment, self.latent = augment, latent

    @classmethod
    def of(cls, augment: Augment, network: NetworkConfig) -> Reconstruction:
        """The VAE's loss, with noise of the configuration's number of latent units."""
        return cls(augment, network.latent)

    def view(self, pixels: Tensor, generator: torch.Generator) -> Noisy:
        """uint8 (k, C, S, S) -> images in [-1, 1] with mean and deviation 0.5, and fresh noise."""
        return self._noisy(self.augment.training(pixels, generator), generator)

    def plain_view(self, pixels: Tensor, generator: torch.Generator) -> Noisy:
        """The same from centre crops; the noise is drawn all the same."""
        return self._noisy(self.augment.centre(pixels), generator)

    def losses(self, network: Network, view: Noisy) -> Tensor:
        """Negative ELBO of each image, shape (k,), in squared pixel units (range 2) and nats."""
        out = network(view.images, view.noise)
        assert out.reconstruction is not None
        assert out.mean is not None
        assert out.log_variance is not None
        error = F.mse_loss(out.reconstruction, view.images.flatten(1), reduction="none").sum(1)
        kl = 0.5 * (out.mean.square() + out.log_variance.exp() - 1 - out.log_variance).sum(1)
        return error + kl

    def _noisy(self, pixels: Tensor, generator: torch.Generator) -> Noisy:
        noise = drawn(lambda n: torch.randn((n, self.latent), generator=generator), len(pixels), generator)
        return Noisy(self.augment.normalise(pixels), noise.to(pixels.device, non_blocking=True))
