"""Features of the models of timm (pytorch-image-models, Apache-2.0): what goes into the head's last layer.

Nothing is downloaded: weights come from a file, or from where an earlier program's download lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from curate.data.augment import centre_crop, normalise
from curate.errors import CurateError, Misuse
from curate.selection.base import EncoderInputs
from curate.types import Floats

#: Names of weights in a repository of the hub, the better first.
_FILES = ("model.safetensors", "pytorch_model.bin")


class Timm:
    """``NAME`` takes weights from the user's cache, ``NAME@FILE`` a state dict of the model (safetensors or torch)."""

    colour = "rgb"
    calibrated_on = 0

    def __init__(self, inputs: EncoderInputs) -> None:
        try:
            import timm
        except ImportError as error:
            raise CurateError("--encoder timm needs the library: pip install 'curate-bdw[timm]'") from error
        name, _, file = inputs.argument.partition("@")
        if not timm.is_model(name.partition(".")[0]):
            raise Misuse(f"--encoder timm:{name}: timm has no such model; `timm.list_models()` names them")
        path = Path(file) if file else _cached(timm, name)
        network, how = _loaded(timm, name, path)
        self.network: nn.Module = network.to(inputs.device).eval()
        self.device = inputs.device
        self.crop, self.statistics = how["input_size"][-1], (how["mean"], how["std"])
        self.size = max(self.crop, round(self.crop / how["crop_pct"]))
        self.identity: dict[str, Any] = {
            "model": name,
            "weights": hashlib.sha256(path.read_bytes()).hexdigest(),
            "size": self.size,
            "crop": self.crop,
            "timm": timm.__version__,
        }

    def calibrate(self, images: Iterator[Tensor]) -> None:
        """Nothing: it was trained."""

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Floats:
        """As `curate.selection.base.Encoder`."""
        x = normalise(centre_crop(pixels.to(self.device), self.crop), *self.statistics)
        return np.asarray(self.network(x).flatten(1).float().cpu().numpy())


def _cached(timm: Any, name: str) -> Path:
    """Where an earlier download of a model's weights lies."""
    from huggingface_hub import try_to_load_from_cache

    told = timm.get_pretrained_cfg(name)
    places = [try_to_load_from_cache(told.hf_hub_id, file) for file in _FILES] if told and told.hf_hub_id else []
    if told and told.url:
        places.append(str(Path(torch.hub.get_dir()) / "checkpoints" / told.url.rpartition("/")[2]))
    for place in places:
        if isinstance(place, str) and Path(place).is_file():
            return Path(place)
    raise CurateError(
        f"--encoder timm:{name}: no weights of it in the cache, and none are fetched here; give timm:{name}@FILE, or "
        f"""run `python -c "import timm; timm.create_model('{name}', pretrained=True)"` where there is a network"""
    )


def _loaded(timm: Any, name: str, path: Path) -> tuple[nn.Module, dict[str, Any]]:
    """The model without its last layer, and how its images are prepared."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            weights = load_file(path)
        else:
            weights = torch.load(path, map_location="cpu", weights_only=True)
        weights = weights.get("state_dict", weights)
        network = timm.create_model(
            name, pretrained=True, num_classes=0, pretrained_cfg_overlay={"state_dict": weights}
        )
    except FileNotFoundError as error:
        raise Misuse(f"--encoder timm:{name}@{path}: no such file of weights") from error
    except Exception as error:  # a damaged file raises nearly anything, and safetensors an error of its own
        detail = str(error).strip().splitlines()[-1].strip()[:160] if str(error).strip() else type(error).__name__
        raise CurateError(f"{path}: not the weights of timm's {name} ({detail})") from error
    return network, timm.data.resolve_model_data_config(network)
