"""How large tables 2 and 3 are made: images, network, epochs and fine-tuning of each ``--scale``.

Facts only; `paper` is as printed (docs/method.md sections 4, 7 and 9), the other two are what two CPU cores can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from curate.errors import Misuse
from curate.evaluation.grid import PAPER_GRID, Cell, Grid
from curate.experiments.tables.protocols import Domain

Options = dict[str, Any]


@dataclass(frozen=True)
class Table3Grid:
    """The values of eta, rho and lambda in table 3; every combination is run."""

    etas: tuple[float, ...] = (10.0, 100.0)
    rhos: tuple[float, ...] = (0.5, 0.9)
    lams: tuple[float, ...] = (0.1, 0.25)


@dataclass(frozen=True)
class Scale:
    """The size of the experiments.

    Args:
        source: images of the store, drawn at random; None for all.
        labelled: images of a decathlon target's train and val together at most; None for the paper's number.
        few: whether two data sets are enough where none are named: the first and the last there are.
        training: options of a run, whatever the source.
        decathlon, stl10: options of a run on the one source and the other.
        episode: at most so many ways, shots and queries; None for the paper's.
        taps: where logistic regression takes its features, for decathlon and for STL-10.
        patience: epochs without a better one after which logistic regression looks at no more; None looks at all.
        grid: of fine-tuning.
        authors: whether the authors' own configuration is run beside the table.
        table3: what table 3 varies.
    """

    source: int | None
    labelled: int | None
    few: bool
    training: Mapping[str, Any]
    decathlon: Mapping[str, Any]
    stl10: Mapping[str, Any]
    episode: tuple[int, int, int] | None
    taps: tuple[str, str]
    patience: int | None
    grid: Grid
    authors: bool
    table3: Table3Grid = field(default_factory=Table3Grid)


#: Rotation at 32 px, as in the paper but for sizes; images are decoded once, in the process that trains.
_SMALL: Options = {"network": "small", "width": 4, "size": 36, "crop": 32, "batch": 64, "workers": 0}
SCALES: dict[str, Scale] = {
    "smoke": Scale(
        source=150,
        labelled=225,
        few=True,
        training={**_SMALL, "epochs": 2},
        decathlon={},
        stl10={},
        episode=(5, 2, 2),
        taps=("layer2", "pool"),
        patience=None,
        grid=Grid((Cell(1e-2, 1e-4, 5),), epochs=2),
        authors=False,
        table3=Table3Grid(rhos=(0.5,), lams=(0.25,)),
    ),
    "mini": Scale(
        source=2_000,
        labelled=1_000,
        few=False,
        training={**_SMALL, "epochs": 10},
        decathlon={},
        stl10={},
        episode=(10, 5, 5),
        taps=("layer2", "pool"),
        patience=None,
        grid=Grid((Cell(1e-2, 1e-4, 5), Cell(3e-3, 1e-4, 5)), epochs=20),
        authors=False,
    ),
    "paper": Scale(
        source=None,
        labelled=None,
        few=False,
        training={"epochs": 35, "lr_drops": (15, 25)},
        decathlon={"network": "resnet34", "size": 72, "crop": 64, "batch": 64},
        stl10={"network": "resnet18", "size": 96, "crop": 84, "batch": 32},
        episode=None,
        taps=("layer2", "pool"),
        patience=None,
        grid=PAPER_GRID,
        authors=True,
    ),
}


def of(name: str) -> Scale:
    """The scale of that name.

    Raises:
        Misuse: there is none; the message names those there are.
    """
    if name not in SCALES:
        raise Misuse(f"--scale {name}: unknown; known: {', '.join(SCALES)}")
    return SCALES[name]


def training_options(scale: Scale, domain: Domain) -> Options:
    """Options that the runs of all methods on a domain's source share, without the episodes."""
    own = scale.stl10 if domain.stl10 else scale.decathlon
    return {"pretext": "rotation", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4, **scale.training, **own}


def episode_options(scale: Scale, domain: Domain) -> Options:
    """The meta-loss of a domain, and the shape of its episodes."""
    shape = (domain.ways, domain.shots, domain.queries)
    most = shape if scale.episode is None else scale.episode
    return {"meta_loss": "prototypical", **dict(zip(("ways", "shots", "queries"), map(min, shape, most)))}


def tap(scale: Scale, domain: Domain) -> str:
    """The tap at which logistic regression takes its features."""
    return scale.taps[domain.stl10]
