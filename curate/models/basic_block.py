"""The basic block of a ResNet (He et al. 2015), for the small network.

torchvision has the same one; but to import anything of torchvision takes as long as to import torch, as it loads
torch's compiler.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, each normalised, and the input added; modules and draws are those of torchvision's.

    Args:
        inside, outside: channels.
        stride: of the first convolution.
        downsample: what makes the input fit, None where it does.
        norm: a layer of so many channels.
    """

    def __init__(
        self, inside: int, outside: int, stride: int, downsample: nn.Module | None, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = norm(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, kernel_size=3, padding=1, bias=False)
        self.bn2 = norm(outside)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """(k, inside, H, W) -> (k, outside, H / stride, W / stride)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        added: Tensor = self.relu(out)
        return added
