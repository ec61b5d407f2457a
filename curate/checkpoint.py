"""What a run needs to go on after a kill: safetensors and JSON, one folder an epoch, complete when state.json is there.

The model of every epoch stays (selection needs it); of the rest, the last two epochs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from curate import signal
from curate.engine import State
from curate.errors import CurateError
from curate.networks import Parameters
from curate.records import Codes, Mask
from shards.publish import publish_bytes, publish_json

FORMAT = 1
_HEAVY = ("optimizer.safetensors", "weights.safetensors", "signal.safetensors")


@dataclass
class Examples:
    """What is known of every row of the store, on the host; 4 bytes a row.

    Args:
        kept: shape (n,): whether the row is in the last manifest.
        visits: shape (n,), int16: how often it was trained on.
        error: shape (n,), uint8: place in `records.ERRORS`.
    """

    kept: Mask
    visits: np.ndarray[Any, np.dtype[np.int16]]
    error: Codes


def folder(run: Path, epoch: int) -> Path:
    """checkpoints/epoch=0001."""
    return run / "checkpoints" / f"epoch={epoch:04d}"


def save(run: Path, epoch: int, network: nn.Module, state: State, examples: Examples) -> None:
    """Write the tensors of an epoch's checkpoint. It counts only when `finish` has written its marker."""
    at = folder(run, epoch)
    _save(at / "model.safetensors", model_state(network, state.theta))
    _save(at / "optimizer.safetensors", state.velocity)
    kept, visits, error = (torch.from_numpy(x) for x in (examples.kept, examples.visits, examples.error))
    _save(at / "weights.safetensors", {**state.method.state(), "kept": kept, "visits": visits, "error": error})
    _save(at / "signal.safetensors", state.signal.mean_u or {})


def finish(run: Path, epoch: int, state: State, generation: int) -> None:
    """Write the marker, with every running scalar in full, and drop what is no longer needed of older epochs.

    Args:
        generation: number of the rewritten shards that the next epoch reads; 0 for the store.
    """
    said = {"format": FORMAT, "epoch": epoch, "step": state.step, "generation": generation}
    publish_json(folder(run, epoch) / "state.json", {**said, "signal": signal.state(state.signal)})
    for old in finished(run)[:-2]:
        for name in _HEAVY:
            (folder(run, old) / name).unlink(missing_ok=True)


def finished(run: Path) -> list[int]:
    """The epochs whose checkpoint is complete, in order."""
    found = (run / "checkpoints").glob("epoch=*/state.json")
    return sorted(int(path.parent.name.removeprefix("epoch=")) for path in found)


def load(run: Path, epoch: int, network: nn.Module, state: State, examples: Examples) -> dict[str, Any]:
    """Take up a checkpoint: fills network, state and examples, and returns what state.json says.

    Raises:
        CurateError: a file is missing or damaged.
    """
    at = folder(run, epoch)
    device = next(iter(state.theta.values())).device
    said: dict[str, Any] = json.loads((at / "state.json").read_text(encoding="utf-8"))
    if said["format"] != FORMAT:
        raise CurateError(f"{at}: format {said['format']}, this release reads {FORMAT}; use the release that wrote it")
    load_model(at / "model.safetensors", network)
    layout = {name: x.detach() for name, x in network.named_parameters()}
    state.theta = {name: layout[name].clone().requires_grad_() for name in state.theta}
    for name, x in read(at / "optimizer.safetensors").items():
        state.velocity[name].copy_(x)
    weights = read(at / "weights.safetensors")
    for name in ("kept", "visits", "error"):
        getattr(examples, name)[:] = weights.pop(name).numpy()
    state.method.restore(weights)
    mean_u = read(at / "signal.safetensors")
    # A file has its own order; the signal pairs parameters in theta's.
    ordered = {name: mean_u[name].to(device) for name in state.theta} if mean_u else None
    state.signal = signal.restore(said["signal"], ordered, device)
    state.step = said["step"]
    return said


def model_state(network: nn.Module, theta: Parameters) -> dict[str, Tensor]:
    """Parameters and running statistics, under the module's own names."""
    return {**dict(network.named_buffers()), **{name: x.detach() for name, x in theta.items()}}


def load_model(path: Path, network: nn.Module) -> None:
    """Fill a network from a model.safetensors.

    Raises:
        CurateError: the file is missing, damaged, or of another network.
    """
    try:
        network.load_state_dict(read(path))
    except RuntimeError as error:
        raise CurateError(f"{path}: is of another network ({str(error).splitlines()[-1].strip()})") from error


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU.

    Raises:
        CurateError: the file is missing or damaged.
    """
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load_file(path)
        return tensors
    except FileNotFoundError as error:
        raise CurateError(f"{path}: is missing; the checkpoint cannot be taken up") from error
    except safetensors.SafetensorError as error:
        raise CurateError(f"{path}: is damaged ({error}); remove its folder to go on from an older epoch") from error


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    # Contiguous on the CPU: the file does not depend on device or memory layout.
    plain = {name: x.detach().to("cpu").contiguous() for name, x in tensors.items()}
    publish_bytes(path, safetensors.torch.save(plain))
