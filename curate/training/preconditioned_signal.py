"""Whether an image's gradient by all parameters points where target images' do and the store's do not, in a diagonal
metric that takes each parameter by the size of its gradients (docs/method.md 11).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from curate.models.networks import Parameters
from curate.training import evaluators, ghost_products
from curate.training.image_gradients import ImageGradients, Taped, single_gradients
from curate.training.lookahead import Losses
from curate.training.signals import Running, SignalInputs, mean, move, move_reference, reference

#: Decay of E[g^2], and what is added to it in units of its mean over the parameters.
DECAY, RIDGE = 0.96, 1e-3


@dataclass(frozen=True)
class Asked:
    """The target batch's mean loss, and its images' gradients."""

    loss: Tensor
    images: ImageGradients


class PreconditionedSignal:
    """c_i = <u_T - u_S, P g_i> / (|u_T - u_S|_P |g_i|_P), and the signal -(c_i - r): as of the head, but g_i by all
    parameters, and P = 1 / (E[g^2] + ridge), a number a parameter.

    Args:
        given: the network and the options, as of `HeadSignal`.
    """

    def __init__(self, given: SignalInputs) -> None:
        self.given, self.belief = given, given.config.belief
        apart = not given.couples and ghost_products.refusal(given.network) is None
        self.tape = ghost_products.Taped(given.network) if apart else None
        self.trusted = False

    def source(self, theta: Parameters, losses: Losses) -> ImageGradients:
        """The forward that trains, and each image's gradient."""
        if self.tape is not None and not self.trusted:
            self.trusted = evaluators.agree(self.tape, self.given.bare, theta, losses) and _visits_once(
                self.tape.source(theta, losses)
            )
            self.tape = self.tape if self.trusted else None
        return self._images(self.given.network, theta, losses)

    def target(self, theta: Parameters, losses: Losses) -> Asked:
        """A forward over target images, and each image's gradient."""
        images = self._images(self.given.meta, theta, losses)
        return Asked(images.losses.mean(), images)

    @torch.no_grad()
    def judge(self, running: Running, source: ImageGradients, target: Asked | None, lr: float) -> Tensor:
        """Minus the cosines, above the reference; the target's own are taken before they enter u_T, the batch's before
        it enters u_S and P."""
        decay, h = self.belief.meta_average, torch.zeros_like(source.losses)
        known = "u_S" in running
        inverse = 1 / ridged(mean(running, "square")) if known else torch.empty(0)
        if target is not None:
            if known and "u_T" in running and self.belief.reference == "quantile":
                move_reference(running, self._cosines(running, inverse, target.images))
            move(running, "u_T", flat(target.images.gradient(torch.ones_like(target.images.losses))), decay)
        if known and "u_T" in running:
            cosines = self._cosines(running, inverse, source)
            h = reference(running) - cosines if self.belief.reference == "quantile" else -cosines
        move(running, "u_S", flat(source.gradient(torch.ones_like(source.losses))), decay)
        move(running, "square", flat(source.second_moments()), DECAY)
        return h

    def _cosines(self, running: Running, inverse: Tensor, images: ImageGradients) -> Tensor:
        v = mean(running, "u_T")
        if self.belief.contrast != "none":
            v = v - mean(running, "u_S")
        shaped, scaled = partial(unflat, like=dict(self.given.network.named_parameters())), inverse * v
        products, squares = images.along(shaped(scaled)), images.squares(shaped(inverse))
        size = (squares * torch.dot(scaled, v)).sqrt()
        return torch.where(size > 0, products / size, torch.zeros_like(products))

    def _images(self, network: torch.nn.Module, theta: Parameters, losses: Losses) -> ImageGradients:
        if self.tape is not None:
            return Taped(self.tape.source(theta, losses))
        return single_gradients(losses(self.given.bind(network, theta)), theta)


def ridged(squares: Tensor) -> Tensor:
    """E[g^2] with its ridge."""
    return squares + (RIDGE * squares.mean()).clamp_min(torch.finfo(squares.dtype).tiny)


def flat(parameters: Parameters) -> Tensor:
    """All numbers in one row."""
    return torch.cat([x.flatten() for x in parameters.values()])


def unflat(row: Tensor, like: Parameters) -> Parameters:
    """The same numbers in the shapes of ``like``."""
    parts = torch.split(row, [x.numel() for x in like.values()])
    return {name: part.view(x.shape) for (name, x), part in zip(like.items(), parts)}


def _visits_once(source: ghost_products.TapedSource) -> bool:
    names = [part.name for part in source.factors]
    return len(set(names)) == len(names)
