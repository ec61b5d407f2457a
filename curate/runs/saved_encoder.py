"""Features by a network that a run or a pre-training has trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from curate.errors import Misuse
from curate.models.features import second_stage
from curate.runs import checkpoint, provenance, saved_network
from curate.selection.base import EncoderInputs
from curate.types import Floats


class SavedEncoder:
    """``checkpoint:PATH``: a run directory, whose last finished epoch counts, or one of its model.safetensors."""

    calibrated_on = 0

    def __init__(self, inputs: EncoderInputs) -> None:
        path = _model(Path(inputs.argument))
        run = path.parent.parent.parent
        if not (run / "run.json").is_file():
            raise Misuse(
                f"--encoder checkpoint:{path}: is in no run's checkpoints; name RUN or a file of its checkpoints"
            )
        images = provenance.read_config(run).images
        self.size, self.colour, self.device = images.size, images.colour, inputs.device
        found = saved_network.load(path, images, inputs.device)
        self.network, self.augment = found.network, found.augment
        colours = [list(found.augment.mean), list(found.augment.deviation)]
        self.identity: dict[str, Any] = {
            "weights": saved_network.digest(path),
            "stage": 2,
            **{"size": self.size, "crop": found.augment.crop, "colour": self.colour, "colours": colours},
        }

    def calibrate(self, images: Iterator[Tensor]) -> None:
        """Does nothing: a trained network needs no calibration."""

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Floats:
        """As `curate.selection.base.Encoder`."""
        x = self.augment.normalise(self.augment.centre(pixels.to(self.device)))
        return np.asarray(second_stage(self.network, x).cpu().numpy())


def _model(path: Path) -> Path:
    """The file of weights that a path stands for.

    Raises:
        Misuse: there is none.
    """
    if not path.is_dir():
        if not path.is_file():
            raise Misuse(f"--encoder checkpoint:{path}: no such file or run")
        return path
    done = checkpoint.finished(path)
    if not done:
        raise Misuse(f"--encoder checkpoint:{path}: no run with a finished epoch; name RUN or a model.safetensors")
    return checkpoint.folder(path, max(done)) / "model.safetensors"
