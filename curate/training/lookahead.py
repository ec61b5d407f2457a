"""The look-ahead step and the exact meta-gradient: how the target's loss after one SGD step moves with each weight.

theta' is affine in the weights, theta' = ... - (alpha / k) sum_i w_i grad L_i(theta), so
dM/dw_i = -(alpha / k) <grad M(theta'), grad L_i(theta)>, momentum and weight decay or not. All k inner products
are one forward-mode product: the tangent of (L_1 .. L_k) at theta along u = grad M(theta'). With batch norm in
training mode, where each L_i depends on the whole batch, the tangent runs through the batch statistics and is exact.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from curate.models.networks import Network, Parameters, functional

Losses = Callable[[Network], Tensor]
Directional = Callable[[torch.nn.Module, Parameters, Losses, Parameters], Tensor]


def gradient(loss: Tensor, parameters: Parameters) -> Parameters:
    """d loss / d parameters; zeros for a parameter that the loss does not use."""
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(parameters, found))


@torch.no_grad()
def sgd_step(
    theta: Parameters, velocity: Parameters, grads: Parameters, lr: float, momentum: float, weight_decay: float
) -> tuple[Parameters, Parameters]:
    """One step of torch's SGD as a function: g = grads + delta theta; v' = mu v + g; theta' = theta - alpha v'.

    Returns:
        (theta', v'): new tensors; theta' requires gradients.
    """
    values, g = list(theta.values()), list(grads.values())
    if weight_decay:
        g = list(torch._foreach_add(g, values, alpha=weight_decay))
    if momentum:
        g = list(torch._foreach_add(g, list(velocity.values()), alpha=momentum))
    ahead = torch._foreach_add(values, g, alpha=-lr)
    return {name: x.requires_grad_() for name, x in zip(theta, ahead)}, dict(zip(theta, g))


def forward_mode(module: torch.nn.Module, theta: Parameters, losses: Losses, direction: Parameters) -> Tensor:
    """<direction, grad L_i(theta)> for every i: one pass with dual parameters, shape (k,).

    Raises:
        NotImplementedError, RuntimeError: an operator of the network lacks forward-mode differentiation.
    """
    _load_decompositions()
    with torch.no_grad(), forward_ad.dual_level(), _OneKernelBatchNorm():
        duals = {
            name: forward_ad.make_dual(x.detach(), direction[name])  # type: ignore[no-untyped-call]
            for name, x in theta.items()
        }
        dual = losses(functional(module, duals))
        tangent: Tensor = forward_ad.unpack_dual(dual).tangent  # type: ignore[no-untyped-call]
        return tangent


def double_backward(module: torch.nn.Module, theta: Parameters, losses: Losses, direction: Parameters) -> Tensor:
    """The same k products by two reverse passes, for networks with an operator that lacks forward mode.

    s(c) = <grad sum_i c_i L_i, direction> is linear in c, and its gradient is the answer.
    """
    with torch.enable_grad(), _second_order():
        leaves = {name: x.detach().requires_grad_() for name, x in theta.items()}
        values = losses(functional(module, leaves))
        c = torch.zeros_like(values, requires_grad=True)
        grads = torch.autograd.grad(values, list(leaves.values()), c, create_graph=True, allow_unused=True)
        s = sum((g * direction[name]).sum() for name, g in zip(leaves, grads) if g is not None)
        assert isinstance(s, Tensor)
        (answer,) = torch.autograd.grad(s, c)
    return answer


def evaluator(module: torch.nn.Module, theta: Parameters, losses: Losses) -> Directional:
    """`forward_mode` where every operator of the network has it, else `double_backward`; found by trying once."""
    try:
        forward_mode(module, theta, losses, {name: torch.zeros_like(x) for name, x in theta.items()})
    except (NotImplementedError, RuntimeError) as error:
        if "forward" not in str(error) and "jvp" not in str(error):
            raise
        return double_backward
    return forward_mode


class _OneKernelBatchNorm(TorchFunctionMode):
    """Takes batch norm's tangent from its backward kernel; torch's own rule makes some fifteen passes over memory."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return (_batch_norm if func is F.batch_norm else func)(*args, **(kwargs or {}))


def _batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`F.batch_norm` of dual tensors, quick where it takes the batch's own statistics and everything has a tangent.

    With z = (x - mean) / deviation, the derivative by x is weight / deviation (I - 11'/n - zz'/n) a channel:
    symmetric, so that what takes a gradient back takes a tangent forward. Weight and bias add dweight z + dbias.
    """
    duals = [forward_ad.unpack_dual(part) for part in (x, weight, bias) if part is not None]  # type: ignore[no-untyped-call]
    if running_mean is not None or not training or len(duals) < 3 or any(dual.tangent is None for dual in duals):
        return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    (x, dx), (weight, dweight), (bias, dbias) = duals
    y, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
    dy, _, _ = torch.ops.aten.native_batch_norm_backward(
        dx, x, weight, None, None, mean, inverse, True, eps, [True, False, False]
    )
    slope, channels = dweight * inverse, (-1, *[1] * (x.ndim - 2))
    dy.addcmul_(x, slope.view(channels)).add_((dbias - slope * mean).view(channels))
    return forward_ad.make_dual(y, dy)  # type: ignore[no-untyped-call,no-any-return]


@functools.cache
def _load_decompositions() -> None:
    # torch loads these at the first dual tensor, and some versions then warn of torch.jit, which is not our doing.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _second_order() -> Iterator[None]:
    # cuDNN has no second derivative of batch norm; its native kernel has.
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = before and not torch.cuda.is_available()
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before
