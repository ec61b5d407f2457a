"""All pairs of images whose features are alike, complete and exact, without all of them in memory.

Rows are sorted into cells; a cell is compared with itself and with those vectors of later cells that can have a
neighbour in it (`curate.duplicates.cells`), by brief vectors, then by short ones, then by the features. No pair is
missed, so neither the cells nor the number of workers change what is found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from curate.duplicates.cells import Cells, open_cells, write_cells
from curate.duplicates.directions import Vectors, blocks, distances, shortened
from curate.duplicates.sorted_pairs import CHUNK, Pairs
from curate.errors import CurateError
from curate.types import Ints
from shards.io.parallel import map_shards

#: 1 - cosine up to which two images count as alike, where nobody says otherwise.
DISTANCE = 0.04
#: What float32 may be off in a product of two directions.
_SLACK = 1e-5
#: Vectors of a cell and of others that are compared in one go, so that products stay in a core's cache.
_HIGH, _WIDE = 256, 2048
#: Parts of the work.
_PARTS = 64
#: Pairs that are told at most, where images have fewer than that on average: 5 GB.
MOST, _MOST_EACH = 1 << 28, 256


def near_pairs(
    values: Vectors | Path, within: float = DISTANCE, workers: int = 1, folder: Path | None = None
) -> Iterator[Pairs]:
    """Every pair of rows with 1 - cosine <= ``within``, in chunks.

    Copies of one vector are better compared once (`digests`): 20,000 of them make 200 million pairs.

    Args:
        values: shape (n, d): features; or an .npy file of them, which is read a block at a time.
        within: in (0, 1).
        workers: processes.
        folder: where the work lies meanwhile, 300 to 1,100 bytes an image and 20 a pair; None for the machine's own.

    Raises:
        CurateError: there are so many that the features cannot be meant to tell images apart.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".near-pairs-") as scratch:
        place = Path(scratch)
        cells, most = _prepare(values, within, place)
        told, step = 0, max(1, -(-cells // _PARTS))
        parts = [range(at, min(at + step, cells)) for at in range(0, cells, step)]
        for path, count in map_shards(partial(_compare, place, within, most), parts, workers):
            told += count
            if told > most:
                raise _too_many(within, most)
            yield from _chunks(path)
            path.unlink()


def digests(values: Vectors) -> Ints:
    """A number a row, shape (n,), int64: rows of the same 64 bits are taken for copies of one vector."""
    draws = np.random.default_rng(0)
    odd = draws.integers(0, 1 << 63, 2 * values.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    found = np.empty(len(values), np.uint64)
    for part in blocks(0, len(values)):
        bits = np.ascontiguousarray(values[part] + values.dtype.type(0))  # -0 is 0
        words = bits.view(np.uint16 if bits.dtype == np.float16 else np.uint32).astype(np.uint64)
        words ^= words << np.uint64(32) ^ words * words
        found[part] = (words * odd[: words.shape[1]]).sum(1)
    return found.view(np.int64)


def _prepare(values: Vectors | Path, within: float, place: Path) -> tuple[int, int]:
    """Write what the parts of the work read. Returns the number of cells, and how many pairs there may be."""
    if isinstance(values, Path):
        (place / "values.npy").symlink_to(values.resolve())
    else:
        np.save(place / "values.npy", values)
    held = np.load(place / "values.npy", mmap_mode="r")
    if len(held) < 2:
        return 0, 0
    write_cells(held, shortened(held, within), round(len(held) ** 0.5), place)
    return len(open_cells(place).centres), max(MOST, _MOST_EACH * len(held))


def _compare(place: Path, within: float, most: int, part: range) -> tuple[Path, int]:
    """The pairs whose earlier cell is one of ``part``, in a file: three arrays, one after another.

    It is this call's own: where a machine was lost another may still write the same pairs.
    """
    values, cells, told = np.load(place / "values.npy", mmap_mode="r"), open_cells(place), 0
    with tempfile.NamedTemporaryFile(dir=place, prefix=f"pairs-{part.start:06d}-", delete=False) as file:
        for left, right in _many(_candidates(cells, part, within)):
            one, other = cells.order[left], cells.order[right]
            apart = distances(values, one, other)
            near = apart <= within
            for array in (np.minimum(one, other), np.maximum(one, other), apart):
                np.save(file, array[near])
            told += int(near.sum())
            if told > most:
                break
    return Path(file.name), told


def _many(pairs: Iterator[tuple[Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """Put small chunks together."""
    held, count = list[tuple[Ints, Ints]](), 0
    for pair in chain(pairs, [None]):
        if held and (pair is None or count >= CHUNK):
            yield np.concatenate([left for left, _ in held]), np.concatenate([right for _, right in held])
            held, count = [], 0
        if pair is not None:
            held.append(pair)
            count += len(pair[0])


def _candidates(cells: Cells, part: range, within: float) -> Iterator[tuple[Ints, Ints]]:
    """Places of pairs whose short vectors are near enough, the earlier first; a block of products is in memory."""
    least, radius = 1 - within - _SLACK, (2 * within) ** 0.5
    for cell in part:
        for block in blocks(int(cells.starts[cell]), int(cells.starts[cell + 1])):
            yield from _products(cells, cell, np.arange(block.start, block.stop), least)
    for block in blocks(int(cells.starts[part.start]), len(cells.order)):
        reach = cells.beyond(block, part, radius)
        for number in np.flatnonzero(reach.any(0)).tolist():
            yield from _products(cells, part[number], block.start + np.flatnonzero(reach[:, number]), least)


def _products(cells: Cells, cell: int, places: Ints, least: float) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of a cell with vectors at later ``places``, or at its own, whose products are that great."""
    others = cells.brief[places].T
    start, stop = (int(place) for place in cells.starts[cell : cell + 2])
    for at in range(start, min(stop, int(places[-1])), _HIGH):
        one = cells.brief[at : min(at + _HIGH, stop)]
        for beside in range(0, len(places), _WIDE):
            products = one @ others[:, beside : beside + _WIDE]
            # Of a mask of two dimensions nonzero takes as long as the product.
            left, right = divmod(np.flatnonzero(products >= least), products.shape[1])
            left, right = left + at, places[beside + right]
            later = left < right
            if later.any():
                yield from _confirmed(cells, left[later], right[later], least)


def _confirmed(cells: Cells, left: Ints, right: Ints, least: float) -> Iterator[tuple[Ints, Ints]]:
    """Those of pairs of places whose short vectors have products that great, too."""
    for part in blocks(0, len(left)):
        products = np.einsum("ij,ij->i", cells.short[left[part]], cells.short[right[part]])
        near = products >= least
        yield left[part][near], right[part][near]


def _chunks(path: Path) -> Iterator[Pairs]:
    """The pairs of a file, in the order in which they were found."""
    with open(path, "rb") as file:
        while file.read(1):
            file.seek(-1, 1)
            yield Pairs(*(np.load(file) for _ in range(3)))


def _too_many(within: float, most: int) -> CurateError:
    return CurateError(
        f"more than {most:,} pairs of images have features within {within:g} of each other; these features hardly tell "
        "the images apart: take a smaller distance, or another --encoder"
    )
