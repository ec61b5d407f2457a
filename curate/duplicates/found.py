"""What came of looking for duplicates: of every image who represents it, at which level, and why it goes or stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.duplicates.hash_table import Hashed
from curate.duplicates.levels import LEVELS, same
from curate.duplicates.pairs import apart
from curate.types import Counts, Floats, Ints, Mask, Reals

SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("shard", "key")),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("row", "group")),
        pa.field("of", pa.string(), nullable=False),
        *(pa.field(f"representative_{name}", pa.string(), nullable=False) for name in ("shard", "key")),
        pa.field("level", pa.string()),
        pa.field("distance", pa.float32()),
        pa.field("exact", pa.string()),
        pa.field("perceptual", pa.int32()),
        pa.field("semantic", pa.float32()),
        *(pa.field(name, pa.bool_(), nullable=False) for name in ("mirrored", "kept")),
        pa.field("reason", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Likeness:
    """How alike pairs of images are, aligned.

    Args:
        level: shape (k,): place in `LEVELS` of the surest level at which they are alike.
        image, pixels: shape (k,): the same bytes; the same pixels.
        bits: shape (k,), int32: in which hashes differ, mirrored or not; -1 where a hash says nothing.
        mirrored: shape (k,): the mirror image is nearer.
        cosine: shape (k,), float32: 1 - cosine of features, NaN where it was not looked at.
    """

    level: Ints
    image: Mask
    pixels: Mask
    bits: Counts
    mirrored: Mask
    cosine: Floats

    @property
    def distance(self) -> Reals:
        """In the units of the level: 0, bits, or 1 - cosine."""
        return np.choose(self.level, [np.zeros(len(self.level)), self.bits, self.cosine])

    def words(self) -> list[str]:
        """Why two images are taken for one."""
        exact = np.where(self.image, "the same bytes", "the same pixels")
        semantic = [f"features {value:.3g} apart" for value in self.cosine.tolist()]
        tail = np.where(self.mirrored, ", mirrored", "")
        bits = [f"{n} of 64 bits differ{more}" for n, more in zip(self.bits.tolist(), tail.tolist())]
        return [(exact[i], bits[i], semantic[i])[level] for i, level in enumerate(self.level.tolist())]


def likeness(held: Hashed, one: Ints, other: Ints, distance: int, cosine: Floats | None = None) -> Likeness:
    """Look at pairs of images again, now that they are found.

    Args:
        one, other: shape (k,), int64, places in ``held``.
        distance: bits up to which they are alike perceptually.
        cosine: shape (k,), where features were compared.
    """
    image, pixels = same(held, one, other)
    look, comparable = held.look, held.comparable[one] & held.comparable[other]
    straight = np.bitwise_count(look.hash[one] ^ look.hash[other])
    bits = apart(look.hash, look.mirror, one, other)
    level = np.where(image | pixels, 0, np.where(comparable & (bits <= distance), 1, 2))
    known = np.full(len(one), np.nan, np.float32) if cosine is None else cosine
    mirrored = comparable & ~pixels & (bits < straight)
    return Likeness(level, image, pixels, np.where(comparable, bits.astype(np.int32), np.int32(-1)), mirrored, known)


@dataclass(frozen=True)
class Named:
    """Images by name: columns ``shard`` and ``key``, and their places."""

    names: pa.Table
    places: Ints


def table_of(members: Named, group: Ints, by: Named, of: pa.Array, alike: Likeness, why: str) -> pa.Table:
    """The rows of ``duplicates.parquet``.

    Args:
        members: m images that have copies; places are rows of the store.
        group: shape (m,): a number for each group.
        by: who represents each; its places are the members' own where an image stays.
        of: whose image the representative is: empty for the store's own, else a split's name or ``other``.
        alike: how alike each is to who represents it.
        why: those stay that do.
    """
    kept = members.places == by.places
    level = pa.array(alike.level, mask=kept)
    words = [why if stays else text for stays, text in zip(kept.tolist(), alike.words())]
    exact = np.where(alike.image, "bytes", np.where(alike.pixels, "pixels", ""))
    columns = {
        **{name: members.names[name] for name in ("shard", "key")},
        "row": pa.array(members.places),
        "group": pa.array(group),
        "of": of,
        **{f"representative_{name}": by.names[name] for name in ("shard", "key")},
        "level": pc.take(pa.array(LEVELS), level),
        "distance": pa.array(alike.distance.astype(np.float32), mask=kept),
        "exact": pa.array(exact.astype(object), pa.string(), mask=kept | (exact == "")),
        "perceptual": pa.array(alike.bits, mask=kept | (alike.bits < 0)),
        "semantic": pa.array(alike.cosine, mask=kept | np.isnan(alike.cosine)),
        "mirrored": pa.array(alike.mirrored & ~kept),
        "kept": pa.array(kept),
        "reason": pa.array(words, pa.string()),
    }
    return pa.table([columns[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)
