"""In which order of memory a network's convolutions are fast, and in which they are safe.

On the CPU oneDNN computes them. In the backward pass of a convolution of one pixel with a stride, on maps whose
channels lie last, it writes beyond its memory where the maps have fewer channels than a vector of the processor holds:
a crash, a hang, or a wrong gradient without a word (uxlfoundation/oneDNN, issue 6035; open in torch 2.14). Such
networks, and only those, keep their planes.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from curate.errors import Misuse

#: Of 32 bits each, in the widest vector there is.
_VECTOR = 16

AnyNetwork = TypeVar("AnyNetwork", bound=nn.Module)


def laid_out(network: AnyNetwork, layout: str, device: torch.device) -> AnyNetwork:
    """The network with its kernels as ``layout`` has them, and so all that its convolutions make.

    Args:
        layout: auto, channels-last or planes, of which CUDA knows channels-last alone.

    Raises:
        Misuse: channels-last is asked for where it is not safe.
    """
    unsafe = _overrunning(network) if device.type == "cpu" else ""
    if unsafe and layout == "channels-last":
        raise Misuse(
            f"--layout channels-last: {unsafe} has a stride, one pixel and fewer than {_VECTOR} channels, whose "
            "gradient torch gets wrong in this order; give --layout planes, or a wider network"
        )
    if device.type == "cpu" and (unsafe or layout == "planes"):
        return network
    return network.to(memory_format=torch.channels_last)


def _overrunning(network: nn.Module) -> str:
    """The name of the first convolution that writes beyond its memory where channels lie last; empty: there is none."""
    convolutions = ((name, part) for name, part in network.named_modules() if isinstance(part, nn.Conv2d))
    return next((name for name, part in convolutions if _overruns(part)), "")


def _overruns(part: nn.Conv2d) -> bool:
    of_a_pixel, strided = set(part.kernel_size) == {1}, set(part.stride) != {1}
    return of_a_pixel and strided and part.in_channels // part.groups < _VECTOR
