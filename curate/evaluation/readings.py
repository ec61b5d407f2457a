"""Several ways to read one network side by side: taps, and labels a class; each with its predictions.

Which tap shows what a training gave differs by pretext, and which is best on val misleads; so all are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from curate.errors import Misuse
from curate.evaluation import few_labels as few
from curate.evaluation.evaluate import Protocol, evaluated, features_of
from curate.evaluation.trained import Trained
from curate.types import Floats

#: The image itself, reduced: what a pre-training has to beat.
PIXELS = "pixels:9x9"


@dataclass(frozen=True)
class Reading:
    """One way to read a network.

    Args:
        tap: as in `curate.models.features.at_tap`.
        labels: of each class, drawn from train; None for all of train and val.
    """

    tap: str
    labels: int | None = None

    @property
    def name(self) -> str:
        """As in "pool, 5 labels a class"."""
        labels = "all labels" if self.labels is None else f"{self.labels} labels a class"
        return f"{self.tap}, {labels}"


@dataclass(frozen=True)
class Read:
    """What a reading gave.

    Args:
        epoch: of the network.
        accuracy: of test, in [0, 1]; the mean over the draws of labels.
        deviation: over these draws; None with all labels.
        right: shape (test images,), whether, or in what share of the draws, an image was classified correctly.
    """

    reading: Reading
    epoch: int
    accuracy: float
    deviation: float | None
    right: Floats


def read(trained: Trained, readings: Sequence[Reading], protocol: Protocol, draws: int = few.DRAWS) -> list[Read]:
    """Each reading of a training.

    With all labels the protocol picks the epoch by val. A few labels leave none to pick with: the protocol's own epoch,
    else the last.

    Raises:
        Misuse: no reading, no such tap, no label or no draw. CurateError: as `curate.evaluation.evaluate.evaluate`.
    """
    if not readings:
        raise Misuse("--tap, --labels-per-class: expected at least one of each")
    return [_one(trained, reading, replace(protocol, tap=reading.tap), draws) for reading in readings]


def _one(trained: Trained, reading: Reading, protocol: Protocol, draws: int) -> Read:
    if reading.labels is None:
        found, right = evaluated(trained, protocol)
        return Read(reading, found.epoch, found.test_accuracy, None, right.astype(np.float32))
    epoch = trained.epochs(protocol.epoch)[-1]
    features = features_of(trained, epoch, protocol)
    score = few.few_labels(features, trained.classes, reading.labels, draws)
    return Read(reading, epoch, score.accuracy, score.deviation, score.right)
