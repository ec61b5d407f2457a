"""The grid of fine-tuning settings: its cells, how many epochs each is trained, and which one is taken.

Pure: what a cell did is in its `Trace`, how it was trained in `curate.evaluation.finetune`.

Reference: the code of Ericsson, Gouk, Hospedales, "Don't Wait, Just Weight", 2020, for the paper's grid; Jamieson and
Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", 2016, for successive halving.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated

from msgspec import Meta

from curate.errors import CurateError, Misuse

#: Bounds of what is read back from files.
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Count = Annotated[int, Meta(ge=0)]
Epoch = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True)
class Cell:
    """One setting of the optimiser.

    Args:
        lr: Adam's rate at the start.
        weight_decay: added to the gradient.
        patience: the rate is divided by ten after more epochs than this without a smaller val loss.
    """

    lr: Positive
    weight_decay: Positive
    patience: Count

    @property
    def name(self) -> str:
        """Name of the cell's file, such as ``lr=0.0001,decay=0.0001,patience=50``."""
        return f"lr={self.lr:g},decay={self.weight_decay:g},patience={self.patience}"


@dataclass(frozen=True)
class Grid:
    """What is tried.

    Args:
        cells: in the order in which they are trained; the first of equals is taken.
        epochs: each is trained for so many.
        batch: images a step.
        halving: by successive halving: see `rungs`.

    Raises:
        Misuse: no cell, a cell twice, no epoch, or a batch of fewer than 2 images, which batch norm cannot take.
    """

    cells: tuple[Cell, ...]
    epochs: int = 200
    batch: int = 64
    halving: bool = False

    def __post_init__(self) -> None:
        if not self.cells or len(set(self.cells)) < len(self.cells):
            raise Misuse(f"grid: expected one cell or more, each once, found {len(self.cells)}; name the cells")
        if self.epochs < 1 or self.batch < 2:
            raise Misuse(f"grid: expected 1 epoch and 2 images a batch at least, found {self.epochs} and {self.batch}")


@dataclass(frozen=True)
class Trace:
    """How the training of a cell went; epochs count from 1.

    Args:
        val_accuracy: of each epoch, in [0, 1].
        val_loss: of each epoch, mean cross-entropy.
        drops: the epochs after which the rate was divided by ten.
        failed: the epoch whose loss was no finite number, where training ended; None where there was none.
    """

    val_accuracy: tuple[Share, ...] = ()
    val_loss: tuple[Positive, ...] = ()
    drops: tuple[Epoch, ...] = ()
    failed: Epoch | None = None

    def __post_init__(self) -> None:
        epochs = len(self.val_accuracy)
        if len(self.val_loss) != epochs:
            raise ValueError(f"val_loss: expected {epochs} epochs, found {len(self.val_loss)}")
        check_drops(self.drops, epochs)
        if self.failed not in (None, epochs + 1):
            raise ValueError(f"failed: expected epoch {epochs + 1}, found {self.failed}")

    @property
    def best_epoch(self) -> int:
        """The epoch with the largest val accuracy, the earliest of equals."""
        return 1 + self.val_accuracy.index(max(self.val_accuracy))

    def until(self, epoch: int) -> Trace:
        """The first ``epoch`` epochs of the trace."""
        failed = self.failed if self.failed is not None and self.failed <= epoch else None
        drops = tuple(drop for drop in self.drops if drop <= epoch)
        return Trace(self.val_accuracy[:epoch], self.val_loss[:epoch], drops, failed)

    def covers(self, epoch: int) -> bool:
        """Whether the cell was trained up to ``epoch``, or failed before."""
        return self.failed is not None or len(self.val_accuracy) >= epoch


def check_drops(drops: Sequence[int], epochs: int) -> None:
    """Refuse drops of the rate that do not rise, or lie after ``epochs``.

    Raises:
        ValueError: they do.
    """
    if list(drops) != sorted(set(drops)) or any(drop > epochs for drop in drops):
        raise ValueError(f"drops: expected rising epochs up to {epochs}, found {tuple(drops)}")


@dataclass(frozen=True)
class Rung:
    """The ``keep`` best cells go on after epoch ``since``, and are trained up to epoch ``until``."""

    keep: int
    since: int
    until: int


_RATES = product((1e-4, 1e-5), (1e-4, 0.0), (50, 5))
#: The authors' grid.
PAPER_GRID = Grid(tuple(Cell(lr, decay, patience) for lr, decay, patience in _RATES))
#: For the time that a person waits: both rates, short.
SMALL_GRID = Grid((Cell(1e-4, 1e-4, 5), Cell(1e-5, 1e-4, 5)), epochs=20)
GRIDS: dict[str, Grid] = {"paper": PAPER_GRID, "small": SMALL_GRID}


def shortened(grid: Grid, epochs: int | None, halving: bool) -> Grid:
    """``grid`` with ``epochs`` epochs (None: its own), by successive halving or not."""
    return replace(grid, epochs=grid.epochs if epochs is None else epochs, halving=halving)


def rungs(grid: Grid) -> list[Rung]:
    """Who is trained up to where: all cells to the end, or by successive halving.

    Each rung of a halving keeps half the cells (rounded up) for twice the epochs, until one cell reaches the end.

    >>> [(rung.keep, rung.until) for rung in rungs(PAPER_GRID)]
    [(8, 200)]
    >>> [(rung.keep, rung.until) for rung in rungs(replace(PAPER_GRID, halving=True))]
    [(8, 25), (4, 50), (2, 100), (1, 200)]
    """
    if not grid.halving:
        return [Rung(len(grid.cells), 0, grid.epochs)]
    keeps = [len(grid.cells)]
    while keeps[-1] > 1:
        keeps.append(-(-keeps[-1] // 2))
    ends = [0, *(-(-grid.epochs // 2**i) for i in reversed(range(len(keeps))))]
    return [Rung(*rung) for rung in zip(keeps, ends, ends[1:])]


def ranked(traces: Mapping[Cell, Trace]) -> list[Cell]:
    """The cells that did not fail, the largest val accuracy first, equals in the order given."""
    sound = [cell for cell, trace in traces.items() if trace.failed is None]
    return sorted(sound, key=lambda cell: -max(traces[cell].val_accuracy))


def picked(traces: Mapping[Cell, Trace], finalists: list[Cell]) -> Cell:
    """The best of the finalists; of all cells where every finalist failed.

    Raises:
        CurateError: all cells failed.
    """
    best = ranked({cell: traces[cell] for cell in finalists}) or ranked(traces)
    if not best:
        epochs = ", ".join(f"{cell.name} at epoch {trace.failed}" for cell, trace in traces.items())
        raise CurateError(
            f"fine-tuning: no cell has a finite loss ({epochs}); give smaller rates, or check the network"
        )
    return best[0]
