"""Features as directions: cosines of standardised features, and short vectors that bound them from above.

Features are standardised on the store first, or cosines of unlike images would hardly differ. A cosine of long features
is bounded by one of short vectors: the part of a direction that lies in a few principal components, and the length of
the rest as one number more. By Cauchy and Schwarz x . y <= Px . Py + |x - Px| |y - Py|, so who is near by the features
is near by the short vectors, too, and these are as long as memory and time allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.types import Floats, Ints, Reals

#: One row an image, float16 as stored or float32.
Vectors = npt.NDArray[np.floating[Any]]
#: Rows that are worked on in one go; rows that the components are found on.
AT_ONCE, SAMPLE = 8192, 16_384
#: Numbers of a brief vector; and of a short one, the fewest that leave little enough out.
BRIEF, LENGTHS = 16, (64, 128, 256)


@dataclass(frozen=True)
class Directions:
    """How features become directions.

    Args:
        mean, scale: shape (d,), float64: what is taken off each number, and what it is multiplied by then.
        basis: shape (d, q), float32, orthonormal columns, principal components first; None where features are brief.
    """

    mean: Reals
    scale: Reals
    basis: Floats | None

    def unit(self, values: Vectors) -> Floats:
        """Shape (k, d), float32: of unit length, or zeros where a feature is the mean itself."""
        x = (values.astype(np.float32) - self.mean.astype(np.float32)) * self.scale.astype(np.float32)
        return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), np.float32)

    def short(self, values: Vectors) -> Floats:
        """Shape (k, q + 1), or the directions where there is no basis: products of these bound the cosines."""
        x = self.unit(values)
        if self.basis is None:
            return x
        inside = x @ self.basis
        rest = np.sqrt(np.maximum(1 - np.square(inside).sum(1, keepdims=True), 0))
        return np.concatenate([inside, rest], 1)

    def distances(self, values: Vectors, left: Ints, right: Ints) -> Floats:
        """1 - cosine of pairs of rows: shape (k,), float32, in [0, 2].

        In float64 and pair by pair, so that it does not depend on what stands beside: a product of matrices rounds
        otherwise in other company.
        """
        found = np.empty(len(left), np.float32)
        step = max(1, AT_ONCE * 64 // values.shape[1])
        for at in range(0, len(left), step):
            x, y = ((values[rows[at : at + step]] - self.mean) * self.scale for rows in (left, right))
            lengths = np.sqrt(np.square(x).sum(1) * np.square(y).sum(1))
            found[at : at + step] = 1 - (x * y).sum(1) / np.maximum(lengths, 1e-24)
        return np.clip(found, 0, 2)


def brief(short: Floats) -> Floats:
    """The first numbers of short vectors and the length of the rest: shape (k, `BRIEF`), a bound of theirs again."""
    rest = np.linalg.norm(short[:, BRIEF - 1 :], axis=1, keepdims=True)
    return np.concatenate([short[:, : BRIEF - 1], rest], 1)


def standard(values: Vectors) -> Directions:
    """Standardise, without components: by the mean and 1 / deviation, 0 for a number that is the same everywhere."""
    n = max(1, len(values))
    mean = sum(values[part].sum(0, dtype=np.float64) for part in blocks(0, len(values))) / n
    squares = sum(np.square(values[part] - mean).sum(0) for part in blocks(0, len(values))) / n
    mean, deviation = (np.zeros(values.shape[1]) + x for x in (mean, np.sqrt(squares)))
    varies = deviation > 1e-6 * deviation.max(initial=0)
    scale = np.where(varies, 1 / np.where(varies, deviation, 1), 0)
    return Directions(mean, scale, None)


def directions(values: Vectors, left_out: float) -> Directions:
    """Standardise, and find components.

    Args:
        values: shape (n, d), n > 0; may lie on disk, and is read a block at a time.
        left_out: share of the squared length that short vectors may leave out, where `LENGTHS` allows.
    """
    whole = standard(values)
    if values.shape[1] <= BRIEF:
        return whole
    x = whole.unit(values[:: -(-len(values) // SAMPLE)]).astype(np.float64)
    energy, vectors = np.linalg.eigh(x.T @ x)
    rest = 1 - np.cumsum(energy[::-1]) / max(energy.sum(), 1e-12)
    lengths = [length for length in LENGTHS if length < len(rest)] or [len(rest) + 1]
    length = next((length for length in lengths if rest[length - 2] <= left_out), lengths[-1])
    basis = vectors[:, ::-1][:, : length - 1]
    return Directions(whole.mean, whole.scale, np.ascontiguousarray(basis, np.float32))


def blocks(start: int, stop: int) -> Iterator[slice]:
    """Slices of at most `AT_ONCE` rows from ``start`` to ``stop``."""
    for at in range(start, stop, AT_ONCE):
        yield slice(at, min(at + AT_ONCE, stop))
