"""The nouns that travel between engine, ledger, pruner, manifest and run. No torch, no files.

A row is an example's ordinal in the store's index. All arrays of one record are aligned and sorted by row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shards.faults import KINDS

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int32]
Codes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float64]

#: Reasons why an example is never trained on. An error code is a place in this tuple; 0 means none.
ERRORS: tuple[str | None, ...] = (None, *KINDS)


@dataclass(frozen=True)
class Beliefs:
    """What is believed of some examples at one moment.

    Args:
        rows: shape (m,), int64, strictly increasing.
        mean: shape (m,), float32: E[w] = a / (a + b), or the weight itself where a method has a point weight.
        visits: shape (m,), int32: how often the example was trained on.
        error: shape (m,), uint8: place in `ERRORS`; 0 where the image decodes, or was not read yet.
        a, b: shape (m,), float32: the Beta's parameters; None where a method has a point weight.
    """

    rows: Ints
    mean: Floats
    visits: Counts
    error: Codes
    a: Floats | None = None
    b: Floats | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Prior:
    """What is known of all n images of a store before anything is trained.

    Args:
        mean: shape (n,), float64, in [0, 1]: how likely an image is worth its place; NaN where nothing is known.
        kept: shape (n,): a cut that was made on ``mean``, which the pruning rule is to repeat; None for none.
        cut: the mean at which it was made.
        a, b: shape (n,), float64, > 0: whole beliefs, which stand as they are; None where only means are known.
    """

    mean: Reals
    kept: Mask | None = None
    cut: float | None = None
    a: Reals | None = None
    b: Reals | None = None


@dataclass(frozen=True)
class Stamp:
    """What a ledger partition or a manifest says of the run that made it (stored in the Parquet footer)."""

    run_id: str
    method: str
    epoch: int
    seed: int
    lam: float
    rho: float
    eta: float | None


@dataclass
class EpochReport:
    """One line of metrics.jsonl. `seconds` is by stage; `numbers` holds what the engine measured."""

    epoch: int
    images: int
    kept: int
    pruned: int
    numbers: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
