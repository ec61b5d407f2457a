"""Keys as 64-bit numbers, to find those that occur twice without a table of all of them in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array, UInt8Array
from shards.tar.text_hashes import Hashes, any_twice, hashes_of

#: Bytes of padded keys at a time.
_BLOCK = 1 << 24
#: So that a shard's hash and a key's are not alike.
_APART = np.uint64(0xC2B2AE3D27D4EB4F)


def key_hashes(keys: pa.ChunkedArray) -> Hashes:
    """Shape (n,), uint64: hashes (`hashes_of`) of a column of strings without nulls."""
    hashes, done = np.empty(len(keys), np.uint64), 0
    for chunk in keys.chunks:
        width = pc.max(pc.binary_length(chunk)).as_py() or 1
        step = max(1, _BLOCK // width)
        for start in range(0, len(chunk), step):
            fields = _padded(chunk.slice(start, step))
            hashes[done : done + len(fields)] = hashes_of(fields)
            done += len(fields)
    return hashes


def any_sample_twice(samples: pa.Table) -> bool:
    """Whether two rows may have the same ``shard`` and ``key``; False is certain."""
    hashes, done = key_hashes(samples["key"]), 0
    for chunk in samples["shard"].chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        names = key_hashes(pa.chunked_array([encoded.dictionary]))
        hashes[done : done + len(chunk)] += names[encoded.indices.to_numpy()] * _APART
        done += len(chunk)
    return any_twice(hashes)


def previous_with_key(keys: pa.ChunkedArray) -> Int64Array:
    """Shape (n,), int64: position of the last earlier sample with the same key, else -1."""
    previous, hashes = np.full(len(keys), -1, np.int64), key_hashes(keys)
    if not any_twice(hashes):
        return previous
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    earlier, later = order[same], order[same + 1]
    if not keys.take(pa.array(earlier)).equals(keys.take(pa.array(later))):
        return _by_the_keys_themselves(keys)
    previous[later] = earlier
    return previous


def _by_the_keys_themselves(keys: pa.ChunkedArray) -> Int64Array:
    """As `previous_with_key`, where different keys have one hash."""
    code = np.asarray(keys.combine_chunks().dictionary_encode().indices.to_numpy())
    order, previous = np.argsort(code, kind="stable"), np.full(len(code), -1, np.int64)
    same = np.flatnonzero(code[order[1:]] == code[order[:-1]])
    previous[order[same + 1]] = order[same]
    return previous


def _padded(keys: pa.Array) -> UInt8Array:
    """The bytes of strings, shape (n, longest), uint8, padded with NULs."""
    keys = keys.cast(pa.large_string())
    _, places, data = keys.buffers()
    offsets = np.frombuffer(places, np.int64, len(keys) + 1, keys.offset * 8)
    letters = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    width = max(1, int(lengths.max(initial=0)))
    if len(letters) == len(keys) * width:
        return letters.reshape(len(keys), width)
    fields = np.zeros((len(keys), width), np.uint8)
    fields[np.arange(width) < lengths[:, None]] = letters
    return fields
