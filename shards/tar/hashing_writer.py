"""A writer that counts and hashes (SHA-256, xxh3) a new shard in the same pass in which it writes it.

Of a shard of which a server copies a part, it counts all bytes, and has no hash.

`shards.rewriting.copy` decides what is written; `shards.io.atomic` gives the file its name.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO, cast

import numpy as np
import xxhash

from shards.arrays import Int64Array
from shards.io.storage.uploads import Upload
from shards.tar.blocks import Blocks
from shards.tar.header import BLOCK

Sync = Callable[[], object]
_CHUNK = 1 << 20
#: Bytes after which an fdatasync is started, so that the final fsync is short.
_SYNC_BYTES = 8 << 20
#: Mebibytes that may be written and not hashed yet.
_BUFFERS = 8


class HashingWriter:
    """A binary file hashed while it is written; SHA-256 and fdatasync run in threads beside the writing."""

    def __init__(
        self, file: BinaryIO | Upload, sync: Sync, hasher: ThreadPoolExecutor, syncer: ThreadPoolExecutor
    ) -> None:
        self.position, self.sha256, self.xxh3 = 0, hashlib.sha256(), xxhash.xxh3_64()
        #: Kept for the new shard's index: a hash of its header blocks, and whether it holds a hard link.
        self.headers, self.borrows = xxhash.xxh3_64(), False
        #: Bytes since the server copied some last, and whether it ever did: then the hashes are those of the others.
        self.since_copy, self.has_copies = 0, False
        self._file, self._sync, self._hasher, self._syncer = file, sync, hasher, syncer
        self._buffer = np.empty((_CHUNK // BLOCK, BLOCK), np.uint8)
        #: Buffers that are hashed, oldest first: hashing may fall behind writing for a while.
        self._hashed: deque[tuple[Future[None], Blocks]] = deque()
        self._filled = self._unsynced = 0
        self._synced: Future[object] | None = None

    def write(self, data: bytes) -> None:
        """Append bytes."""
        done = 0
        while done < len(data):
            step = min(len(data) - done, _CHUNK - self._filled)
            self._view()[self._filled : self._filled + step] = data[done : done + step]
            self._advance(step)
            done += step

    def write_blocks(self, blocks: Blocks, numbers: Int64Array) -> None:
        """Append the blocks with these numbers; bytes written before must be a whole number of blocks."""
        done = 0
        while done < len(numbers):
            place = self._filled // BLOCK
            step = min(len(numbers) - done, len(self._buffer) - place)
            # "clip" (the numbers are in range) lets numpy write to the buffer itself.
            np.take(blocks, numbers[done : done + step], 0, self._buffer[place : place + step], "clip")
            self._advance(step * BLOCK)
            done += step

    def copy(self, url: str, offset: int, size: int, etag: str | None) -> None:
        """Have the server append bytes of another object; see `shards.io.storage.uploads.Upload`."""
        self.flush()
        cast(Upload, self._file).copy(url, offset, size, etag)
        self.position, self.since_copy, self.has_copies = self.position + size, 0, True

    def _view(self) -> memoryview:
        return self._buffer.data.cast("B")

    def _advance(self, step: int) -> None:
        self._filled, self.position = self._filled + step, self.position + step
        self.since_copy += step
        if self._filled == _CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write and hash the buffer."""
        view = self._view()[: self._filled]
        self._hashed.append((self._hasher.submit(self.sha256.update, view), self._buffer))
        self.xxh3.update(view)
        self._file.write(view)
        self._unsynced += self._filled
        self._buffer, self._filled = self._next_buffer(), 0
        if self._unsynced >= _SYNC_BYTES and (self._synced is None or self._synced.done()):
            _wait(self._synced)
            self._synced, self._unsynced = self._syncer.submit(self._sync), 0

    def _next_buffer(self) -> Blocks:
        """A new one, or the one that was hashed first, after a wait where hashing has fallen far behind."""
        if len(self._hashed) < _BUFFERS:
            return np.empty_like(self._buffer)
        work, buffer = self._hashed.popleft()
        work.result()
        return buffer

    def finish(self) -> None:
        """Flush, and wait for hashes and disk; raises `OSError` where the disk failed."""
        self.flush()
        for work, _ in self._hashed:
            work.result()
        _wait(self._synced)


def _wait(work: Future[object] | None) -> None:
    if work is not None:
        work.result()


@contextmanager
def hashing_writer(file: BinaryIO | Upload, sync: Sync) -> Iterator[HashingWriter]:
    """A `HashingWriter` on ``file``, finished when the block ends.

    Args:
        file: unbuffered, or flushed at every write of a mebibyte; its owner fsyncs it.
        sync: brings what was written so far to the disk; it runs beside the writing.
    """
    with ThreadPoolExecutor(1) as hasher, ThreadPoolExecutor(1) as syncer:
        sink = HashingWriter(file, sync, hasher, syncer)
        yield sink
        sink.finish()
