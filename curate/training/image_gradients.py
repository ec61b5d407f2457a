"""The gradient of each image's loss by all parameters, as far as it is asked for: weighted sums over the images,
products with a direction, second moments, and sizes in a diagonal metric.

Where the images of a batch do not touch one another all of it comes from the layers' inputs and the gradients by their
outputs (`ghost_products`): of a linear layer that sees an image once without any image's gradient, of others layer by
layer. Else one backward an image, all in one pass (`single_gradients`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from curate.models.networks import Parameters
from curate.training.ghost_products import Factors, TapedSource, applied


class ImageGradients(Protocol):
    """The losses of k images and their gradients g_i."""

    @property
    def losses(self) -> Tensor:
        """L_i, shape (k,)."""

    def gradient(self, weights: Tensor) -> Parameters:
        """(1/k) sum_i w_i g_i."""

    def along(self, direction: Parameters) -> Tensor:
        """<direction, g_i>, shape (k,)."""

    def second_moments(self) -> Parameters:
        """(1/k) sum_i g_i^2, number by number."""

    def squares(self, metric: Parameters) -> Tensor:
        """sum metric g_i^2, shape (k,)."""


@dataclass(frozen=True)
class Single:
    """The gradients themselves, each of shape (k, ...)."""

    losses: Tensor
    rows: Parameters

    def gradient(self, weights: Tensor) -> Parameters:
        """A weighted mean of rows."""
        return {name: torch.tensordot(weights / len(weights), rows, 1) for name, rows in self.rows.items()}

    def along(self, direction: Parameters) -> Tensor:
        """Parameter by parameter."""
        return _total(rows.flatten(1) @ direction[name].flatten() for name, rows in self.rows.items())

    def second_moments(self) -> Parameters:
        """Means of squares."""
        return {name: rows.square().mean(0) for name, rows in self.rows.items()}

    def squares(self, metric: Parameters) -> Tensor:
        """Parameter by parameter."""
        return _total(rows.square().flatten(1) @ metric[name].flatten() for name, rows in self.rows.items())


def single_gradients(losses: Tensor, theta: Parameters) -> Single:
    """One backward for every image, side by side: right for any network, at k times the cost of one."""
    each = torch.eye(len(losses), dtype=losses.dtype, device=losses.device)
    found = torch.autograd.grad(losses, list(theta.values()), each, is_grads_batched=True, allow_unused=True)
    rows = (
        x.new_zeros((len(losses), *x.shape)) if row is None else row.detach() for x, row in zip(theta.values(), found)
    )
    return Single(losses.detach(), dict(zip(theta, rows)))


@dataclass(frozen=True)
class Taped:
    """From the tape of a batch whose images do not touch, with every layer visited once."""

    tape: TapedSource

    @property
    def losses(self) -> Tensor:
        """L_i, shape (k,)."""
        return self.tape.losses

    def gradient(self, weights: Tensor) -> Parameters:
        """As of the tape."""
        return self.tape.gradient(weights)

    def along(self, direction: Parameters) -> Tensor:
        """As of the tape."""
        return self.tape.along(direction)

    @torch.no_grad()
    def second_moments(self) -> Parameters:
        """Layer by layer; 0 where the losses do not depend on a layer."""
        found = {name: torch.zeros_like(x) for name, x in self.tape.theta.items()}
        for part in self.tape.factors:
            if sees_once(part, self.tape.k):
                x, d = part.x.square(), part.slope.square()
                own = {"weight": d.T @ x / self.tape.k, "bias": d.mean(0)}
            else:
                own = {name: rows.square().mean(0) for name, rows in layer_rows(part, self.tape.k).items()}
            found |= dict(_full(part, own))
        return found

    @torch.no_grad()
    def squares(self, metric: Parameters) -> Tensor:
        """Layer by layer."""
        return _total(_squares(part, dict(_own(part, metric)), self.tape.k) for part in self.tape.factors)


def _squares(part: Factors, metric: Parameters, k: int) -> Tensor:
    """sum metric g_i^2 over one layer's parameters, shape (k,)."""
    if sees_once(part, k):
        d = part.slope.square()
        own: Tensor = ((part.x.square() @ metric["weight"].T) * d).sum(1)
        return own + d @ metric["bias"] if "bias" in metric else own
    rows = layer_rows(part, k)
    return _total(each.square().flatten(1) @ metric[name].flatten() for name, each in rows.items())


def sees_once(part: Factors, k: int) -> bool:
    """Whether a layer is linear and sees each image as one row, so that g_i is one outer product."""
    return isinstance(part.layer, nn.Linear) and part.slope.ndim == 2 and len(part.slope) == k


def layer_rows(part: Factors, k: int) -> Parameters:
    """Each image's gradient by one layer's own parameters, (k, ...), summed over its rows, which lie k apart."""
    layer, x, slope = part.layer, part.x, part.slope
    turns = len(slope) // k
    if isinstance(layer, nn.Conv2d):
        # The images as groups of one convolution: a kernel's gradient for each.
        height, width = layer.kernel_size
        shape = (k * layer.out_channels, layer.in_channels // layer.groups, height, width)
        folded, slopes = (each.reshape(turns, -1, *each.shape[2:]) for each in (x, slope))
        rows = conv2d_weight(folded, shape, slopes, layer.stride, layer.padding, layer.dilation, k * layer.groups)  # type: ignore[no-untyped-call]
        found, bias = {"weight": rows.view(k, *layer.weight.shape)}, slope.sum((2, 3))
    elif isinstance(layer, nn.Linear):
        x, slope = (each.reshape(turns, k, -1, each.shape[-1]) for each in (x, slope))
        found, bias = {"weight": torch.einsum("rkpc,rkpf->kcf", slope, x)}, slope.sum(2).flatten(0, 1)
    else:
        own = len(layer.weight.shape) if isinstance(layer, nn.LayerNorm) else None
        places = tuple(range(1, x.ndim - own)) if own else tuple(range(2, x.ndim))
        product = slope * applied(layer, x, None, None)
        weight, bias = (each.sum(places) if places else each for each in (product, slope))
        found = {"weight": _over_turns(weight, k)}
    return found | {"bias": _over_turns(bias, k)} if layer.bias is not None else found


def _over_turns(rows: Tensor, k: int) -> Tensor:
    return rows.reshape(-1, k, *rows.shape[1:]).sum(0)


def _full(part: Factors, own: Parameters) -> Iterator[tuple[str, Tensor]]:
    """A layer's values under the network's names."""
    for name, _ in part.layer.named_parameters(recurse=False):
        yield (f"{part.name}.{name}" if part.name else name), own[name]


def _own(part: Factors, values: Parameters) -> Iterator[tuple[str, Tensor]]:
    """The network's values under a layer's own names."""
    for name, _ in part.layer.named_parameters(recurse=False):
        yield name, values[f"{part.name}.{name}" if part.name else name]


def _total(parts: Iterator[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0)
