"""Exact products without a tangent, for networks whose images do not touch one another inside a batch.

There <u, grad L_i> is a sum over the layers: what the layer would give for image i with u in place of its parameters,
times the gradient of L_i by the layer's output. Both factors lie in the backward pass that is made anyway, so no
gradient of a single image is ever formed (docs/method.md section 2). Weights enter in the parameters' gradient alone:
nothing is divided by them, and they may be 0.

With batch norm in training mode every L_i depends on the whole batch, and this would be wrong: `refusal` says so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from curate.models.networks import Parameters, functional
from curate.training.lookahead import Losses

BATCH_NORM = nn.modules.batchnorm._BatchNorm
#: Multiplications below which fewer calls are worth more than fewer multiplications.
FEW = 1 << 19


class Visit(NamedTuple):
    """One layer in one forward: its name, its input of shape (rows, ...), and where its output's gradient arrives."""

    name: str
    layer: nn.Module
    x: Tensor
    version: int
    edge: GradientEdge


class Factors(NamedTuple):
    """One layer's share of a backward pass: its input and the gradient by its output, both of shape (rows, ...)."""

    name: str
    layer: nn.Module
    x: Tensor
    slope: Tensor


def refusal(module: nn.Module) -> str | None:
    """Why ``module`` cannot be taped, in words; None where it can."""
    known = {id(p) for _, layer in _layers(module) for p in layer.parameters(recurse=False)}
    for name, part in module.named_modules():
        if isinstance(part, BATCH_NORM) and (part.training or part.running_mean is None):
            return f"{name}: batch norm in training mode joins the images of a batch"
        if isinstance(part, nn.Conv2d) and (part.padding_mode != "zeros" or isinstance(part.padding, str)):
            return f"{name}: a convolution with {part.padding_mode} padding {part.padding!r} is not known here"
    for name, parameter in module.named_parameters():
        if id(parameter) not in known:
            return f"{name}: not a parameter of a linear, convolution or normalisation layer"
    return None


class Taped:
    """The evaluator: see `curate.training.evaluators.Evaluator`.

    Args:
        module: the architecture, for which `refusal` is None; copied. Batch norm that is frozen keeps its statistics.
    """

    def __init__(self, module: nn.Module) -> None:
        assert refusal(module) is None
        self.module = copy.deepcopy(module)
        self._visits: list[Visit] = []
        for name, layer in _layers(self.module):
            layer.forward = self._recorder(name, layer, layer.forward)  # a hook would cost more than a small layer

    def source(self, theta: Parameters, losses: Losses) -> TapedSource:
        """A forward over store images and its backward down to the layers' outputs, unweighted."""
        values, visits = self._forward(theta, losses)
        return TapedSource(values.detach(), theta, factors(values.sum(), visits))

    def target(self, theta: Parameters, loss: Losses) -> TapedTarget:
        """A forward over target images and its backward down to the layers' outputs."""
        value, visits = self._forward(theta, loss)
        return TapedTarget(value.detach(), theta, factors(value, visits))

    def _forward(self, theta: Parameters, losses: Losses) -> tuple[Tensor, list[Visit]]:
        self._visits = []
        value = losses(functional(self.module, theta))
        visits, self._visits = self._visits, []
        return value, visits

    def _recorder(self, name: str, layer: nn.Module, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def record(x: Tensor) -> Tensor:
            output = forward(x)
            # The edge, not the tensor: a ReLU in place turns the tensor into something else.
            self._visits.append(Visit(name, layer, x, x._version, get_gradient_edge(output)))
            return output

        return record


@dataclass(frozen=True)
class TapedTarget:
    """The target's loss and its factors, layer by layer."""

    loss: Tensor
    theta: Parameters
    factors: list[Factors]

    def gradient(self) -> Parameters:
        """u = grad M."""
        return parameter_gradient(self.factors, self.theta, None)


@dataclass(frozen=True)
class TapedSource:
    """The losses of store images and their factors; rows of one image lie ``k`` apart, as a pretext turns them."""

    losses: Tensor
    theta: Parameters
    factors: list[Factors]

    @property
    def k(self) -> int:
        """Images in the batch."""
        return len(self.losses)

    def gradient(self, weights: Tensor) -> Parameters:
        """The gradient of (1/k) sum_i w_i L_i."""
        return parameter_gradient(self.factors, self.theta, weights / self.k)

    def along(self, direction: Parameters) -> Tensor:
        """<direction, grad L_i>, shape (k,): from each layer with the direction in place of its parameters."""
        return self._summed([contraction(each, _own(each, direction)) for each in self.factors])

    def along_target(self, target: TapedTarget) -> Tensor:
        """<grad M, grad L_i>, shape (k,), layer by layer: by pairs of rows where that is cheaper, else as `along`."""
        theirs = {each.name: each for each in target.factors}
        once = len(theirs) == len(target.factors) and len({each.name for each in self.factors}) == len(self.factors)
        if not once:  # a layer that is visited twice has products across its visits
            return self.along(target.gradient())
        parts = []
        for mine in self.factors:
            other = theirs.get(mine.name)
            if other is None:
                continue
            if pairs_are_cheaper(mine, other):
                parts.append(pairs(mine, other))
            else:
                parts.append(contraction(mine, layer_gradient(other, None)))
        return self._summed(parts)

    def _summed(self, parts: list[Tensor]) -> Tensor:
        if not parts:
            return torch.zeros_like(self.losses)
        rows = torch.stack(parts).sum(0)
        return rows if len(rows) == self.k else rows.view(-1, self.k).sum(0)


def factors(value: Tensor, visits: list[Visit]) -> list[Factors]:
    """The gradient of a scalar by the output of every visited layer; layers it does not depend on are left out.

    Raises:
        RuntimeError: a layer's input was changed in place after the layer saw it.
    """
    slopes = torch.autograd.grad(value, [visit.edge for visit in visits], allow_unused=True)
    for visit in visits:
        if visit.x._version != visit.version:
            raise RuntimeError(f"{visit.name}: its input was changed in place during the forward")
    return [Factors(v.name, v.layer, v.x.detach(), slope) for v, slope in zip(visits, slopes) if slope is not None]


@torch.no_grad()
def parameter_gradient(parts: list[Factors], theta: Parameters, scale: Tensor | None) -> Parameters:
    """The gradient by every parameter, each row's share multiplied by its image's ``scale`` (k,); None for 1."""
    found: Parameters = {}
    for part in parts:
        for name, value in layer_gradient(part, scale).items():
            full = f"{part.name}.{name}" if part.name else name
            found[full] = found[full] + value if full in found else value
    return {name: found[name] if name in found else torch.zeros_like(x) for name, x in theta.items()}


@torch.no_grad()
def layer_gradient(part: Factors, scale: Tensor | None) -> Parameters:
    """A layer's own parameters' gradient, under their own names; rows multiplied by their image's ``scale`` (k,)."""
    layer, x, slope = part.layer, part.x, part.slope
    if scale is not None and len(scale) < len(slope):
        scale = scale.repeat(len(slope) // len(scale))
    if isinstance(layer, nn.Linear) and slope.ndim == 2:
        return _linear_gradient(layer, x, slope, scale)
    if scale is not None:
        slope = slope * scale.view(-1, *[1] * (slope.ndim - 1))
    if isinstance(layer, nn.Linear):
        return _linear_gradient(layer, x.flatten(0, -2), slope.flatten(0, -2), None)
    found: Parameters = {}
    if isinstance(layer, nn.Conv2d):
        found["weight"] = conv2d_weight(  # type: ignore[no-untyped-call]
            x, layer.weight.shape, slope, layer.stride, layer.padding, layer.dilation, layer.groups
        )
        bias = slope.sum((0, 2, 3))
    else:
        others = _all_but_own(layer, x)
        found["weight"] = (slope * applied(layer, x, None, None)).sum(others)
        bias = slope.sum(others)
    return found | {"bias": bias} if layer.bias is not None else found


def _linear_gradient(layer: nn.Linear, x: Tensor, slope: Tensor, scale: Tensor | None) -> Parameters:
    """Of rows (n, inside) and (n, outside); the narrower of the two is scaled."""
    bias = slope.sum(0) if scale is None else scale @ slope
    if scale is not None and slope.shape[1] <= x.shape[1]:
        slope = slope * scale[:, None]
    elif scale is not None:
        x = x * scale[:, None]
    return {"weight": slope.T @ x} | ({"bias": bias} if layer.bias is not None else {})


@torch.no_grad()
def contraction(part: Factors, direction: Parameters) -> Tensor:
    """<direction, gradient of each row> of one layer, shape (rows,)."""
    moved = applied(part.layer, part.x, direction["weight"], direction.get("bias"))
    return (moved * part.slope).flatten(1).sum(1)


@torch.no_grad()
def pairs(mine: Factors, other: Factors) -> Tensor:
    """<gradient of each of my rows, sum of the other's> of a linear layer: sum_j (x_i . x_j + 1) (d_i . d_j).

    The 1 is the bias. Shape (rows,).
    """
    inputs, slopes = mine.x @ other.x.T, mine.slope @ other.slope.T
    if mine.layer.bias is not None:
        inputs += 1
    rows: Tensor = torch.linalg.vecdot(inputs, slopes)
    return rows


def pairs_are_cheaper(mine: Factors, other: Factors) -> bool:
    """Whether `pairs` multiplies less than forming the other's gradient and contracting with it."""
    if not isinstance(mine.layer, nn.Linear) or mine.x.ndim != 2:
        return False
    n, m, (outside, inside) = len(mine.x), len(other.x), mine.layer.weight.shape
    return bool(n * m * (inside + outside) < max(FEW, (n + m) * inside * outside))


def applied(layer: nn.Module, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """The layer on other parameters; a normalisation without any only normalises."""
    if isinstance(layer, nn.GroupNorm):
        return F.group_norm(x, layer.num_groups, weight, bias, layer.eps)
    if isinstance(layer, nn.LayerNorm):
        return F.layer_norm(x, layer.normalized_shape, weight, bias, layer.eps)
    if isinstance(layer, BATCH_NORM):
        return F.batch_norm(x, layer.running_mean, layer.running_var, weight, bias, eps=layer.eps)
    assert weight is not None
    if isinstance(layer, nn.Conv2d):
        return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    return F.linear(x, weight, bias)


def _layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers that are linear in their parameters, and have any."""
    kinds = (nn.Linear, nn.Conv2d, nn.GroupNorm, nn.LayerNorm, BATCH_NORM)
    for name, part in module.named_modules():
        if isinstance(part, kinds) and part.weight is not None:
            yield name, part


def _own(part: Factors, direction: Parameters) -> Parameters:
    prefix = f"{part.name}." if part.name else ""
    return {name: direction[prefix + name] for name, _ in part.layer.named_parameters(recurse=False)}


def _all_but_own(layer: nn.Module, x: Tensor) -> tuple[int, ...]:
    """The axes of ``x`` over which a normalisation layer shares its parameters."""
    if isinstance(layer, nn.LayerNorm):
        return tuple(range(x.ndim - len(layer.normalized_shape)))
    return tuple(axis for axis in range(x.ndim) if axis != 1)
