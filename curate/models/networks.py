"""The networks, each of one shape: images in, features and the pretext's outputs out.

Rotation and contrast have torchvision's ResNets and a small one for 32 pixels, with taps for feature extraction;
reconstruction has the VAE. `functional` runs a network on parameters that are given to it.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from curate import rng
from curate.config.catalogue import NETWORKS, PRETEXTS
from curate.config.resolved import ResolvedConfig, ResolvedImages, ResolvedNetwork
from curate.errors import Misuse
from curate.models.basic_block import BasicBlock


class Outputs(NamedTuple):
    """What a network returns: features of shape (k, M), and what its pretext needs.

    `logits` is what the head says: of four rotations, shape (k, 4), or a projection, shape (k, d).
    """

    features: Tensor
    logits: Tensor | None = None
    reconstruction: Tensor | None = None
    mean: Tensor | None = None
    log_variance: Tensor | None = None


class TappedNetwork(nn.Module, ABC):
    """A network whose stages can be read: what features are taken from. Its output is `Outputs`."""

    @abstractmethod
    def tap(self, x: Tensor, name: str) -> Tensor:
        """Images (k, C, H, W), normalised floats -> the flattened output of a stage, (k, M); "pool" is the last.

        Raises:
            Misuse: no stage of that name; the message lists them.
        """

    def maps(self, x: Tensor, name: str) -> Tensor:
        """The same with the places of the stage, (k, channels, height, width), where it has any.

        Raises:
            Misuse: as `tap`.
        """
        return self.tap(x, name)


_SLOTS: WeakKeyDictionary[nn.Module, list[tuple[dict[str, Any], str, str]]] = WeakKeyDictionary()

#: A network with its parameters bound: call it as the module itself.
Network = Callable[..., Outputs]
Parameters = dict[str, Tensor]


class StagedNet(TappedNetwork):
    """A chain of named stages, a global average, and the pretext's head on it.

    Args:
        stages: named modules applied in turn; each name is a tap.
        head: from the average to logits (for RotNet four, one a rotation), or to a projection.
    """

    def __init__(self, stages: Mapping[str, nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(stages)
        self.head = head

    def forward(self, x: Tensor) -> Outputs:
        """Images (k, C, H, W), normalised floats -> features (k, M) and what the head makes of them."""
        pooled = self.tap(x, "pool")
        return Outputs(pooled, logits=self.head(pooled))

    def tap(self, x: Tensor, name: str) -> Tensor:
        """The flattened output of one stage, shape (k, channels * height * width); "pool" is the pre-logit average.

        Raises:
            Misuse: no stage of that name; the message lists them.
        """
        return self.maps(x, name).flatten(1)

    def maps(self, x: Tensor, name: str) -> Tensor:
        """The output of one stage, shape (k, channels, height, width); "pool" is the average of the last, (k, M).

        Raises:
            Misuse: as `tap`.
        """
        if name != "pool" and name not in self.stages:
            raise Misuse(f"{name}: not a stage of this network; known: {', '.join([*self.stages, 'pool'])}")
        for stage, module in self.stages.items():
            x = module(x)
            if stage == name:
                return x
        return x.mean(dim=(2, 3))


class Vae(TappedNetwork):
    """The paper's VAE: pixels - hidden - latent - hidden - pixels, ReLU inside, tanh at the end (docs/method.md)."""

    def __init__(self, pixels: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.encode = nn.Linear(pixels, hidden)
        self.to_mean = nn.Linear(hidden, latent)
        self.to_log_variance = nn.Linear(hidden, latent)
        self.decode = nn.Linear(latent, hidden)
        self.to_pixels = nn.Linear(hidden, pixels)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Outputs:
        """Images (k, C, H, W) in [-1, 1] and standard normal noise (k, latent), none for the mean -> `Outputs`.

        The features are the encoder's hidden units.
        """
        hidden = torch.relu(self.encode(x.flatten(1)))
        mean, log_variance = self.to_mean(hidden), self.to_log_variance(hidden)
        code = mean if noise is None else mean + torch.exp(0.5 * log_variance) * noise
        reconstruction = torch.tanh(self.to_pixels(torch.relu(self.decode(code))))
        return Outputs(hidden, reconstruction=reconstruction, mean=mean, log_variance=log_variance)

    def tap(self, x: Tensor, name: str) -> Tensor:
        """The encoder's hidden units, shape (k, hidden), under the name "pool".

        Raises:
            Misuse: another name.
        """
        if name != "pool":
            raise Misuse(f"{name}: not a stage of this network; known: pool")
        features: Tensor = self(x).features
        return features


def build(
    config: ResolvedNetwork, images: ResolvedImages, generator: torch.Generator, pretext: str = "rotation"
) -> TappedNetwork:
    """A network with weights drawn from ``generator``'s seed, in training mode, on the CPU.

    The global generator is left as it was.

    Args:
        pretext: whose outputs the head has.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        network: TappedNetwork = NETWORKS[config.network](config, images, PRETEXTS.spec(pretext).outputs)
    return network


def network_of(config: ResolvedConfig) -> TappedNetwork:
    """The network of a run before its first step: what a checkpoint of the run is loaded into."""
    return build(config.network, config.images, rng.generator(config.seed, "network"), config.pretext)


def functional(module: nn.Module, parameters: Parameters) -> Network:
    """``module`` as a function of its inputs alone, on ``parameters`` in place of its own, one for each by name.

    `torch.func.functional_call` does the same and more; on a small network it takes as long as the forward itself.
    """
    slots = _slots(module)

    def network(*inputs: Tensor) -> Outputs:
        own = [held[name] for held, name, _ in slots]
        for held, name, full in slots:
            held[name] = parameters[full]
        try:
            outputs: Outputs = module(*inputs)
        finally:
            for (held, name, _), parameter in zip(slots, own):
                held[name] = parameter
        return outputs

    return network


def autocast(network: Network, dtype: torch.dtype | None, device: torch.device) -> Network:
    """``network`` under autocast to ``dtype``, its outputs widened again, so that losses are computed in float32.

    None for ``dtype`` leaves it as it is.
    """
    if dtype is None:
        return network

    def half(*inputs: Tensor) -> Outputs:
        with torch.autocast(device.type, dtype=dtype):
            outputs = network(*inputs)
        return Outputs(outputs.features.float(), *(None if x is None else x.float() for x in outputs[1:]))

    return half


def without_state(module: nn.Module) -> nn.Module:
    """The architecture alone: a copy without parameters and without running statistics.

    Run through `functional`, its batch norms use the batch's own statistics and nothing is updated,
    which is what the meta-forward and the tangent need.
    """
    bare = copy.deepcopy(module).to("meta")
    for part in bare.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean = part.running_var = part.num_batches_tracked = None
    return bare


def _slots(module: nn.Module) -> list[tuple[dict[str, Any], str, str]]:
    """Where a module keeps its parameters: the dictionary, the name in it, and the full name of the first to share."""
    if module not in _SLOTS:
        first = {id(x): full for full, x in reversed(list(module.named_parameters(remove_duplicate=False)))}
        _SLOTS[module] = [
            (part._parameters, name, first[id(x)])
            for part in module.modules()
            for name, x in part._parameters.items()
            if x is not None
        ]
    return _SLOTS[module]


def _norm(name: str) -> Callable[[int], nn.Module]:
    if name == "batch":
        return nn.BatchNorm2d
    return lambda channels: nn.GroupNorm(max(1, min(32, channels // 4)), channels)


def vae(config: ResolvedNetwork, images: ResolvedImages, outputs: int) -> Vae:
    """The paper's VAE of the configuration's image size, hidden and latent units; ``outputs`` is not used."""
    return Vae(images.channels * images.crop**2, config.hidden, config.latent)


def _head(features: int, config: ResolvedNetwork, outputs: int) -> nn.Module:
    """So many logits; or two layers to a projection, as wide inside as SimCLR's (Chen et al. 2020)."""
    if config.projection is None:
        return nn.Linear(features, outputs)
    hidden = max(features, 128)
    norm = nn.BatchNorm1d(hidden) if config.norm == "batch" else _norm(config.norm)(hidden)
    return nn.Sequential(nn.Linear(features, hidden), norm, nn.ReLU(), nn.Linear(hidden, config.projection))


def resnet(config: ResolvedNetwork, images: ResolvedImages, outputs: int) -> StagedNet:
    """torchvision's ResNet of that name, without weights, with our head."""
    from torchvision import models  # takes seconds, which the other networks do without

    channels = images.channels
    net = getattr(models, config.network)(weights=None, norm_layer=_norm(config.norm))
    if channels != 3:
        net.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    stages: dict[str, nn.Module] = {"stem": nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool)}
    stages |= {f"layer{i}": getattr(net, f"layer{i}") for i in (1, 2, 3, 4)}
    return StagedNet(stages, _head(net.fc.in_features, config, outputs))


def small(config: ResolvedNetwork, images: ResolvedImages, outputs: int) -> StagedNet:
    """Three stages of one basic block each, at full, half and quarter resolution (He et al. 2015, CIFAR's ResNets).

    The stem's stride divides all three.
    """
    width, norm = config.width, _norm(config.norm)
    stem = nn.Conv2d(images.channels, width, kernel_size=3, stride=config.stem_stride, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    stages: dict[str, nn.Module] = {"stem": nn.Sequential(stem, norm(width), nn.ReLU())}
    inside = width
    for i in range(3):
        outside, stride = width * 2**i, 1 if i == 0 else 2
        shortcut = None
        if stride != 1:
            shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), norm(outside))
        stages[f"layer{i + 1}"] = BasicBlock(inside, outside, stride, shortcut, norm)
        inside = outside
    return StagedNet(stages, _head(inside, config, outputs))
