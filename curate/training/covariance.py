"""Second moments of a linear layer's gradients, and cosines in the metric of their inverse: whole, or in two factors.

An image's gradient is g_i = sum_r d_ri x_ri', r over its rows (its four rotations), x the layer's inputs with a 1 for
the bias, d the gradients by its outputs. With P = (E[g g'] + ridge)^-1 and L the Cholesky factor of what is inverted,
<v, P g> is the plain inner product of L^-1 v and L^-1 g.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from curate.training.signals import Running, mean, move

#: Decay of the second moments, and their ridge in units of their mean eigenvalue.
DECAY, RIDGE = 0.99, 0.3
#: The ridge of each of two factors. Larger ones tell less (docs/method.md 11).
FACTOR_RIDGE = 0.05


class LayerGradients(NamedTuple):
    """The gradients of k images in their factors: x of shape (r, k, f), d of shape (r, k, c)."""

    x: Tensor
    d: Tensor

    def each(self) -> Tensor:
        """g_i, shape (k, c f)."""
        return torch.einsum("rkc,rkf->kcf", self.d, self.x).flatten(1)

    def mean(self) -> Tensor:
        """(1/k) sum_i g_i, shape (c, f)."""
        return self.d.flatten(0, 1).T @ self.x.flatten(0, 1) / self.x.shape[1]


class Covariance(Protocol):
    """E[g g'] as it is kept, and what is asked of it."""

    def move(self, running: Running, gradients: LayerGradients) -> None:
        """Take a batch into the running moments."""

    def roots(self, running: Running) -> tuple[Tensor, ...]:
        """The Cholesky factor of the moments with their ridge, or of each of their factors."""

    def cosines(self, roots: tuple[Tensor, ...], v: Tensor, gradients: LayerGradients) -> Tensor:
        """<v, P g_i> / (|v|_P |g_i|_P), shape (k,), for v of shape (c, f); 0 where one of the two is 0."""


class Whole:
    """E[g g'] itself, (c f, c f): for a layer of few parameters."""

    def move(self, running: Running, gradients: LayerGradients) -> None:
        """One second moment over the images."""
        g = gradients.each()
        move(running, "covariance", g.T @ g / len(g), DECAY)

    def roots(self, running: Running) -> tuple[Tensor, ...]:
        """Of E[g g'] + ridge."""
        return (_root(mean(running, "covariance"), RIDGE),)

    def cosines(self, roots: tuple[Tensor, ...], v: Tensor, gradients: LayerGradients) -> Tensor:
        """In the images' gradients themselves."""
        white = _whitened(roots[0], torch.cat([v.flatten()[None], gradients.each()]))
        return _cosines(white[1:] @ white[0], white[0].norm(), white[1:].norm(dim=1))


class Factored:
    """E[g g'] as the Kronecker product of E[g g'] and E[g' g] of the gradients as matrices (c, f), up to a number:
    nearly the closest product there is (Morwani et al. 2024, on Shampoo). For a layer of many parameters: no image's
    gradient is formed. Second moments of the rows in their place (Martens, Grosse 2015) tell less: an image's rows are
    alike."""

    def move(self, running: Running, gradients: LayerGradients) -> None:
        """Two second moments, by the inner products among the rows of an image."""
        for name, part, other in zip(("inputs", "slopes"), gradients, reversed(gradients)):
            weighed = torch.einsum("krs,skn->rkn", _gram(other), part).flatten(0, 1)
            move(running, f"covariance of {name}", part.flatten(0, 1).T @ weighed / part.shape[1], DECAY)

    def roots(self, running: Running) -> tuple[Tensor, ...]:
        """Of E[g' g] and of E[g g']."""
        inputs, slopes = (mean(running, f"covariance of {name}") for name in ("inputs", "slopes"))
        return _root(inputs, FACTOR_RIDGE), _root(slopes, FACTOR_RIDGE)

    def cosines(self, roots: tuple[Tensor, ...], v: Tensor, gradients: LayerGradients) -> Tensor:
        """From whitened inputs and slopes, and from their inner products among the rows of an image."""
        inputs, slopes = roots
        x, d = _whitened(inputs, gradients.x), _whitened(slopes, gradients.d)
        white = _whitened(inputs, _whitened(slopes, v.T).T)
        products = ((x @ white.T) * d).sum((0, 2))
        squares = (_gram(x) * _gram(d)).sum((1, 2))
        return _cosines(products, white.norm(), squares.clamp_min(0).sqrt())


def _gram(rows: Tensor) -> Tensor:
    """The inner products among an image's rows: (r, k, n) -> (k, r, r)."""
    images = rows.transpose(0, 1)
    return images @ images.mT


def _root(moments: Tensor, ridge: float) -> Tensor:
    """The Cholesky factor of second moments with ``ridge`` times their mean eigenvalue on the diagonal."""
    size = (moments.diagonal().mean() * ridge).clamp_min(torch.finfo(moments.dtype).tiny)
    # Not `cholesky`, which reads back whether it went well, and so waits for the device.
    unit = torch.eye(len(moments), dtype=moments.dtype, device=moments.device)
    factor: Tensor = torch.linalg.cholesky_ex(moments + size * unit).L
    return factor


def _whitened(root: Tensor, rows: Tensor) -> Tensor:
    """L^-1 row for every row, of shape (..., n)."""
    flat = rows.flatten(0, -2)
    white: Tensor = torch.linalg.solve_triangular(root, flat.T, upper=False).T
    return white.reshape(rows.shape)


def _cosines(products: Tensor, left: Tensor, right: Tensor) -> Tensor:
    size = left * right
    return torch.where(size > 0, products / size, torch.zeros_like(products))
