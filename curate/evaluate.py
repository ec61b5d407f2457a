"""Score a run's or a pre-training's checkpoints on a labelled target: best epoch by val, then the test accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from curate import checkpoint, provenance
from curate.augment import Augment
from curate.config import RunConfig, from_options
from curate.downstream import logistic
from curate.downstream.features import extract
from curate.errors import CurateError
from curate.images import Decoder
from curate.networks import build
from curate.prepare import pick_device
from curate.randomness import generator
from curate.target import SPLITS, LabelledImages, load_split, open_target


@dataclass(frozen=True)
class Protocol:
    """How to score.

    Args:
        tap: stage whose output is the feature.
        epoch: only this one; None picks the best by val accuracy.
        standardise: scale the features.
        device: where features are computed.
    """

    tap: str = "pool"
    epoch: int | None = None
    standardise: bool = False
    device: str = "auto"


@dataclass(frozen=True)
class Evaluation:
    """What was found.

    Args:
        epoch: the one that was scored.
        val_accuracy, test_accuracy: in [0, 1].
        val_by_epoch: of every epoch that competed.
        iterations, converged: of L-BFGS.
        features, classes: the shape of the problem.
        tap: where the features come from.
        left_out: target images without a label or that do not decode, by split and reason.
    """

    epoch: int
    val_accuracy: float
    test_accuracy: float
    val_by_epoch: dict[int, float]
    iterations: int
    converged: bool
    features: int
    classes: int
    tap: str
    left_out: dict[str, dict[str, int]]


def evaluate(run: Path, target: str, protocol: Protocol) -> Evaluation:
    """Features of every epoch's network, logistic regression on them (`curate.downstream.logistic`).

    Raises:
        CurateError: no checkpoint, no such epoch, an unlabelled target.
        Misuse: no such tap.
    """
    config = from_options(provenance.read_run(run)["configuration"])
    splits = load_target(target, config)
    known = torch.unique(torch.cat([images.labels for images in splits.values() if images.labels is not None]))
    device, augment = pick_device(protocol.device), Augment.of(config.images)
    network = build(config.network, config.images, generator(config.seed, "network")).to(device)

    def features_of(epoch: int) -> logistic.FeatureSplits:
        checkpoint.load_model(checkpoint.folder(run, epoch) / "model.safetensors", network)
        parts = []
        for images in splits.values():
            assert images.labels is not None
            labels = torch.searchsorted(known, images.labels).numpy()
            parts.append(logistic.Features(extract(network, images.pixels, augment, protocol.tap, device), labels))
        found = logistic.FeatureSplits(*parts)
        return logistic.standardise(found) if protocol.standardise else found

    candidates = epochs_to_score(run, protocol.epoch)
    accuracies = {epoch: logistic.val_accuracy(features_of(epoch), len(known)) for epoch in candidates}
    best = logistic.best_epoch(accuracies)
    chosen = features_of(best)
    score = logistic.fit_and_score(chosen, len(known))
    return Evaluation(
        epoch=best,
        val_accuracy=score.val_accuracy,
        test_accuracy=score.test_accuracy,
        val_by_epoch=accuracies,
        iterations=score.iterations,
        converged=score.converged,
        features=int(chosen.train.x.shape[1]),
        classes=len(known),
        tap=protocol.tap,
        left_out={name: images.left_out for name, images in splits.items() if images.left_out},
    )


def load_target(target: str, config: RunConfig) -> dict[str, LabelledImages]:
    """The three splits, decoded as the network was trained.

    Raises:
        CurateError: a split is missing or has no labels.
    """
    index = open_target(target)
    splits = {name: load_split(index, name, Decoder.of(config.images)) for name in SPLITS}
    for name, images in splits.items():
        if images.labels is None:
            raise CurateError(f"{target}/{name}: no labels (.cls members); evaluation needs a labelled target")
    return splits


def epochs_to_score(run: Path, epoch: int | None) -> list[int]:
    """The finished epochs, or the one asked for.

    Raises:
        CurateError: there is none, or not that one.
    """
    done = checkpoint.finished(run)
    if not done:
        raise CurateError(f"{run}: no finished epoch; train first with `curate run` or `curate pretrain`")
    if epoch is None:
        return done
    if epoch not in done:
        raise CurateError(f"--epoch {epoch}: not finished; there are {done[0]} to {done[-1]}")
    return [epoch]
