"""A signal as it is heard while a network trains with equal weights: for scripts/signal_auroc and messy_store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from curate.config.defaults import resolve
from curate.config.schema import from_options
from curate.data.augment import Augment
from curate.data.decode import Decoder, Pixels, measure
from curate.experiments.pays.sources import Picture, pictures
from curate.metalosses import META_LOSSES
from curate.metalosses.base import TargetImages
from curate.methods.base import MethodInputs, PointWeights
from curate.models.networks import build
from curate.pretexts import PRETEXTS
from curate.rng import generator
from curate.training import engine
from curate.training.covariance import Factored
from shards.shuffle import permutation

NETWORK = {"size": 36, "crop": 32, "network": "small", "norm": "group", "stem_stride": 2, "width": 8, "mirror": True}
TRAINING = {"batch": 16, "target_batch": 16, "lr": 0.03, "lr_drops": (), "momentum": 0.9, "weight_decay": 5e-4}
#: Name -> options of a signal; "head, factors" is the head with E[g g'] in its Kronecker factors.
SIGNALS: dict[str, dict[str, Any]] = {
    "exact": {"signal": "exact", "reference": "none", "eta_scale": "raw"},
    "head": {"signal": "head"},
    "head, factors": {"signal": "head"},
    "head, no contrast": {"signal": "head", "contrast": "none"},
    "head, every 4": {"signal": "head", "meta_every": 4},
    "preconditioned": {"signal": "preconditioned"},
    "reference-net": {"signal": "reference-net", "eta_scale": "raw"},
}


class Heard(PointWeights):
    """Weights of 1, and the signal of every visit: its sum and count a row, and the latest."""

    looks_ahead, prunes = True, False

    def __init__(self, given: MethodInputs) -> None:
        super().__init__(given, torch.float64)
        self.count, self.latest = torch.zeros_like(self.weight), torch.zeros_like(self.weight)

    def weights(self, rows: Tensor) -> Tensor:
        """Ones."""
        return torch.ones(len(rows))

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """Remember."""
        self.weight[rows] += signal
        self.count[rows] += 1
        self.latest[rows] = signal


def decoded(data: Path, name: str, part: str) -> Tensor:
    """The images of a set, uint8 (n, 3, 36, 36)."""
    decoder = Decoder(NETWORK["size"], "rgb")
    found: list[Picture] = pictures(data, name.partition("/")[0], part)
    return decoder([{"__row__": row, f".{one.extension}": one.body} for row, one in enumerate(found)]).pixels


def scene(
    images: Tensor, theirs: Tensor, seed: int, name: str, epochs: int
) -> tuple[engine.Setup, engine.State, Heard]:
    """The engine on a store of ``images`` and a target of ``theirs``."""
    mean, deviation = measure([images])
    options = NETWORK | TRAINING | SIGNALS[name] | {"mean": mean, "deviation": deviation}
    given = {"store": "s", "target": "t", "seed": seed, "epochs": epochs, "meta_loss": "self-supervised"}
    config = resolve(from_options({**given, **options}), labelled=False)
    augment = Augment.of(config.images)  # type: ignore[arg-type]
    pretext = PRETEXTS["rotation"](augment, config.network)
    meta_loss = META_LOSSES["self-supervised"](TargetImages(theirs, None), config.meta, augment, pretext, seed)
    network = build(config.network, config.images, generator(seed, "network"), config.pretext)
    method = Heard(MethodInputs(len(images), config.belief, seed, torch.device("cpu")))
    setup = engine.Setup(config, network, pretext, meta_loss, torch.device("cpu"))
    if name == "head, factors":
        setup.step_signal.covariance = Factored()  # type: ignore[union-attr]
    return setup, engine.begin(setup, method), method


def chosen(images: Tensor, count: int, purpose: str, seed: int) -> Tensor:
    """So many images at random, by the seed."""
    return images[torch.from_numpy(permutation(seed, purpose, 0, len(images))[:count].copy())]


def an_epoch(setup: engine.Setup, state: engine.State, images: Tensor, seed: int, epoch: int) -> None:
    """All images once, in an order of the seed's."""
    order = torch.from_numpy(permutation(seed, "order", epoch, len(images)).copy())
    engine.train_epoch(setup, state, epoch, [Pixels(rows, images[rows]) for rows in order.split(TRAINING["batch"])])
