"""What a run needs to go on after a kill: safetensors and JSON, one folder an epoch, complete when state.json is there.

The model of every epoch stays (selection needs it); of the rest, the last two epochs. state.json holds a checksum of
every file, and of itself: a flipped bit in a tensor reads as a number like any other.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from curate.errors import CurateError
from curate.models.networks import Parameters
from curate.training import signal
from curate.training.engine import State
from curate.types import Codes, Mask
from shards.io.atomic import write_bytes
from shards.io.json_files import convert, parse_json, sha256_of, version_in, write_json
from shards.io.regular_files import read_regular

FORMAT, VERSION = "checkpoint", 1
_EPOCH = re.compile(r"epoch=([0-9]+)(\.parquet)?")
_MIDWAY = re.compile(r"epoch=([0-9]+)-step=([0-9]+)")
MARKER, _MODEL = "state.json", "model.safetensors"
#: What helps a run whose checkpoint is damaged.
_GO_BACK = "remove its folder to go on from an older epoch"
#: Before the names of what a signal carries besides the mean of the meta-gradient.
_RUNNING = "running/"
_HEAVY = ("optimizer.safetensors", "weights.safetensors", "signal.safetensors")
#: The files of tensors that every checkpoint has.
TENSORS = (_MODEL, *_HEAVY)


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
    """Path of an epoch's checkpoint: ``checkpoints/epoch=0001``."""
    return run / "checkpoints" / f"epoch={epoch:04d}"


def save(run: Path, epoch: int, network: nn.Module, state: State, examples: Examples) -> None:
    """Write the tensors of an epoch's checkpoint. It counts only when `finish` has written its marker."""
    write(folder(run, epoch), network, state, examples)


def write(at: Path, network: nn.Module, state: State, examples: Examples) -> None:
    """Write the tensors of a checkpoint into a folder, of which `mark` makes one."""
    for name, tensors in tensors_of(network, state, examples).items():
        write_tensors(at / name, tensors)


def tensors_of(network: nn.Module, state: State, examples: Examples) -> dict[str, dict[str, Tensor]]:
    """What a checkpoint holds, by the file that it is in (`TENSORS`)."""
    kept, visits, error = (torch.from_numpy(x) for x in (examples.kept, examples.visits, examples.error))
    weights = {**state.method.state(), "kept": kept, "visits": visits, "error": error}
    held = {**(state.signal.mean_u or {}), **_named_running(state)}
    return dict(zip(TENSORS, (model_state(network, state.theta), state.velocity, weights, held), strict=True))


def finish(run: Path, epoch: int, state: State, generation: int) -> None:
    """Write the marker of an epoch, and drop what is no longer needed of older epochs, and of the midst of this one.

    Args:
        generation: number of the rewritten shards that the next epoch reads; 0 for the store.
    """
    mark(folder(run, epoch), epoch, state, generation)
    lighten(run)
    for path in midway_in(run).values():
        remove(path)


def lighten(run: Path) -> None:
    """Drop what only going on needs, of all finished epochs but the last two."""
    for old in finished(run)[:-2]:
        for name in _HEAVY:
            (folder(run, old) / name).unlink(missing_ok=True)


def mark(at: Path, epoch: int, state: State, generation: int, tensors: tuple[str, ...] = (), **further: Any) -> None:
    """Write a checkpoint's marker, with every running scalar in full: from now on it counts.

    Args:
        tensors: names of files that it has beside those of `write`.
        further: what the marker is to say besides.
    """
    files = {name: _sha256((at / name).read_bytes()) for name in (_MODEL, *_HEAVY, *tensors)}
    record: dict[str, Any] = {"format": FORMAT, "version": VERSION, "epoch": epoch, "step": state.step}
    record |= {"generation": generation}
    record |= {"signal": signal.state(state.signal), "files": files, **further}
    write_json(at / MARKER, {**record, "checksum": _checksum(record)})


def remove(at: Path) -> None:
    """Remove a checkpoint, the marker first: it never counts without a file of its."""
    (at / MARKER).unlink(missing_ok=True)
    shutil.rmtree(at)


def finished(run: Path) -> list[int]:
    """The epochs whose checkpoint is complete, in order."""
    return sorted(epoch for epoch, path in epochs_in(run / "checkpoints").items() if (path / MARKER).exists())


def midway_in(run: Path) -> dict[tuple[int, int], Path]:
    """The checkpoints in the midst of an epoch (`curate.runs.midway`), complete or not, by epoch and step."""
    place = run / "checkpoints"
    named = ((_MIDWAY.fullmatch(path.name), path) for path in (place.iterdir() if place.exists() else ()))
    return {(int(match[1]), int(match[2])): path for match, path in named if match}


def epochs_in(place: Path) -> dict[int, Path]:
    """What is called after an epoch in a folder (epoch=0001, epoch=0001.parquet), by epoch; other names pass.

    Raises:
        OSError: the folder is there and cannot be listed: nothing may be taken for never written then.
    """
    listed = place.iterdir() if place.exists() else ()
    named = ((_EPOCH.fullmatch(path.name), path) for path in listed)
    return {int(match[1]): path for match, path in named if match}


class Marker(TypedDict):
    """What state.json says, beside its format, version and checksum."""

    epoch: int
    step: int
    generation: int
    signal: dict[str, Any]
    files: dict[str, str]


def read_marker(at: Path, todo: str = _GO_BACK) -> dict[str, Any]:
    """What the state.json of a checkpoint says.

    Args:
        todo: what the message advises where it is damaged.

    Raises:
        CurateError: it is damaged, or of another format.
    """
    try:
        record: dict[str, Any] = parse_json(read_regular(at / MARKER))
        convert(record, Marker)
    except ValueError as error:
        raise _damaged(at / MARKER, str(error), todo) from error
    if (version := version_in(record, FORMAT)) != VERSION:
        raise CurateError(f"{at}: version {version}, this release reads {VERSION}; use the release that wrote it")
    if record.pop("checksum", None) != _checksum(record):
        raise _damaged(at / MARKER, "its checksum does not hold", todo)
    return record


def load(run: Path, epoch: int, network: nn.Module, state: State, examples: Examples) -> dict[str, Any]:
    """Take up the checkpoint of an epoch; as `take_up`."""
    return take_up(folder(run, epoch), network, state, examples)


def take_up(at: Path, network: nn.Module, state: State, examples: Examples, todo: str = _GO_BACK) -> dict[str, Any]:
    """Take up a checkpoint: fills network, state and examples, and returns what state.json says.

    Args:
        todo: as of `read`.

    Raises:
        CurateError: a file is missing or damaged.
    """
    record = read_marker(at, todo)
    load_model(at / _MODEL, network, todo)
    held = {name: read(at / name, todo) for name in _HEAVY}
    fill(held, record["signal"], network, state, examples)
    state.step = record["step"]
    return record


def fill(
    held: dict[str, dict[str, Tensor]], scalars: dict[str, Any], network: nn.Module, state: State, examples: Examples
) -> None:
    """Take up what `tensors_of` gave, the model by way of the network, which has it already.

    Args:
        scalars: of the signal.
    """
    device = next(iter(state.theta.values())).device
    layout = {name: x.detach() for name, x in network.named_parameters()}
    state.theta = {name: layout[name].clone().requires_grad_() for name in state.theta}
    optimizer, weights, signals = (held[name] for name in _HEAVY)
    for name, x in optimizer.items():
        state.velocity[name].copy_(x)
    weights = dict(weights)
    for name in ("kept", "visits", "error"):
        getattr(examples, name)[:] = weights.pop(name).numpy()
    state.method.restore(weights)
    mean_u = {name: x for name, x in signals.items() if not name.startswith(_RUNNING)}
    state.running = {name.removeprefix(_RUNNING): x.to(device) for name, x in signals.items() if name not in mean_u}
    # A file has its own order; the signal pairs parameters in theta's.
    ordered = {name: mean_u[name].to(device) for name in state.theta} if mean_u else None
    state.signal = signal.restore(scalars, ordered, device)


def _named_running(state: State) -> dict[str, Tensor]:
    """What the chosen signal carries, under names that no parameter has."""
    return {_RUNNING + name: x for name, x in state.running.items()}


def model_state(network: nn.Module, theta: Parameters) -> dict[str, Tensor]:
    """Parameters and running statistics, under the module's own names."""
    return {**dict(network.named_buffers()), **{name: x.detach() for name, x in theta.items()}}


def load_model(path: Path, network: nn.Module, todo: str = _GO_BACK) -> None:
    """Fill a network from a model.safetensors.

    Args:
        todo: as of `read`.

    Raises:
        CurateError: the file is missing, damaged, or of another network.
    """
    try:
        network.load_state_dict(read(path, todo))
    except RuntimeError as error:
        raise CurateError(f"{path}: is of another network ({str(error).splitlines()[-1].strip()})") from error


def read(path: Path, todo: str = _GO_BACK) -> dict[str, Tensor]:
    """The tensors of a file of a finished checkpoint, on the CPU.

    Args:
        todo: what the message advises where something is damaged.

    Raises:
        CurateError: the file is missing, damaged, or none of the checkpoint's.
    """
    try:
        data = read_regular(path)
    except FileNotFoundError as error:
        raise CurateError(f"{path}: is missing; the checkpoint cannot be taken up; {todo}") from error
    found = _sha256(data)
    expected = read_marker(path.parent, todo)["files"].get(path.name)
    if expected is None:
        raise CurateError(f"{path}: is no file of tensors of this checkpoint; name its {_MODEL}")
    if found != expected:
        raise _damaged(path, f"sha256 {found[:12]}, written was {expected[:12]}", todo)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
        return tensors
    except safetensors.SafetensorError as error:
        raise _damaged(path, str(error), todo) from error


def _damaged(path: Path, what: str, todo: str) -> CurateError:
    return CurateError(f"{path}: is damaged ({what}); {todo}")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checksum(record: dict[str, Any]) -> str:
    return sha256_of(record)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors to a file that appears whole; the same ones give the same bytes."""
    write_bytes(path, safetensors.torch.save(on_host(tensors)))


def on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous on the CPU: bytes made of them do not depend on device or memory layout."""
    return {name: x.detach().to("cpu").contiguous() for name, x in tensors.items()}
