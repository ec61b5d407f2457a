"""The nearest of a few target vectors to each of many others, and the nearest of all to each of them: an HNSW index,
held against brute force.

The only place that imports nmslib, and that knows what it does not say: it prints on import, takes NaN without a word,
draws its levels from a generator a thread (a fresh thread a build makes every build alike), and its `l2` is a squared
distance or a plain one as the index is stored. So it is asked for the neighbour alone, and the distance is computed
here; a sample shows that both agree, and how often the neighbour is the true one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.errors import CurateError
from curate.types import Floats

Reals = npt.NDArray[np.float64]

#: Links a node, candidates while building, candidates while asking (Malkov, Yashunin 2018).
BUILD = {"M": 16, "efConstruction": 200, "post": 0, "indexThreadQty": 1}
ASK = {"efSearch": 200}


@dataclass(frozen=True)
class Neighbours:
    """The target's vectors, shape (m, d), float32, and nmslib's index over them."""

    target: Floats
    index: Any


def build(target: Floats) -> Neighbours:
    """Index vectors of shape (m, d); the same index for the same vectors.

    Raises:
        CurateError: a vector is not finite.
    """
    _refuse_infinite(target, "target")
    return _built(target)


def of_each(vectors: npt.NDArray[np.floating[Any]], count: int) -> npt.NDArray[np.int64]:
    """The ``count`` nearest others of each vector, by the angle between standardised vectors, nearest first.

    Args:
        vectors: shape (n, d), any float type, n > count.

    Returns:
        Shape (n, count). Where the index finds fewer, the last found stands in for the rest.

    Raises:
        CurateError: a vector is not finite.
    """
    _refuse_infinite(vectors, "store")
    wide = vectors.astype(np.float32)
    wide -= wide.mean(0)
    wide /= wide.std(0) + np.float32(1e-6)
    # Of unit length, for which the nearest by distance is the nearest by angle.
    wide /= np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    answers = _built(wide).index.knnQueryBatch(wide, k=count + 1, num_threads=1)
    found = np.empty((len(wide), count), np.int64)
    for row, (places, _) in enumerate(answers):
        others = places[places != row][:count]
        found[row] = np.pad(others, (0, count - len(others)), "edge") if len(others) else row
    return found


def _built(target: Floats) -> Neighbours:
    nmslib = _nmslib()
    index = nmslib.init(method="hnsw", space="l2", data_type=nmslib.DataType.DENSE_VECTOR)
    index.addDataPointBatch(np.ascontiguousarray(target))
    with ThreadPoolExecutor(1) as fresh:
        fresh.submit(index.createIndex, BUILD, print_progress=False).result()
    # Not stored with an index: to be set on every one.
    index.setQueryTimeParams(ASK)
    return Neighbours(target, index)


def squared_distances(neighbours: Neighbours, vectors: Floats) -> Reals:
    """The squared Euclidean distance of each of ``vectors``, shape (k, d), to the neighbour found: shape (k,).

    Raises:
        CurateError: a vector is not finite.
    """
    nearest, _ = _ask(neighbours, vectors)
    return _squared(vectors, neighbours.target[nearest])


def recall(neighbours: Neighbours, vectors: Floats) -> float:
    """The share of ``vectors`` whose neighbour is as near as the nearest by brute force.

    Raises:
        CurateError: the index's own distances are not the squared ones of its neighbours.
    """
    nearest, record = _ask(neighbours, vectors)
    found = _squared(vectors, neighbours.target[nearest])
    # float32 sums of the index: relative to the vectors' own size, as near vectors cancel.
    size = np.square(vectors, dtype=np.float64).sum(1) + np.square(neighbours.target[nearest], dtype=np.float64).sum(1)
    off = np.abs(record - found) > 1e-4 * (size + 1e-30)
    if off.any():
        worst = int(np.argmax(off))
        raise CurateError(
            f"nearest neighbours: the index says distance {record[worst]:g} where {found[worst]:g} is the squared one; "
            "this build of nmslib measures something else; install nmslib 2.1.2"
        )
    best = np.array([_squared(vector, neighbours.target).min() for vector in vectors])
    return float(np.mean(found <= best * (1 + 1e-6)))


def _ask(neighbours: Neighbours, vectors: Floats) -> tuple[npt.NDArray[np.int64], Reals]:
    """The place of each vector's neighbour in the target, and the distance that the index states."""
    _refuse_infinite(vectors, "store")
    answers = neighbours.index.knnQueryBatch(np.ascontiguousarray(vectors), k=1, num_threads=1)
    places = np.concatenate([np.zeros(0, np.int64), *(places for places, _ in answers)]).astype(np.int64)
    return places, np.concatenate([np.zeros(0), *(stated for _, stated in answers)])


def _squared(left: Floats, right: Floats) -> Reals:
    return np.asarray(np.square(left - right, dtype=np.float64).sum(1))


def _refuse_infinite(vectors: npt.NDArray[np.floating[Any]], of: str) -> None:
    sound = np.isfinite(vectors).all(1)
    if not sound.all():
        place = int(np.argmin(sound))
        raise CurateError(
            f"nearest neighbours: vector {place} of the {of} is not finite; "
            "the network of --nn-features overflows on it: give another, or --nn-space pixels"
        )


def _nmslib() -> Any:
    with _silence():
        import nmslib
    return nmslib


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing reaches the process's stdout and stderr, whoever writes: nmslib greets from C++."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    saved, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for number, copy in zip((1, 2), saved):
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)
