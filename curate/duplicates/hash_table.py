"""A table of what images are known by, and the same as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curate.duplicates import hashes
from curate.duplicates.hashes import DIGEST, Look, PerceptualHashes
from curate.types import ERRORS, Codes, Counts, Ints, Mask

#: Images whose thumbnails are in memory at a time.
BATCH = 1024
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("shard", "key")),
        *(pa.field(name, pa.binary(DIGEST)) for name in ("image", "pixels")),
        *(pa.field(name, pa.uint64()) for name in ("hash", "mirror")),
        pa.field("flat", pa.bool_()),
        *(pa.field(name, pa.int32()) for name in ("width", "height")),
        pa.field("error", pa.string()),
    ]
)

#: Columns of numbers that neither repeat nor are looked for.
DENSE = ("image", "pixels", "hash", "mirror")

#: Digests as two numbers each, which compare faster than bytes do.
Digests = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Hashed:
    """What n images are known by, aligned.

    Args:
        names: columns ``shard`` and ``key``.
        image, pixels: shape (n, 2), uint64: digests; zeros where there is none.
        look: hashes; those of an image with an error say nothing.
        width, height: shape (n,), int32.
        error: shape (n,), uint8: place in `ERRORS`.
    """

    names: pa.Table
    image: Digests
    pixels: Digests
    look: PerceptualHashes
    width: Counts
    height: Counts
    error: Codes

    def __len__(self) -> int:
        return len(self.error)

    @property
    def comparable(self) -> Mask:
        """Whose hash says something."""
        return np.asarray((self.error == 0) & ~self.look.flat)


def table_of(names: pa.Table, absent: Mask, bodies: Iterable[bytes]) -> pa.Table:
    """The columns of `SCHEMA`, with nulls where there is no image or where it does not decode."""
    looks, found = [], []
    for body in bodies:
        looks.append(hashes.look(body))
        if len(looks) == BATCH:
            found.append(_columns(looks))
            looks = []
    found.append(_columns(looks))
    columns = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    error = np.where(absent, ERRORS.index("no-image"), columns.pop("error")).astype(np.uint8)
    image = columns.pop("image")
    arrays = {name: pa.array(values, mask=error != 0) for name, values in columns.items()}
    arrays |= {"image": pa.array(image, mask=absent), "error": pc.take(pa.array(ERRORS, pa.string()), pa.array(error))}
    cast = {"shard": names["shard"].cast(pa.string()), "key": names["key"].cast(pa.string()), **arrays}
    return pa.table([cast[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)


def joined(one: Hashed, other: Hashed) -> Hashed:
    """Both, one after the other."""
    both, looks = np.concatenate, (one.look, other.look)
    return Hashed(
        pa.concat_tables([one.names, other.names]),
        both([one.image, other.image]),
        both([one.pixels, other.pixels]),
        PerceptualHashes(
            both([look.hash for look in looks]),
            both([look.mirror for look in looks]),
            both([look.flat for look in looks]),
        ),
        both([one.width, other.width]),
        both([one.height, other.height]),
        both([one.error, other.error]),
    )


def taken(held: Hashed, rows: Ints) -> Hashed:
    """Some of the images, in this order."""
    return Hashed(
        held.names.take(pa.array(rows)),
        held.image[rows],
        held.pixels[rows],
        PerceptualHashes(held.look.hash[rows], held.look.mirror[rows], held.look.flat[rows]),
        held.width[rows],
        held.height[rows],
        held.error[rows],
    )


def of_table(table: pa.Table) -> Hashed:
    """The columns of `SCHEMA` as arrays, zeros for nulls."""
    values = {name: pc.fill_null(table[name], 0).to_numpy() for name in ("hash", "mirror", "width", "height")}
    error = pc.fill_null(pc.index_in(table["error"], pa.array(ERRORS[1:], pa.string())), -1).to_numpy() + 1
    return Hashed(
        table.select(["shard", "key"]),
        _digests(table["image"]),
        _digests(table["pixels"]),
        PerceptualHashes(values["hash"], values["mirror"], pc.fill_null(table["flat"], False).to_numpy()),
        values["width"],
        values["height"],
        error.astype(np.uint8),
    )


def _columns(looks: list[Look]) -> dict[str, npt.NDArray[np.generic]]:
    thumbnails = (
        np.stack([one.thumbnail for one in looks]) if looks else np.zeros((0, hashes.SIDE, hashes.SIDE), np.uint8)
    )
    found = hashes.perceptual(thumbnails)
    return {
        "image": np.array([one.image for one in looks], object),
        "pixels": np.array([one.pixels or bytes(DIGEST) for one in looks], object),
        **found._asdict(),
        "width": np.array([one.width for one in looks], np.int32),
        "height": np.array([one.height for one in looks], np.int32),
        "error": np.array([one.error for one in looks], np.uint8),
    }


def _digests(column: pa.ChunkedArray) -> Digests:
    chunks = (_numbers_of(chunk) for chunk in pc.fill_null(column, bytes(DIGEST)).chunks)
    return np.concatenate([np.zeros((0, 2), np.uint64), *chunks])


def _numbers_of(chunk: pa.FixedSizeBinaryArray) -> Digests:
    raw = np.frombuffer(chunk.buffers()[1], np.uint8)[chunk.offset * DIGEST :][: len(chunk) * DIGEST]
    return raw.view(np.uint64).reshape(-1, 2)
