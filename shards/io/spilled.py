"""Tables that may be larger than memory should hold: beyond a size they lie in an unnamed temporary file that is mapped.

The system reads its pages as they are needed and drops them when it needs the room, so that a table of a hundred million
rows takes no memory from anybody. It looks like any other Arrow table.
"""

from __future__ import annotations

import errno
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa

from shards.errors import NoSpace

#: Bytes up to which a table stays in memory, and that the pieces of a larger one have.
IN_MEMORY = 64 << 20


def spilled(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows of all batches, in order: in one piece in memory, or in pieces in a mapped file.

    Args:
        schema: of every batch; without columns that are encoded by a dictionary.
        batches: read once, and let go of one by one.

    Raises:
        NoSpace: the folder of temporary files (``TMPDIR``) has no room for them.
    """
    pieces = _pieces(batches)
    first, second = next(pieces, None), next(pieces, None)
    if first is None:
        return schema.empty_table()
    if second is None:
        return pa.Table.from_batches(first, schema).combine_chunks()
    return _mapped(schema, chain((first, second), pieces))


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches in lists of `IN_MEMORY` bytes, or a little more."""
    held: list[pa.RecordBatch] = []
    n_bytes = 0
    for batch in batches:
        held.append(batch)
        n_bytes += batch.nbytes
        if n_bytes >= IN_MEMORY:
            yield held
            held, n_bytes = [], 0
    if held:
        yield held


def _mapped(schema: pa.Schema, pieces: Iterable[list[pa.RecordBatch]]) -> pa.Table:
    try:
        with tempfile.TemporaryFile() as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for piece in pieces:
                    writer.write_table(pa.Table.from_batches(piece, schema).combine_chunks())
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        todo = "make room there, or point TMPDIR to a larger disk"
        raise NoSpace("no space for a large table", shard=tempfile.gettempdir(), todo=todo) from error
    return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()
