"""The vectorised half of `scan`: index rows of a shard without anything unusual, from all its member names at once.

Handles plain members with ASCII names, the members of a sample adjacent, one image a sample. Returns None for anything
else; then `shards.indexing.sample`, `schema` and `lint` compute the same rows member by member, and report the faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import BoolArray, Int64Array, UInt8Array
from shards.indexing.sample import image_rank
from shards.indexing.schema import ROW
from shards.member_names import RESERVED
from shards.tar.bulk_walk import MemberRun
from shards.tar.walk import FOLDER, Member

_DOT, _SLASH, _LINE_FEED, _UNDERSCORE = (ord(letter) for letter in "./\n_")


def bulk_rows(pieces: Sequence[MemberRun | Member], wanted: str | None) -> tuple[pa.RecordBatch, Counter[str]] | None:
    """Rows in the schema `shards.indexing.schema.ROW`, and images counted by suffix; None where anything is unusual.

    Args:
        pieces: the members of one shard, in tar order.
        wanted: extension of the image; None for the first member that is one.
    """
    runs = [piece for piece in pieces if isinstance(piece, MemberRun)]
    if not runs or not all(isinstance(piece, MemberRun) or _is_passed_over(piece) for piece in pieces):
        return None
    names, starts, bodies, sizes, ends = (np.concatenate(columns) for columns in zip(*runs, strict=True))
    fields = _trimmed(names)
    stops = None if _need_exact_walk(fields) else _key_ends(fields)
    if stops is None:
        return None
    goes_on = _same_keys(fields, stops)
    first = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    last = np.append(first[1:], len(fields)) - 1
    keys = _slices(fields[first], np.zeros_like(first), stops[first])
    apart = (starts[1:] != ends[:-1])[goes_on].any() or pc.count_distinct(keys).as_py() != len(keys)
    extensions = pc.ascii_lower(_slices(fields, stops + 1, np.count_nonzero(fields, axis=1))).dictionary_encode()
    images = None if apart else _images(extensions, first, last, wanted)
    if images is None or not sizes[images].all():
        return None
    image = extensions.dictionary.take(extensions.indices.take(pa.array(images)))
    columns = [
        keys,
        pa.array(starts[first]),
        pa.array(ends[last] - starts[first]),
        image,
        pa.array(bodies[images]),
        pa.array(sizes[images]),
        pa.array((last - first + 1).astype(np.int32)),
        pa.nulls(len(first), ROW.field("extents").type),
    ]
    return pa.record_batch(columns, schema=ROW), _by_suffix(image)


def _is_passed_over(member: Member) -> bool:
    """Folders belong to no sample; non-ASCII names of folders need `lint`."""
    return member.kind == FOLDER and member.name.isascii()


def _trimmed(fields: UInt8Array) -> UInt8Array:
    """Name fields without trailing columns that are NUL in every name."""
    reached = np.flatnonzero(np.bitwise_or.reduce(fields, axis=0))
    return fields[:, : int(reached[-1]) + 1] if reached.size else fields[:, :1]


def _need_exact_walk(fields: UInt8Array) -> bool:
    """Whether any name is not ASCII, hidden, perhaps unsafe, or split in a special way by webdataset's pattern."""
    is_dot, is_end = fields == _DOT, fields == 0
    return bool(
        fields.max() > 127
        or (fields == _LINE_FEED).any()
        or (fields[:, 0] == _SLASH).any()
        or (fields[:, :2] == _UNDERSCORE).all(axis=1).any()
        or (is_dot[:, :-1] & is_dot[:, 1:]).any()
        or (is_end[:, :-1] & ~is_end[:, 1:]).any()
    )


def _key_ends(fields: UInt8Array) -> Int64Array | None:
    """Shape (n,): the position of the first dot of each base name; None where a name has none, or begins with it."""
    columns, is_slash = np.arange(fields.shape[1]), fields == _SLASH
    base = np.where(is_slash, columns + 1, 0).max(axis=1) if is_slash.any() else np.zeros(len(fields), np.int64)
    dots = (fields == _DOT) & (columns >= base[:, None])
    stops: Int64Array = dots.argmax(axis=1)
    return stops if (stops > base).all() else None


def _same_keys(fields: UInt8Array, stops: Int64Array) -> BoolArray:
    """Shape (n - 1,), bool: whether a member has the key of the one before."""
    behind = np.arange(fields.shape[1]) > stops[1:, None]
    # A key may go on where another ends: "data.v1/0001" begins with "data.", and is not "data".
    same: BoolArray = ((fields[1:] == fields[:-1]) | behind).all(axis=1) & (stops[1:] == stops[:-1])
    return same


def _slices(fields: UInt8Array, begins: Int64Array, stops: Int64Array) -> pa.StringArray:
    """The substrings of ASCII fields from ``begins`` to ``stops``."""
    columns = np.arange(fields.shape[1])
    letters = fields[(columns >= begins[:, None]) & (columns < stops[:, None])]
    offsets = np.concatenate(([0], np.cumsum(stops - begins))).astype(np.int32)
    return pa.StringArray.from_buffers(len(fields), pa.py_buffer(offsets), pa.py_buffer(letters))


def _images(
    extensions: pa.DictionaryArray, first: Int64Array, last: Int64Array, wanted: str | None
) -> Int64Array | None:
    """Position of each sample's image; None where a sample has none or several, or an extension twice or reserved."""
    known = extensions.dictionary.to_pylist()
    if not RESERVED.isdisjoint(known):
        return None
    codes = extensions.indices.to_numpy().astype(np.int64)
    sample = np.repeat(np.arange(len(first)), last - first + 1)
    if not np.diff(np.sort(sample * len(known) + codes)).all():
        return None  # an extension twice in one sample
    ranks = np.array([image_rank(one, one.rpartition(".")[2], wanted) for one in known])[codes]
    images = np.flatnonzero((ranks > 0) & (ranks == np.maximum.reduceat(ranks, first)[sample]))
    return images if np.array_equal(sample[images], np.arange(len(first))) else None


def _by_suffix(image: pa.StringArray) -> Counter[str]:
    counts: Counter[str] = Counter()
    for one in pc.value_counts(image).to_pylist():
        counts[one["values"].rpartition(".")[2]] += one["counts"]
    return counts
