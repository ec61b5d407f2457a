"""Table 1 and Figure 1 of the paper: a VAE that learns on a mix of MNIST-like sets, and is to model one of them.

The source is unlabelled training images of three sets; the target has held-out images of one. Every method trains the
same network with the same engine, one epoch of each in turn in one process, so that what slows the machine slows all
alike (docs/method.md section 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from curate.errors import Misuse
from curate.experiments.sweep import claim, run_cells
from curate.experiments.tables import table1_report
from curate.experiments.tables.table1_cell import Cell, Options, domains_of, run_cell
from curate.ledger import ledger
from curate.stats import plots
from shards.io.json_files import write_json
from shards.packing.idx import Limits, read_split

#: The authors' own configuration of this experiment (docs/method.md section 9); DW's eta is not published.
BDW: Options = {
    "method": "bdw",
    "eta_scale": "raw",
    "eta": 10.0,
    "meta_momentum": 0.9,
    "lam": 0.5,
    "rho": 0.5,
    "reference": "none",
}
DW: Options = {"method": "dw", "eta_scale": "recent", "eta": 0.1, "lam": 0.0, "reference": "none"}
METHODS: dict[str, Options] = {
    "oracle": {"method": "oracle"},
    "uniform": {"method": "uniform"},
    "dw": DW,
    "bdw": BDW,
}
#: Beside the table: without momentum all weights 0.5 are half the learning rate; and the authors' own target batch.
CONTROL: dict[str, Options] = {"uniform-half": {"method": "uniform", "lr": 0.5e-4}}
OTHERS: dict[str, Options] = {"bdw-64": {**BDW, "target_batch": 64}}
#: How BDW weighs here where it need not do as the paper does (docs/method.md): a running scale, and a signal that asks
#: more of a step. All begin from the uniform prior.
_OURS: Options = {"method": "bdw", "lam": 0.25}
SIGNALS: dict[str, Options] = {
    "recent": {**_OURS, "eta_scale": "recent", "eta": 1.0},
    "preconditioned": {**_OURS, "signal": "preconditioned", "eta": 10.0},
    "preconditioned-2": {**_OURS, "signal": "preconditioned", "eta": 10.0, "meta_every": 2},
}
#: The epoch after which the paper draws its figure.
FIGURE_EPOCH = 25
#: The target's images a step. The authors' 64 stands beside it at mini scale.
TARGET_BATCH = 32


@dataclass(frozen=True)
class Scale:
    """How much of the experiment is run.

    Args:
        epochs: of every method.
        take: images of each set.
        seeds: runs of each target.
        methods: beside the table's four.
    """

    epochs: int
    take: Limits
    seeds: int
    methods: dict[str, Options] = field(default_factory=dict)


SCALES = {
    "smoke": Scale(3, Limits(store=300, train=100, val=20, test=100), 1, CONTROL),
    "mini": Scale(20, Limits(store=12_000, train=3_000, val=500, test=3_000), 3, CONTROL | OTHERS),
    "paper": Scale(100, Limits(), 1),
    "signals": Scale(20, Limits(store=8_000, train=3_000, val=500, test=3_000), 3, SIGNALS),
}


def table1(
    data: Path,
    out: Path,
    scale: str,
    sets: Sequence[str] | None = None,
    processes: int = 1,
    seed: int = 0,
    epochs: int | None = None,
    seeds: int | None = None,
) -> dict[str, Any]:
    """Run what an earlier call left, and write ``table1.json``, ``.csv``, ``.md`` and the figures into ``out``.

    Args:
        data: a folder of folders of MNIST-layout files.
        out: tables and figures; each target's runs in a folder below.
        scale: a name in `SCALES`.
        sets: names of three folders; None for the three with the most training images.
        processes: targets at a time.
        seed: of the first run of each target.
        epochs: of every method, for who has less time than the scale takes; None for the scale's.
        seeds: runs of each target; None for the scale's.

    Returns:
        What table1.json says.

    Raises:
        Misuse: no such scale or set, or ``out`` holds another experiment.
        ShardError: a file of a set cannot be used.
    """
    if scale not in SCALES:
        raise Misuse(f"--scale {scale}: unknown; known: {', '.join(SCALES)}")
    chosen, names = SCALES[scale], choose_sets(data, sets)
    cells = {
        f"{own}-{seed + nth}": Cell(
            own,
            tuple(names),
            seed + nth,
            epochs or chosen.epochs,
            asdict(chosen.take),
            common(),
            METHODS | chosen.methods,
        )
        for nth in range(seeds or chosen.seeds)
        for own in names
    }
    claim(out / "cells", cells)
    found = run_cells(partial(run_cell, data, out / "runs"), cells, out / "cells", "table 1", processes)
    results = table1_report.results(found, cells, scale)
    write_json(out / "table1.json", results)
    table1_report.write(out, results)
    for own in names:
        figure1(out, f"{own}-{seed}", own)
    return results


def common() -> Options:
    """Options that the runs of all methods share."""
    return {"pretext": "reconstruction", "meta_loss": "self-supervised", "target_batch": TARGET_BATCH}


def choose_sets(data: Path, sets: Sequence[str] | None) -> list[str]:
    """The sets that make the experiment, the largest first.

    Raises:
        Misuse: fewer than two sets, or one that is not there.
    """
    folders = {place.parent.name: place.parent for place in sorted(data.glob("*/train-images*"))}
    there = {
        name: len(read_split(folder, "train").images) for name, folder in folders.items() if name in (sets or folders)
    }
    if sets is not None:
        missing = [name for name in sets if name not in there]
        if missing or len(set(sets)) < 2:
            raise Misuse(f"--sets {','.join(sets)}: expected two or more of {', '.join(folders) or 'none'}")
        return list(sets)
    if len(there) < 2:
        raise Misuse(f"{data}: expected folders of MNIST-layout files, two or more; found {', '.join(there) or 'none'}")
    return sorted(there, key=lambda name: (-there[name], name))[:3]


def figure1(out: Path, cell: str, own: str) -> None:
    """Where the beliefs stand after epoch 25: E[w] by domain, and (a, b) by domain; as PNG and SVG."""
    run = out / "runs" / cell / "bdw"
    table = ledger.final(run, min(FIGURE_EPOCH, len(ledger.epochs(run))))
    recorded = domains_of(run)
    domain = np.array(recorded.names)[recorded.codes[table["row"].to_numpy()]]
    mean, a, b = (table[name].to_numpy() for name in ("mean", "a", "b"))
    for suffix in ("png", "svg"):
        plots.histogram_of_means(out / f"figure1a-{own}.{suffix}", mean, domain, cut=0.5)
        plots.density_of_beliefs(out / f"figure1b-{own}.{suffix}", a, b, domain)
