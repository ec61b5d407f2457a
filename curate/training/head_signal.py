"""Whether an image pulls the last linear layer where target images pull it and the store's do not (docs/method.md 11).

Both gradients lie in forwards: the store's is the one that trains, the target's needs no backward below the layer. So
there is neither tangent nor second backward, and a step costs little more than a plain one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from curate.errors import Misuse
from curate.models.networks import Parameters
from curate.training import lookahead
from curate.training.covariance import Covariance, Factored, LayerGradients, Whole
from curate.training.lookahead import Losses
from curate.training.signals import Running, SignalInputs, mean, move, move_reference, reference

#: Parameters of the layer up to which E[g g'] is kept whole: its factorisation is then small beside a step.
LARGEST = 1100


@dataclass(frozen=True)
class HeadJudged:
    """Losses of store images with autograd's graph behind them, and their gradients by the head."""

    losses: Tensor
    theta: Parameters
    head: LayerGradients

    def gradient(self, weights: Tensor) -> Parameters:
        """The gradient of (1/k) sum_i w_i L_i, by one backward pass."""
        return lookahead.gradient((weights * self.losses).sum() / len(weights), self.theta)


@dataclass(frozen=True)
class HeadAsked:
    """The target batch's mean loss, and its images' gradients by the head."""

    loss: Tensor
    head: LayerGradients


class HeadSignal:
    """c_i = <u_T - u_S, P g_i> / (|u_T - u_S|_P |g_i|_P), and the signal -(c_i - r).

    g_i is the gradient of L_i by the last linear layer, u_T the running mean of the target's, u_S that of the store's
    without the batch that is judged, P the inverse of the store's E[g g'] with a ridge, without that batch either, and
    r the reference (`curate.training.signals.reference`).

    Args:
        given: the network and the options: ``contrast`` (none: u_T alone), ``meta_average`` (of u_T and u_S), and
            ``reference``.

    Raises:
        Misuse: the network has no linear layer, or the pretext makes a loss of several images.
    """

    def __init__(self, given: SignalInputs) -> None:
        if given.couples:
            name = given.config.pretext
            raise Misuse(f"--signal head: under --pretext {name} no image has a gradient of its own; give exact")
        self.given, self.belief = given, given.config.belief
        self.name, layer = last_linear(given.network)
        self.biased = layer.bias is not None
        inputs = layer.in_features + self.biased
        self.covariance: Covariance = Whole() if inputs * layer.out_features <= LARGEST else Factored()

    def source(self, theta: Parameters, losses: Losses) -> HeadJudged:
        """The forward that trains, watched at the head."""
        network = self.given.network
        with _watched(network.get_submodule(self.name), cut=False) as visits:
            values = losses(self.given.bind(network, theta))
        return HeadJudged(values, theta, self._gradients(values, visits))

    def target(self, theta: Parameters, losses: Losses) -> HeadAsked:
        """A forward whose graph begins at the head's output: nothing below it is kept for a backward."""
        network, fixed = self.given.meta, {name: x.detach() for name, x in theta.items()}
        with _watched(network.get_submodule(self.name), cut=True) as visits:
            values = losses(self.given.bind(network, fixed))
        return HeadAsked(values.detach().mean(), self._gradients(values, visits))

    @torch.no_grad()
    def judge(self, running: Running, source: HeadJudged, target: HeadAsked | None, lr: float) -> Tensor:
        """Minus the cosines, above the reference; the target's own are taken before they enter u_T, the batch's before
        it enters u_S and P."""
        decay, store, h = self.belief.meta_average, source.head, torch.zeros_like(source.losses)
        known = "u_S" in running
        roots = self.covariance.roots(running) if known else ()
        if target is not None:
            if known and "u_T" in running and self.belief.reference == "quantile":
                move_reference(running, self.covariance.cosines(roots, self._direction(running), target.head))
            move(running, "u_T", target.head.mean(), decay)
        if known and "u_T" in running:
            cosines = self.covariance.cosines(roots, self._direction(running), store)
            h = reference(running) - cosines if self.belief.reference == "quantile" else -cosines
        move(running, "u_S", store.mean(), decay)
        self.covariance.move(running, store)
        return h

    def _direction(self, running: Running) -> Tensor:
        u = mean(running, "u_T")
        return u if self.belief.contrast == "none" else u - mean(running, "u_S")

    def _gradients(self, values: Tensor, visits: list[tuple[Tensor, GradientEdge]]) -> LayerGradients:
        """The factors of each image's gradient: rows of one image lie k apart, as a pretext turns them."""
        slopes = torch.autograd.grad(values.sum(), [edge for _, edge in visits], retain_graph=True)
        x = torch.cat([_rows(inputs) for inputs, _ in visits]).to(values.dtype)
        d = torch.cat([_rows(slope) for slope in slopes]).to(values.dtype)
        if self.biased:
            x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
        k = len(values)
        return LayerGradients(x.view(-1, k, x.shape[1]), d.view(-1, k, d.shape[1]))


def last_linear(network: nn.Module) -> tuple[str, nn.Linear]:
    """The last linear layer of a network, in the order in which its parts were made, and its name.

    Raises:
        Misuse: there is none.
    """
    found = [(name, part) for name, part in network.named_modules() if isinstance(part, nn.Linear)]
    if not found:
        raise Misuse("--signal head: the network has no linear layer; give --signal exact")
    return found[-1]


@contextmanager
def _watched(layer: nn.Module, cut: bool) -> Iterator[list[tuple[Tensor, GradientEdge]]]:
    """What goes into a layer, and where its output's gradient arrives; ``cut`` begins the graph at that output."""
    visits: list[tuple[Tensor, GradientEdge]] = []

    def look(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if cut:
            output = output.detach().requires_grad_()
        visits.append((inputs[0].detach(), get_gradient_edge(output)))
        return output

    handle = layer.register_forward_hook(look)
    try:
        yield visits
    finally:
        handle.remove()


def _rows(part: Tensor) -> Tensor:
    """(rows, ..., n) -> (... rows, n): places of an image lie as many apart as its turns."""
    return part.movedim(0, -2).flatten(0, -2)
