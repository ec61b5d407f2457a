"""What would make a run shorter, and by how much: one option changed at a time, its hours told from short timings."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from curate.config.catalogue import ENCODERS
from curate.config.resolved import ReadyConfig
from curate.data.decode import Decoder
from curate.data.image_store import ImageStore
from curate.models.networks import TappedNetwork, network_of
from curate.runs.prepare import Job, trainable
from curate.selection.base import Encoder, EncoderInputs

#: Images of a timed pass of a network, and of the timed features.
PASS, FEATURES = 8, 64
#: How many savings are named.
NAMED = 3
COUNTED = "counted"
MODELLED = "modelled by one forward and backward pass of either network"
MEASURED = "measured on a few images"


@dataclass(frozen=True)
class Saving:
    """A run that differs in one choice.

    Args:
        options: to give, as on the command line.
        hours: of the whole run with them.
        by: how the hours were found: `COUNTED`, `MODELLED` or `MEASURED`.
    """

    options: str
    hours: float
    by: str


def savings(job: Job, hours: float, deadline: float) -> list[Saving]:
    """The `NAMED` choices that cut most, the shortest first.

    Args:
        hours: of the run as it is.
        deadline: by `time.perf_counter`; what is not timed by then is not named.
    """
    config = job.config
    found = []
    if config.train.epochs > 1:
        half = config.train.epochs // 2
        found.append(Saving(f"--epochs {half}", hours * half / config.train.epochs, COUNTED))
    if config.target and job.target is not None and time.perf_counter() < deadline:
        found.append(Saving("--method classifier", _hours_of_features(job), MEASURED))
    smaller = smaller_networks(config)
    now = _seconds_of_pass(config, job.setup.device) if smaller and time.perf_counter() < deadline else 0.0
    for options, other in smaller.items():
        if now and time.perf_counter() < deadline:
            share = _seconds_of_pass(other, job.setup.device) / now
            found.append(Saving(options, hours * share, MODELLED))
    return sorted((one for one in found if one.hours < hours), key=lambda one: one.hours)[:NAMED]


def smaller_networks(config: ReadyConfig) -> dict[str, ReadyConfig]:
    """Configurations with less to compute a step, by the options that make them, what changes first.

    Images and network are told whole: where one of these options is given, the others have other defaults.
    """
    images, network = config.images, config.network
    changes: list[dict[str, Any]] = []
    if images.crop >= 48:  # below 24 pixels little is left to learn from
        changes.append({"size": images.size // 2, "crop": images.crop // 2})
    if network.network.startswith("resnet"):
        changes.append({"network": "small"})
    if network.network == "small" and network.stem_stride == 1:
        changes.append({"stem_stride": 2})
    if network.network == "small" and network.width >= 16:
        changes.append({"width": network.width // 2})
    return {_told(config, change): _changed(config, change) for change in changes}


def _changed(config: ReadyConfig, change: dict[str, Any]) -> ReadyConfig:
    images = {name: value for name, value in change.items() if name in ("size", "crop")}
    network = {name: value for name, value in change.items() if name not in images}
    return replace(config, images=replace(config.images, **images), network=replace(config.network, **network))


def _told(config: ReadyConfig, change: dict[str, Any]) -> str:
    images, network = config.images, config.network
    shape = {"size": images.size, "crop": images.crop, "network": network.network, "norm": network.norm}
    if change.get("network", network.network) == "small":
        shape |= {"stem_stride": network.stem_stride, "width": network.width}
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in (change | {**shape, **change}).items())


def _seconds_of_pass(config: ReadyConfig, device: torch.device) -> float:
    """The quicker of two forward and backward passes, after one that warms up."""
    network, images = network_of(config).to(device).train(), config.images
    x = torch.zeros(PASS, images.channels, images.crop, images.crop, device=device)
    return float(min([_timed_pass(network, x) for _ in range(3)][1:]))


def _timed_pass(network: TappedNetwork, x: torch.Tensor) -> float:
    started = time.perf_counter()
    outputs = network(x)
    sum(part.sum() for part in outputs if part is not None).backward()
    if x.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _hours_of_features(job: Job) -> float:
    """Of untrained features of the whole store, from those of a few images; the selector itself takes seconds."""
    encoder: Encoder = ENCODERS["untrained"](EncoderInputs("", 3, job.setup.device))
    rows = trainable(job.examples)
    some = rows[np.linspace(0, len(rows) - 1, min(FEATURES, len(rows))).astype(np.int64)]
    decoder = Decoder(encoder.size, encoder.colour)
    images = ImageStore(job.images.view, decoder, 0, 0, job.setup.device)  # one process: to start more takes longer
    started = time.perf_counter()
    pixels = torch.cat(list(images.sample(np.unique(some))))
    read = time.perf_counter() - started
    if not len(pixels):
        return 0.0
    encoder.calibrate(iter([pixels]))
    started = time.perf_counter()
    encoder(pixels)
    return (read + time.perf_counter() - started) / len(pixels) * len(rows) / 3600
