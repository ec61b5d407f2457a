"""A trained network from a file, to take features with: a checkpoint of ours, or torchvision's weights of a ResNet.

Weights are read as tensors only; nothing in a file is ever run.
"""

from __future__ import annotations

import hashlib
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from curate.config.resolved import MeasuredImages, ResolvedImages, ResolvedNetwork
from curate.data.augment import Augment
from curate.errors import CurateError, Misuse
from curate.models.networks import TappedNetwork, build, network_of
from curate.rng import generator
from curate.runs import checkpoint, provenance

#: Colour statistics that torchvision's weights were trained with.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
#: Blocks of the third layer, and whether they are bottlenecks, by architecture.
_BLOCKS = {(2, False): "resnet18", (6, False): "resnet34", (6, True): "resnet50"}
#: What reading a damaged file of weights may end in.
_GARBLED = (RuntimeError, EOFError, ValueError, LookupError, TypeError, AttributeError, struct.error)


@dataclass(frozen=True)
class Backbone:
    """A trained network in evaluation mode, and the mean and deviation that its input is normalised with."""

    network: TappedNetwork
    augment: Augment


def digest(path: Path) -> str:
    """sha256 of a file of weights.

    Raises:
        Misuse: there is none.
    """
    if not path.is_file():  # a pipe would be waited for
        raise Misuse(f"--nn-features {path}: no such file; name a model.safetensors or torchvision's weights")
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load(path: Path, images: ResolvedImages, device: torch.device) -> Backbone:
    """The network of a file, for images as ``images`` reads them, normalised as the network was trained.

    Raises:
        CurateError: the file is damaged, of another network, or for images of other channels or another size.
    """
    ours = path.parent.parent.parent
    if path.parent.parent.name == "checkpoints" and (ours / "run.json").is_file():
        config = provenance.read_config(ours)
        network, held = network_of(config), config.images
        checkpoint.load_model(path, network, "restore it, or name another file")
    else:
        held = imagenet_images(images)
        network = _torchvision(path, read_tensors(path), held)
    if held.channels != images.channels:
        raise CurateError(f"{path}: a network for {held.colour} images, this run reads {images.colour}; give --colour")
    if hasattr(network, "encode") and held.crop != images.crop:
        raise CurateError(f"{path}: a VAE for crops of {held.crop} px, this run has {images.crop}; give --crop")
    augment = Augment(images.crop, False, held.mean, held.deviation)
    return Backbone(network.to(device).eval(), augment)


def imagenet_images(images: ResolvedImages) -> MeasuredImages:
    """How images are read for a network that was trained on ImageNet: in colour, by its statistics."""
    return MeasuredImages(
        size=images.size, crop=images.crop, colour="rgb", mirror=False, mean=IMAGENET[0], deviation=IMAGENET[1]
    )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of one that `torch.save` wrote.

    Raises:
        CurateError: it is neither, or holds more than tensors.
    """
    try:
        if path.suffix == ".safetensors":
            tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (safetensors.SafetensorError, pickle.UnpicklingError, *_GARBLED) as error:
        detail = str(error).partition("\n")[0][:120]
        raise CurateError(
            f"{path}: not a file of weights alone ({detail}); give safetensors or a state_dict"
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(x, Tensor) for name, x in tensors.items()
    ):
        raise CurateError(f"{path}: expected a state_dict of tensors, found something else; save model.state_dict()")
    return tensors


def _torchvision(path: Path, tensors: dict[str, Tensor], images: MeasuredImages) -> TappedNetwork:
    """torchvision's ResNet under our names; the classifier is left out, our own head unused."""
    blocks = len({name.split(".")[1] for name in tensors if name.startswith("layer3.")})
    name = _BLOCKS.get((blocks, "layer3.0.conv3.weight" in tensors))
    if name is None:
        raise CurateError(f"{path}: the weights of no network known here ({', '.join(_BLOCKS.values())})")
    network = build(ResolvedNetwork(network=name), images, generator(0, "network"))
    renamed = {_renamed(key): x for key, x in tensors.items() if not key.startswith("fc.")}
    head = {key: x for key, x in network.state_dict().items() if key.startswith("head.")}
    try:
        network.load_state_dict(renamed | head)
    except RuntimeError as error:
        detail = str(error).splitlines()[-1].strip()[:160]
        raise CurateError(f"{path}: not the weights of a {name} ({detail})") from error
    return network


def _renamed(key: str) -> str:
    """torchvision's name of a parameter -> ours.

    >>> _renamed("conv1.weight"), _renamed("bn1.bias"), _renamed("layer1.0.conv1.weight")
    ('stages.stem.0.weight', 'stages.stem.1.bias', 'stages.layer1.0.conv1.weight')
    """
    for theirs, ours in (("conv1.", "stem.0."), ("bn1.", "stem.1.")):
        if key.startswith(theirs):
            return f"stages.{ours}{key.removeprefix(theirs)}"
    return f"stages.{key}"
