"""Tables that may be larger than memory should hold: beyond a size they lie in an unnamed, mapped temporary file.

The system reads its pages as they are needed and drops them when it needs the room, so that a table of a hundred
million rows takes no memory from anybody. It looks like any other Arrow table.
"""

from __future__ import annotations

import errno
import mmap
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa

from shards.errors import NoSpace

#: Bytes up to which a table stays in memory, and those of a piece of a larger one.
IN_MEMORY, _PIECE = 64 << 20, 16 << 20


def spilled(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows of all batches, in order: in one piece in memory, or in pieces in a mapped file.

    Args:
        schema: of every batch; without columns that are encoded by a dictionary.
        batches: read once, and let go of one by one.

    Raises:
        NoSpace: the folder of temporary files (``TMPDIR``) has no room for them.
    """
    pieces = _pieces(schema, batches)
    held: list[pa.Table] = []
    for piece in pieces:
        held.append(piece)
        if sum(one.nbytes for one in held) > IN_MEMORY:
            return _mapped(schema, chain(_emptied(held), pieces))
    return pa.concat_tables(held).combine_chunks() if held else schema.empty_table()


def _pieces(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches put together to pieces of `_PIECE` bytes or more."""
    held: list[pa.RecordBatch] = []
    n_bytes = 0
    for batch in batches:
        held.append(batch)
        n_bytes += batch.nbytes
        if n_bytes >= _PIECE:
            yield pa.Table.from_batches(held, schema).combine_chunks()
            held, n_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held, schema).combine_chunks()


def _emptied(held: list[pa.Table]) -> Iterator[pa.Table]:
    """What is in a list, which lets go of it."""
    held.reverse()
    while held:
        yield held.pop()


def _mapped(schema: pa.Schema, pieces: Iterable[pa.Table]) -> pa.Table:
    try:
        with tempfile.TemporaryFile() as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for piece in pieces:
                    writer.write_table(piece)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        todo = "make room there, or point TMPDIR to a larger disk"
        raise NoSpace("no space for a large table", shard=tempfile.gettempdir(), todo=todo) from error
    return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()
