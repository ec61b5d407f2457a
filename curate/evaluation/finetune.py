"""Fine-tuning of a whole network with a new head: one cell of a grid, and the final training.

Adam, no augmentation, the rate divided by ten on a plateau of the val loss; all that is drawn (the head, the order of
the images) depends on the seed and the epoch alone, so that cells differ in nothing but their settings, and a cell that
is trained again repeats itself. Which cells are trained, and what is stored, is the part of `curate.evaluation.search`.

Reference: Ericsson, Gouk, Hospedales, "Don't Wait, Just Weight", 2020, section 4, and its authors' code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from curate.data.augment import Augment
from curate.evaluation.grid import Cell, Trace
from curate.models.networks import TappedNetwork
from curate.rng import generator, key

#: Images a pass of evaluation.
PASS = 256


@dataclass(frozen=True)
class Split:
    """Decoded images and their labels.

    Args:
        pixels: shape (n, C, crop, crop), uint8, centre crops, on the device.
        labels: shape (n,), int64, in 0 .. classes - 1, on the device.
    """

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Task:
    """What is fine-tuned, and on what; the same for all cells.

    Args:
        backbone: makes the pre-trained network anew, on the device.
        train, val: what is trained on, and what is looked at.
        classes: outputs of the new head.
        augment: how pixels are normalised.
        batch: images a step.
        seed: of the head and of the order of the images.
    """

    backbone: Callable[[], TappedNetwork]
    train: Split
    val: Split
    classes: int
    augment: Augment
    batch: int
    seed: int


class Classifier(nn.Module):
    """A pre-trained network's pooled features and a linear layer over them, (features + 1) x classes parameters."""

    def __init__(self, backbone: TappedNetwork, features: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised images (k, C, H, W) -> logits (k, classes)."""
        logits: Tensor = self.head(self.backbone.tap(x, "pool"))
        return logits


class Training:
    """The training of one cell by Adam, epoch by epoch; ``trace`` has val accuracy, val loss and rate drops so far."""

    def __init__(self, task: Task, cell: Cell) -> None:
        self.task, self.trace = task, Trace()
        self.network = classifier(task)
        self.optimiser = adam(self.network, cell)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimiser, factor=0.1, patience=cell.patience)

    def epoch(self) -> None:
        """Train one epoch and score val. A loss that is not finite is recorded in the trace as a failure."""
        epoch = len(self.trace.val_accuracy) + 1
        loss = train_epoch(self.task, self.network, self.optimiser, self.task.train, epoch)
        accuracy, val_loss = evaluate(self.task, self.network, self.task.val)
        if not (_finite(loss) and _finite(val_loss)):
            self.trace = replace(self.trace, failed=epoch)
            return
        rate = _rate(self.optimiser)
        self.plateau.step(val_loss)
        self.trace = replace(
            self.trace,
            val_accuracy=(*self.trace.val_accuracy, accuracy),
            val_loss=(*self.trace.val_loss, val_loss),
            drops=(*self.trace.drops, epoch) if _rate(self.optimiser) < rate else self.trace.drops,
        )


def final(
    task: Task, cell: Cell, epochs: int, drops: tuple[int, ...], on_epoch: Callable[[], None]
) -> nn.Module | None:
    """Train on train and val together for the chosen epochs, the rate divided by ten after each recorded drop.

    Args:
        on_epoch: called after each epoch.

    Returns:
        The network, None where the loss became no number.
    """
    both = Split(*(torch.cat(pair) for pair in zip(_parts(task.train), _parts(task.val))))
    network = classifier(task)
    optimiser = adam(network, cell)
    for epoch in range(1, epochs + 1):
        if not _finite(train_epoch(task, network, optimiser, both, epoch)):
            return None
        if epoch in drops:
            for group in optimiser.param_groups:
                group["lr"] *= 0.1
        on_epoch()
    return network


def classifier(task: Task) -> Classifier:
    """The pre-trained network under a head drawn by the seed, on the device of the images."""
    backbone, device = task.backbone(), task.train.labels.device
    with torch.no_grad():
        backbone.eval()
        some = task.augment.normalise(task.train.pixels[:1])
        features = backbone.tap(some, "pool").shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(task.seed, "finetune head"))
        return Classifier(backbone, features, task.classes).to(device)


def adam(network: nn.Module, cell: Cell) -> torch.optim.Adam:
    """Adam at the cell's rate and decay over all parameters; a pretext's head gets no gradient, and stays as it is."""
    return torch.optim.Adam(network.parameters(), lr=cell.lr, weight_decay=cell.weight_decay)


def train_epoch(task: Task, network: nn.Module, optimiser: torch.optim.Optimizer, split: Split, epoch: int) -> float:
    """One pass in the epoch's order; returns the mean loss. The device is waited for once, at the end."""
    network.train()
    total = torch.zeros((), dtype=torch.float64, device=split.labels.device)
    for rows in batches(len(split), task.batch, task.seed, epoch):
        rows = rows.to(split.labels.device, non_blocking=True)
        logits = network(task.augment.normalise(split.pixels[rows]))
        loss = F.cross_entropy(logits, split.labels[rows])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        total += loss.detach() * len(rows)
    return float(total) / len(split)


@torch.no_grad()
def evaluate(task: Task, network: nn.Module, split: Split) -> tuple[float, float]:
    """Accuracy in [0, 1] and mean cross-entropy of a split, on running statistics."""
    network.eval()
    right = torch.zeros((), dtype=torch.int64, device=split.labels.device)
    total = torch.zeros((), dtype=torch.float64, device=split.labels.device)
    for pixels, labels in zip(torch.split(split.pixels, PASS), torch.split(split.labels, PASS)):
        logits = network(task.augment.normalise(pixels))
        right += (logits.argmax(dim=1) == labels).sum()
        total += F.cross_entropy(logits, labels, reduction="sum").double()
    return int(right) / len(split), float(total) / len(split)


def batches(n: int, size: int, seed: int, epoch: int) -> list[Tensor]:
    """The rows of an epoch's batches, on the CPU; a last batch of one image, too few for batch norm, joins the one
    before.

    >>> [len(rows) for rows in batches(9, 4, 0, 1)]
    [4, 5]
    """
    order = torch.randperm(n, generator=generator(seed, "finetune order", epoch))
    parts = list(torch.split(order, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


@contextmanager
def reproducible() -> Iterator[None]:
    """cuDNN's deterministic convolutions, in TF32 where there is any; nothing changes on the CPU."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True):
        yield


def _parts(split: Split) -> tuple[Tensor, Tensor]:
    return split.pixels, split.labels


def _rate(optimiser: torch.optim.Optimizer) -> float:
    return float(optimiser.param_groups[0]["lr"])


def _finite(value: float) -> bool:
    return value - value == 0
