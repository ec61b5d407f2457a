"""What every encoder and every selector offers, and the features that pass between them.

Encoders and selectors are found by the tables of `curate.config.catalogue`; nobody else names one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor, device

from curate.errors import Misuse
from curate.types import Codes, Floats, Ints, Mask

#: One row an image, float16 as stored or float32.
Vectors = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Features:
    """Features of the images of a shard set.

    Args:
        rows: shape (m,), int64, increasing: the rows that have any.
        values: shape (m, d), float16 or float32.
        error: shape (n,), uint8, a place in `curate.types.ERRORS` for each row: 0 where it has features.
    """

    rows: Ints
    values: Vectors
    error: Codes


@dataclass(frozen=True)
class EncoderInputs:
    """What an encoder is made of.

    Args:
        argument: what stands after the colon of ``--encoder``.
        nets: of `untrained`.
        device: where it works.
    """

    argument: str
    nets: int
    device: device


class Encoder(Protocol):
    """Images in, features out; nothing random, and the same whatever stands beside an image.

    It can be pickled, as a cluster's machines get it that way.
    """

    #: How images are decoded for it: side in pixels, and colour mode.
    size: int
    colour: str
    #: Everything but the images that a feature depends on, for the key of what is stored.
    identity: dict[str, Any]
    #: How many images of the store it is calibrated on before it is called; 0 for none.
    calibrated_on: int

    def __init__(self, inputs: EncoderInputs) -> None: ...

    def calibrate(self, images: Iterator[Tensor]) -> None:
        """Take what it needs from uint8 images (k, C, size, size) of the store."""

    def __call__(self, pixels: Tensor) -> Floats:
        """uint8 (k, C, size, size) -> shape (k, d), float32."""


@dataclass(frozen=True)
class Scores:
    """What a selector says.

    Args:
        score: shape (m,), float32, in [0, 1]: the higher, the rather kept.
        own: shape (m,): who it keeps by its own rule, each with a score above all that it does not; None for no rule.
        facts: what it found out besides, numbers by name.
        cut: the score at which its rule cuts; None for a rule of another kind.
    """

    score: Floats
    own: Mask | None = None
    facts: dict[str, float] = field(default_factory=dict)
    cut: float | None = None


class Selector(Protocol):
    """Features in, scores and a keep mask out."""

    def __call__(self, store: Vectors, target: Vectors, seed: int) -> Scores:
        """Judge the ``store``, shape (m, d), by images of the ``target``, shape (t, d)."""


def best(score: Floats, count: int) -> Mask:
    """The ``count`` highest scores, equals by row.

    Raises:
        Misuse: there are not so many.
    """
    if not 1 <= count <= len(score):
        raise Misuse(f"--keep {count}: expected 1 to {len(score)}, the images that decode")
    kept = np.zeros(len(score), np.bool_)
    kept[np.argsort(-score, kind="stable")[:count]] = True
    return kept
