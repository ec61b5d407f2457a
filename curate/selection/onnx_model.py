"""Features by any network in an ONNX file, run by onnxruntime (MIT): its first output, flattened.

The input says how images come: its height and width are the crop (224 where they are open), and its type what a pixel
is. uint8 gets pixels as they are, floats are normalised by ImageNet's colours, as is usual.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from curate.data.augment import centre_crop, normalise
from curate.errors import CurateError, Misuse
from curate.selection.base import EncoderInputs
from curate.types import Floats

#: Side where the file leaves it open; the shorter side that an image is decoded to, for a crop of 1.
CROP, SHARE = 224, 256 / 224
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}


class Onnx:
    """``onnx:FILE``: one input (k, 3, H, W) of float32, float16 or uint8; the first output has a row an image."""

    colour = "rgb"
    calibrated_on = 0

    def __init__(self, inputs: EncoderInputs) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise CurateError("--encoder onnx needs the library: pip install 'curate-bdw[onnx]'") from error
        self.path = Path(inputs.argument)
        if not self.path.is_file():
            raise Misuse(f"--encoder onnx:{self.path}: no such file")
        chosen = onnxruntime.SessionOptions()
        chosen.log_severity_level = 4
        chosen.intra_op_num_threads = torch.get_num_threads()
        wanted = ["CUDAExecutionProvider"] * (inputs.device.type == "cuda") + ["CPUExecutionProvider"]
        there = [name for name in wanted if name in onnxruntime.get_available_providers()]
        try:
            self.session = onnxruntime.InferenceSession(str(self.path), chosen, providers=there)
        except Exception as error:  # onnxruntime's have no base of their own
            raise self._refused(error) from error
        first, *others = self.session.get_inputs()
        if others or len(first.shape) != 4 or first.shape[1] != 3 or first.type not in _KINDS:
            found = ", ".join(f"{each.name} {each.shape} {each.type}" for each in (first, *others))
            raise CurateError(f"{self.path}: expected one input (k, 3, H, W) of float or uint8, found {found}")
        self.name, self.kind = first.name, _KINDS[first.type]
        sides = {side for side in first.shape[2:] if isinstance(side, int)} or {CROP}
        if len(sides) > 1:
            raise CurateError(f"{self.path}: expected a square input, found {first.shape}")
        self.crop = sides.pop()
        self.size = round(self.crop * SHARE)
        self.batch = first.shape[0] if isinstance(first.shape[0], int) else None
        self.inputs = inputs
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self.identity: dict[str, Any] = {"model": digest, "size": self.size, "crop": self.crop}

    def __reduce__(self) -> tuple[type[Onnx], tuple[EncoderInputs]]:
        """In another process the file is opened again: a session does not travel."""
        return Onnx, (self.inputs,)

    def calibrate(self, images: Iterator[Tensor]) -> None:
        """Nothing: it was trained."""

    def __call__(self, pixels: Tensor) -> Floats:
        """As `curate.selection.base.Encoder`."""
        cropped = centre_crop(pixels, self.crop)
        x = (cropped if self.kind is np.uint8 else normalise(cropped, *_IMAGENET)).numpy().astype(self.kind)
        count = self.batch or len(x)
        parts = [self._run(x[at : at + count], count) for at in range(0, len(x), count)]
        return np.concatenate(parts).astype(np.float32)

    def _run(self, x: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
        """Features of some images; filled up with black ones to the count that a file may ask for."""
        whole = np.concatenate([x, np.zeros((count - len(x), *x.shape[1:]), x.dtype)])
        try:
            found = np.asarray(self.session.run(None, {self.name: whole})[0])
        except Exception as error:  # onnxruntime's have no base of their own
            raise self._refused(error) from error
        if found.ndim < 2 or len(found) != count:
            raise CurateError(f"{self.path}: expected a row an image in the first output, found shape {found.shape}")
        return found.reshape(count, -1)[: len(x)]

    def _refused(self, error: Exception) -> CurateError:
        text = " ".join(str(error).split())[:200]
        return CurateError(f"{self.path}: onnxruntime cannot run it ({text}); export the network again")
