"""Features as directions: their cosines, and short vectors that bound these from above.

A cosine of long features is bounded by one of short vectors: the part of a direction that lies in a few principal
components, and the length of the rest as one number more. By Cauchy and Schwarz x . y <= Px . Py + |x - Px| |y - Py|,
so who is near by the features is near by the short vectors, too, and these are as long as memory and time allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.types import Floats, Ints

#: One row an image, float16 as stored or float32.
Vectors = npt.NDArray[np.floating[Any]]
#: Rows that are worked on in one go; rows that the components are found on.
AT_ONCE, SAMPLE = 8192, 16_384
#: Numbers of a brief vector; and of a short one, the fewest that leave little enough out.
BRIEF, LENGTHS = 16, (64, 128, 256)


def unit(values: Vectors) -> Floats:
    """Directions, shape (n, d), float32: of unit length, zeros where a feature is all zeros."""
    x = values.astype(np.float32)
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), np.float32)


def distances(values: Vectors, left: Ints, right: Ints) -> Floats:
    """1 - cosine of pairs of rows: shape (k,), float32, in [0, 2]; two rows of zeros are alike.

    In float64 and pair by pair, so that it does not depend on what stands beside: a product of matrices rounds
    otherwise in other company.
    """
    found = np.empty(len(left), np.float32)
    step = max(1, AT_ONCE * 64 // values.shape[1])
    for at in range(0, len(left), step):
        x, y = (values[rows[at : at + step]].astype(np.float64) for rows in (left, right))
        one, other = np.square(x).sum(1), np.square(y).sum(1)
        lengths = np.sqrt(one * other)
        cosine = (x * y).sum(1) / np.where(lengths > 0, lengths, 1)
        found[at : at + step] = 1 - np.where(lengths > 0, cosine, one == other)
    return np.clip(found, 0, 2)


@dataclass(frozen=True)
class Shortened:
    """How features become short vectors.

    Args:
        basis: shape (d, q), float32, orthonormal columns, principal components first; None where features are brief.
    """

    basis: Floats | None

    def __call__(self, values: Vectors) -> Floats:
        """Shape (k, q + 1), or the directions where there is no basis: products of these bound the cosines."""
        x = unit(values)
        if self.basis is None:
            return x
        inside = x @ self.basis
        rest = np.sqrt(np.maximum(np.square(x).sum(1, keepdims=True) - np.square(inside).sum(1, keepdims=True), 0))
        return np.concatenate([inside, rest], 1)


def shortened(values: Vectors, left_out: float) -> Shortened:
    """Find components.

    Args:
        values: shape (n, d), n > 0; may lie on disk.
        left_out: share of the squared length that short vectors may leave out, where `LENGTHS` allows.
    """
    if values.shape[1] <= BRIEF:
        return Shortened(None)
    x = unit(values[:: -(-len(values) // SAMPLE)]).astype(np.float64)
    energy, vectors = np.linalg.eigh(x.T @ x)
    rest = 1 - np.cumsum(energy[::-1]) / max(energy.sum(), 1e-12)
    lengths = [length for length in LENGTHS if length < len(rest)] or [len(rest) + 1]
    length = next((length for length in lengths if rest[length - 2] <= left_out), lengths[-1])
    basis = vectors[:, ::-1][:, : length - 1]
    return Shortened(np.ascontiguousarray(basis, np.float32))


def brief(short: Floats) -> Floats:
    """The first numbers of short vectors and the length of the rest: shape (k, `BRIEF`), a bound of theirs again."""
    rest = np.linalg.norm(short[:, BRIEF - 1 :], axis=1, keepdims=True)
    return np.concatenate([short[:, : BRIEF - 1], rest], 1)


def blocks(start: int, stop: int) -> Iterator[slice]:
    """Slices of at most `AT_ONCE` rows from ``start`` to ``stop``."""
    for at in range(start, stop, AT_ONCE):
        yield slice(at, min(at + AT_ONCE, stop))
