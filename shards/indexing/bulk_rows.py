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

#: Extensions of a shard, and members of a sample, that are told apart here: as bits of a sum that cannot overflow.
_MAX_EXTENSIONS = 32
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
    fields = _trimmed_names(runs)
    starts, bodies, sizes, ends = (np.concatenate(columns) for columns in zip(*(run[1:] for run in runs), strict=True))
    letters = np.ascontiguousarray(fields.T)  # numpy is fast along rows, and names are short
    stops = None if _need_exact_walk(letters) else _key_ends(letters)
    if stops is None:
        return None
    goes_on = _same_keys(letters, stops)
    first = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    last = np.append(first[1:], len(fields)) - 1
    keys = _slices(fields[first], np.zeros_like(first), stops[first])
    apart = (starts[1:] != ends[:-1])[goes_on].any() or pc.count_distinct(keys).as_py() != len(keys)
    extensions = pc.ascii_lower(_slices(fields, stops + 1, (letters != 0).sum(axis=0))).dictionary_encode()
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


def _trimmed_names(runs: Sequence[MemberRun]) -> UInt8Array:
    """The name fields of all members, without trailing columns that are NUL in every name."""
    reached = [np.flatnonzero(np.bitwise_or.reduce(run.names, axis=0)) for run in runs]
    width = max((int(one[-1]) + 1 for one in reached if one.size), default=1)
    return np.concatenate([run.names[:, :width] for run in runs])


def _need_exact_walk(letters: UInt8Array) -> bool:
    """Whether any name is not ASCII, hidden, perhaps unsafe, or split in a special way by webdataset's pattern.

    Args:
        letters: shape (letters, n): the names as columns.
    """
    is_dot, is_end = letters == _DOT, letters == 0
    return bool(
        letters.max() > 127
        or (letters == _LINE_FEED).any()
        or (letters[0] == _SLASH).any()
        or (letters[:2] == _UNDERSCORE).all(axis=0).any()
        or (is_dot[:-1] & is_dot[1:]).any()
        or (is_end[:-1] & ~is_end[1:]).any()
    )


def _key_ends(letters: UInt8Array) -> Int64Array | None:
    """Shape (n,): the position of the first dot of each base name; None where a name has none, or begins with it."""
    places, is_slash = np.arange(len(letters), dtype=np.uint8)[:, None], letters == _SLASH
    base = np.where(is_slash, places + np.uint8(1), np.uint8(0)).max(axis=0)
    stops = np.where((letters == _DOT) & (places >= base), places, np.uint8(255)).min(axis=0)
    return stops.astype(np.int64) if ((stops > base) & (stops < 255)).all() else None


def _same_keys(letters: UInt8Array, stops: Int64Array) -> BoolArray:
    """Shape (n - 1,), bool: whether a member has the key of the one before."""
    behind = np.arange(len(letters), dtype=np.uint8)[:, None] > stops[1:].astype(np.uint8)
    # A key may go on where another ends: "data.v1/0001" begins with "data.", and is not "data".
    same: BoolArray = ((letters[:, 1:] == letters[:, :-1]) | behind).all(axis=0) & (stops[1:] == stops[:-1])
    return same


def _slices(fields: UInt8Array, begins: Int64Array, stops: Int64Array) -> pa.StringArray:
    """The substrings of ASCII fields from ``begins`` to ``stops``."""
    offsets = np.concatenate(([0], np.cumsum(stops - begins))).astype(np.int32)
    low, high = int(begins.min()), int(stops.max())
    letters, places = fields[:, low:high], np.arange(low, high)
    if offsets[-1] < letters.size:  # else they are the whole of it, as keys of one length are
        letters = letters[(places >= begins[:, None]) & (places < stops[:, None])]
    letters = np.ascontiguousarray(letters)
    return pa.StringArray.from_buffers(len(fields), pa.py_buffer(offsets), pa.py_buffer(letters))


def _images(
    extensions: pa.DictionaryArray, first: Int64Array, last: Int64Array, wanted: str | None
) -> Int64Array | None:
    """Position of each sample's image; None where a sample has none or several, or an extension twice or reserved."""
    known = extensions.dictionary.to_pylist()
    counts = last - first + 1
    if not RESERVED.isdisjoint(known) or max(len(known), int(counts.max())) > _MAX_EXTENSIONS:
        return None
    codes = extensions.indices.to_numpy()
    bits = np.int64(1) << codes.astype(np.int64)
    if (np.add.reduceat(bits, first) != np.bitwise_or.reduceat(bits, first)).any():
        return None  # an extension twice in one sample
    ranks = np.array([image_rank(one, one.rpartition(".")[2], wanted) for one in known])[codes]
    best = np.repeat(np.maximum.reduceat(ranks, first), counts)
    images = np.flatnonzero((ranks > 0) & (ranks == best))
    return images if len(images) == len(first) and ((images >= first) & (images <= last)).all() else None


def _by_suffix(image: pa.StringArray) -> Counter[str]:
    counts: Counter[str] = Counter()
    for one in pc.value_counts(image).to_pylist():
        counts[one["values"].rpartition(".")[2]] += one["counts"]
    return counts
