"""Score the networks of a run or a pre-training on a labelled target, by logistic regression or by fine-tuning.

Joins checkpoints, images and the protocols beside it; the best epoch is by val, test is looked at once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from curate.data.target import SPLITS, TargetIndex, open_target
from curate.evaluation import logistic, output_dir
from curate.evaluation.finetune import Split, Task
from curate.evaluation.grid import Cell, Grid
from curate.evaluation.output_dir import SearchIdentity
from curate.evaluation.search import Tell, search, spent, stored, total_seconds
from curate.evaluation.trained import Trained, open_trained
from curate.models.calibrate import calibrate
from curate.models.features import BATCH, extract
from curate.models.networks import TappedNetwork
from curate.runs import checkpoint, provenance
from curate.training import precision
from curate.types import Mask
from shards.io.locks import locked


@dataclass(frozen=True)
class Protocol:
    """How to score by logistic regression.

    Args:
        tap: stage whose output is the feature (`curate.models.features.at_tap`).
        epoch: only this one, 0 for the network as it was drawn, its batch norms calibrated on the target's training
            images; None picks the best by val accuracy.
        standardise: scale the features.
        device: where features are computed, and torch's solver works.
        solver: sklearn, torch or auto (`curate.evaluation.logistic.Solver`).
        patience: stop looking after so many epochs without a better one; None looks at all.
    """

    tap: str = "pool"
    epoch: int | None = None
    standardise: bool = False
    device: str = "auto"
    solver: str = "auto"
    patience: int | None = None


@dataclass(frozen=True)
class Evaluation:
    """What was found.

    Args:
        epoch: the one that was scored.
        val_accuracy, test_accuracy: in [0, 1].
        val_by_epoch: of every epoch that competed.
        iterations, converged, gradient, solver: of L-BFGS (`curate.evaluation.logistic.Score`).
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
    gradient: float
    solver: str
    features: int
    classes: int
    tap: str
    left_out: dict[str, dict[str, int]]


@dataclass(frozen=True)
class FinetuneResult:
    """What fine-tuning found.

    Args:
        test_accuracy: after the final training on train and val, in [0, 1].
        val_accuracy: of the picked cell at its best epoch, in [0, 1].
        epoch: of the pre-training, whose network was fine-tuned.
        cell: the picked setting.
        epochs: of the final training.
        drops: epochs of it after which the rate was divided by ten.
        seconds: spent on the search, by all calls together.
        folder: where the search is stored.
    """

    test_accuracy: float
    val_accuracy: float
    epoch: int
    cell: Cell
    epochs: int
    drops: tuple[int, ...]
    seconds: float
    folder: str


def evaluate(run: Path, target: str, protocol: Protocol, progress: Tell | None = None) -> Evaluation:
    """Features of every epoch's network, logistic regression on them (`curate.evaluation.logistic`).

    Args:
        progress: called after each epoch that was scored.

    Raises:
        CurateError: no checkpoint, no such epoch, an unlabelled target.
        Misuse: no such tap or solver.
    """
    return evaluated(open_trained(run, target, open_target(target), protocol.device), protocol, progress)[0]


def evaluated(trained: Trained, protocol: Protocol, progress: Tell | None = None) -> tuple[Evaluation, Mask]:
    """`evaluate` of an opened run, and which test images are classified correctly, bool, shape (n,)."""
    accuracies = val_accuracies(trained, protocol, progress)
    best = logistic.best_epoch(accuracies)
    chosen = features_of(trained, best, protocol)
    score = logistic.fit_and_score(chosen, trained.classes, solver_of(trained, protocol))
    found = Evaluation(
        epoch=best,
        val_accuracy=score.val_accuracy,
        test_accuracy=score.test_accuracy,
        val_by_epoch=accuracies,
        iterations=score.iterations,
        converged=score.converged,
        gradient=score.gradient,
        solver=score.solver,
        features=int(chosen.train.x.shape[1]),
        classes=trained.classes,
        tap=protocol.tap,
        left_out=trained.left_out,
    )
    return found, score.right


def finetune(
    run: Path,
    target: str,
    grid: Grid,
    out: Path | None,
    seed: int,
    device: str,
    epoch: int | Protocol | None = None,
    progress: Tell | None = None,
) -> FinetuneResult:
    """Fine-tune the network of one epoch with every cell of a grid (`curate.evaluation.search`).

    Args:
        out: a folder of this search alone, which an earlier call may have left unfinished; None for one in
            RUN/evaluations, named by the digest of the search's identity.
        seed: of the new head and the order of the images.
        epoch: of the pre-training, 0 for the network as it was drawn; None, or a protocol, picks the best by logistic
            regression.
        progress: called after each epoch.

    Raises:
        CurateError: no checkpoint, no such epoch, an unlabelled target, all cells failed.
        RunMismatch: ``out`` holds another search.
        Busy: another process is at work in ``out``.
        Misuse: ``out`` overlaps the target, the store or the run, or holds files of something else.
    """
    index = open_target(target)
    identity = search_identity(run, index, grid, seed, epoch)
    folder = output_dir.folder_of(run, target, out, f"finetune-{identity.digest}", output_dir.SEARCH)
    with locked(folder):
        chosen, found = output_dir.chosen(folder, identity), stored(folder)
        spent(folder)  # a damaged file is an error now, not after hours
        if chosen is None or found is None:
            trained = open_trained(run, target, index, device)
            if chosen is None:
                chosen = choose(trained, epoch)
                output_dir.record(folder, identity, chosen)
            precision.use("tf32")
            found = search(task_of(trained, chosen, grid, seed), split_of(trained, "test"), grid, folder, progress)
        return FinetuneResult(
            test_accuracy=found.test_accuracy,
            val_accuracy=found.val_accuracy,
            epoch=chosen,
            cell=found.cell,
            epochs=found.epochs,
            drops=found.drops,
            seconds=total_seconds(folder),
            folder=str(folder),
        )


def val_accuracies(trained: Trained, protocol: Protocol, progress: Tell | None = None) -> dict[int, float]:
    """Val accuracy of logistic regression by epoch, of all epochs that compete, or until they stop getting better."""
    precision.use("float32")  # L-BFGS stalls on products of TF32
    candidates = trained.epochs(protocol.epoch)
    accuracies: dict[int, float] = {}
    for epoch in candidates:
        features = features_of(trained, epoch, protocol)
        accuracies[epoch] = logistic.val_accuracy(features, trained.classes, solver_of(trained, protocol))
        if progress is not None:
            progress(f"epoch {epoch}", len(accuracies), len(candidates))
        if protocol.patience is not None and logistic.stalled(accuracies) >= protocol.patience:
            break
    return accuracies


def features_of(trained: Trained, epoch: int, protocol: Protocol) -> logistic.FeatureSplits:
    """The three splits' features at a tap of an epoch's network."""
    network = trained.network(epoch) if epoch else untrained(trained)
    parts = (
        logistic.Features(extract(network, pixels, trained.augment, protocol.tap, trained.device), labels.numpy())
        for pixels, labels in (trained.splits[name] for name in SPLITS)
    )
    found = logistic.FeatureSplits(*parts)
    return logistic.standardise(found) if protocol.standardise else found


def untrained(trained: Trained) -> TappedNetwork:
    """The network as it was drawn, its batch norms calibrated on the target's training images."""
    pixels, _ = trained.splits["train"]
    crops = (trained.augment.centre(part.to(trained.device)) for part in torch.split(pixels, BATCH))
    network = trained.network(0)
    calibrate(network, map(trained.augment.normalise, crops))
    return network


def solver_of(trained: Trained, protocol: Protocol) -> logistic.Solver:
    """The protocol's solver, on the device where the features are computed."""
    return logistic.Solver(protocol.solver, str(trained.device))


def choose(trained: Trained, epoch: int | Protocol | None) -> int:
    """The epoch whose network is fine-tuned: the one given, or the best by val accuracy under the protocol given."""
    if isinstance(epoch, int):
        return trained.epochs(epoch)[0]
    return logistic.best_epoch(val_accuracies(trained, epoch or Protocol()))


def task_of(trained: Trained, epoch: int, grid: Grid, seed: int) -> Task:
    """A fine-tuning's inputs: the network of an epoch, train and val on the device, batch size and seed."""
    train, val = split_of(trained, "train"), split_of(trained, "val")
    backbone = partial(trained.network, epoch)
    return Task(backbone, train, val, trained.classes, trained.augment, grid.batch, seed)


def split_of(trained: Trained, name: str) -> Split:
    """Centre crops and labels of a split, on the device."""
    pixels, labels = trained.splits[name]
    return Split(trained.augment.centre(pixels).to(trained.device).contiguous(), labels.to(trained.device))


def search_identity(
    run: Path, target: TargetIndex, grid: Grid, seed: int, epoch: int | Protocol | None
) -> SearchIdentity:
    """What identifies a fine-tuning: run, target, grid, seed, and the epoch or how it is chosen."""
    chosen: Any = epoch
    if not isinstance(epoch, int):
        chosen = {**asdict(epoch or Protocol()), "device": None, "among": checkpoint.finished(run)}
    return SearchIdentity(provenance.read_run(run)["run_id"], target.fingerprint, asdict(grid), seed, chosen)
