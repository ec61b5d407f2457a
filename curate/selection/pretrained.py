"""Features of torchvision's classification models: what goes into the last linear layer."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision import models

from curate.data.augment import centre_crop, normalise
from curate.errors import CurateError, Misuse
from curate.selection.base import EncoderInputs
from curate.types import Floats

#: torchvision's usual evaluation: shorter side, centre crop, colour statistics.
SIZE, CROP = 256, 224
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Torchvision:
    """``NAME`` takes torchvision's own weights (its cache, or a download); ``NAME@FILE`` a state dict of the model."""

    size, colour = SIZE, "rgb"
    calibrated_on = 0

    def __init__(self, inputs: EncoderInputs) -> None:
        name, _, file = inputs.argument.partition("@")
        if name not in models.list_models(module=models):
            raise Misuse(f"--encoder torchvision:{name}: torchvision.models has no such model; names as in resnet18")
        network = _from_file(name, Path(file)) if file else _with_own_weights(name)
        self.identity: dict[str, Any] = {"model": name, "weights": _digest(network), "size": SIZE, "crop": CROP}
        self.network, self.device = network.to(inputs.device).eval(), inputs.device
        self.found: list[Tensor] = []
        _last_linear(network, name).register_forward_pre_hook(lambda _, inputs: self.found.append(inputs[0]))

    def calibrate(self, images: Iterator[Tensor]) -> None:
        """Does nothing: a trained network needs no calibration."""

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Floats:
        """As `curate.selection.base.Encoder`."""
        self.found.clear()
        self.network(normalise(centre_crop(pixels.to(self.device), CROP), *_IMAGENET))
        return np.asarray(self.found.pop().flatten(1).float().cpu().numpy())


def _from_file(name: str, path: Path) -> nn.Module:
    network: nn.Module = models.get_model(name, weights=None)
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except FileNotFoundError as error:
        raise Misuse(f"--encoder torchvision:{name}@{path}: no such file of weights") from error
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError) as error:
        detail = str(error).strip().splitlines()[-1].strip()[:160] if str(error).strip() else type(error).__name__
        raise CurateError(f"{path}: not the weights of torchvision's {name} ({detail})") from error
    return network


def _with_own_weights(name: str) -> nn.Module:
    try:
        network: nn.Module = models.get_model(name, weights="DEFAULT")
    except OSError as error:
        raise CurateError(
            f"--encoder torchvision:{name}: its weights cannot be fetched ({error}); give torchvision:{name}@FILE"
        ) from error
    return network


def _last_linear(network: nn.Module, name: str) -> nn.Module:
    layers = [part for part in network.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise Misuse(f"--encoder torchvision:{name}: has no linear layer to take features before; name another model")
    return layers[-1]


def _digest(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for key, x in network.state_dict().items():
        digest.update(key.encode() + x.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
