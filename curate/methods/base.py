"""What every method offers: a weight for each image of a batch, moved by the signal, and a state of one row an example.

A method's tensors live on the device, have one entry a row of the store, and are touched only at the batch's rows
in a step; passes over all rows happen once an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from curate.config.resolved import ResolvedBelief, ResolvedPrune
from curate.types import Counts, Floats, Mask, Prior


@dataclass(frozen=True)
class MethodInputs:
    """What a method is made of; of the optional parts each method has what it asks for, the others None.

    Args:
        n: rows of the store.
        belief: how the signal moves the weights; resolved.
        seed: of the run.
        device: where the method's tensors live.
        own: shape (n,): whether a row is of the target's own domain (oracle).
        distances: shape (n,), float32, at least 0, infinite where the image does not decode: from each image to the
            nearest of the target's training images (nn).
        decay: what a distance is multiplied by before the exponential (nn).
    """

    n: int
    belief: ResolvedBelief
    seed: int
    device: torch.device
    own: Mask | None = None
    distances: Floats | None = None
    decay: float = 0.0


@dataclass(frozen=True)
class Clusters:
    """Images that look alike, told by the cluster that each of n images is in.

    Args:
        cluster: shape (n,), int32, in [0, count).
        count: of clusters.
    """

    cluster: Counts
    count: int


@dataclass(frozen=True)
class Nearest:
    """Images that look alike, told by the N images that are nearest to each of n: shape (n, N), int32."""

    nearest: Counts


LookAlikes = Clusters | Nearest


class Summary(NamedTuple):
    """Weights as the ledger holds them, each of shape (m,), float32; a and b None for a point weight."""

    mean: Floats
    a: Floats | None
    b: Floats | None


class Method(Protocol):
    """One way to weight the images of a store."""

    #: Whether the meta-loss has a say in the weights; if not, the meta-pass is left out.
    learns: bool
    #: Whether the meta-gradient is taken after the batch's own step, or at the parameters as they are.
    looks_ahead: bool
    #: Whether an epoch's end may drop images for their weights.
    prunes: bool
    #: Shape (n,): who is in the store from the start; None for everyone.
    admitted: Mask | None

    def begin_epoch(self, rows: Tensor, visit: Tensor, epoch: int) -> None:
        """Prepare the weights of an epoch.

        Args:
            rows: shape (m,), int64, increasing: the rows that are trained on.
            visit: shape (m,), int64: the step at which each is visited.
            epoch: from 1.
        """

    def weights(self, rows: Tensor) -> Tensor:
        """The weights of a batch, shape (k,), float32."""

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """Move the weights of a batch against the signal, shape (k,)."""

    def end_epoch(self, rows: Tensor, step: int) -> None:
        """Bring ``rows`` up to ``step``, the first step of the next epoch."""

    def summary(self, rows: npt.NDArray[np.int64]) -> Summary:
        """What the ledger says of ``rows``."""

    def state(self) -> dict[str, Tensor]:
        """The tensors a checkpoint holds."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up the tensors of a checkpoint.

        Of one in the midst of an epoch, after `begin_epoch`: what that drew stays.
        """


class Informed(Method, Protocol):
    """A method whose weights may start from something that is known; it names ``prior`` among its inputs."""

    def begin_from(self, prior: Prior, rule: ResolvedPrune) -> Summary:
        """The weights of all rows that a prior means under a pruning rule; where it has a cut, the rule repeats it.

        Raises:
            Misuse: no weights do.
        """

    def take_up(self, weights: Summary) -> None:
        """Start from these weights of all rows, as the ledger holds them."""


class Sharing(Method, Protocol):
    """A method whose visits to an image teach the images that look like it; it names ``look-alikes`` among its
    inputs."""

    def share(self, among: LookAlikes) -> None:
        """Let these teach one another from now on; before the first epoch, and before a checkpoint is taken up."""


class FixedWeights:
    """Weights that are settled before the first epoch: nothing to learn, to keep up or to restore.

    Attributes:
        table: shape (n,), float32: the weight of each row; None where all are 1.
    """

    learns = looks_ahead = prunes = False
    admitted: Mask | None = None
    table: Tensor | None = None

    def weights(self, rows: Tensor) -> Tensor:
        """Ones, or the rows of the table."""
        if self.table is None:
            return torch.ones(len(rows), device=rows.device)
        return self.table[rows.to(self.table.device)]

    def begin_epoch(self, rows: Tensor, visit: Tensor, epoch: int) -> None:
        """Nothing to prepare."""

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """Never called."""

    def end_epoch(self, rows: Tensor, step: int) -> None:
        """Nothing to bring up."""

    def summary(self, rows: npt.NDArray[np.int64]) -> Summary:
        """Point weights, the same in every epoch."""
        return Summary(on_host(self.weights(torch.from_numpy(rows))), None, None)

    def state(self) -> dict[str, Tensor]:
        """Nothing: what the weights follow from is given again."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Nothing."""


def on_host(values: Tensor) -> Floats:
    """A float32 numpy copy."""
    return np.asarray(values.to("cpu", torch.float32).numpy())


class PointWeights:
    """Point weights that move: one number an example, 0 at the start.

    Attributes:
        weight: shape (n,).
    """

    learns = True
    admitted: Mask | None = None

    def __init__(self, given: MethodInputs, dtype: torch.dtype = torch.float32) -> None:
        self.weight = torch.zeros(given.n, dtype=dtype, device=given.device)

    def begin_epoch(self, rows: Tensor, visit: Tensor, epoch: int) -> None:
        """Nothing is drawn."""

    def end_epoch(self, rows: Tensor, step: int) -> None:
        """Nothing to bring up."""

    def summary(self, rows: npt.NDArray[np.int64]) -> Summary:
        """The weights as they stand."""
        return Summary(on_host(self.weight[torch.from_numpy(rows).to(self.weight.device)]), None, None)

    def state(self) -> dict[str, Tensor]:
        """The weights."""
        return {"weight": self.weight}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up a checkpoint's weights."""
        self.weight.copy_(state["weight"])
