"""Where a new shard's bytes go: counted, hashed and written in one pass.

What is written is `copying`'s decision, and the file gets its name by `publish`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from .chains import Blocks
from .headers import BLOCK

Places = npt.NDArray[np.int64]

_CHUNK = 1 << 20


class Sink:
    """A file that is hashed while it is written; SHA-256 runs in a thread beside the writing."""

    def __init__(self, file: BinaryIO, thread: ThreadPoolExecutor) -> None:
        self.position, self.sha256, self.xxh3 = 0, hashlib.sha256(), xxhash.xxh3_64()
        #: What the copying notes for the new shard's index: a hash of its headers, and whether it holds a hard link.
        self.headers, self.borrows = xxhash.xxh3_64(), False
        self._file, self._thread = file, thread
        # One buffer is filled while the other is hashed.
        self._buffer, self._spare = (np.empty((_CHUNK // BLOCK, BLOCK), np.uint8) for _ in range(2))
        self._filled = 0
        self._hashed: Future[None] | None = None

    def put(self, data: bytes) -> None:
        """Append bytes."""
        done = 0
        while done < len(data):
            step = min(len(data) - done, _CHUNK - self._filled)
            self._view()[self._filled : self._filled + step] = data[done : done + step]
            self._advance(step)
            done += step

    def gather(self, blocks: Blocks, numbers: Places) -> None:
        """Append blocks by their numbers; what was put before must end at the end of a block."""
        done = 0
        while done < len(numbers):
            place = self._filled // BLOCK
            step = min(len(numbers) - done, len(self._buffer) - place)
            # "clip" (the numbers are in range) lets numpy write to the buffer itself.
            np.take(blocks, numbers[done : done + step], 0, self._buffer[place : place + step], "clip")
            self._advance(step * BLOCK)
            done += step

    def _view(self) -> memoryview:
        return self._buffer.data.cast("B")

    def _advance(self, step: int) -> None:
        self._filled, self.position = self._filled + step, self.position + step
        if self._filled == _CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        view = self._view()[: self._filled]
        self.wait()
        self._hashed = self._thread.submit(self.sha256.update, view)
        self.xxh3.update(view)
        self._file.write(view)
        self._buffer, self._spare, self._filled = self._spare, self._buffer, 0

    def wait(self) -> None:
        """Wait until everything written is hashed."""
        if self._hashed is not None:
            self._hashed.result()
            self._hashed = None


@contextmanager
def hashing(file: BinaryIO) -> Iterator[Sink]:
    """Hash and count what is put into ``file``; all of it is written and hashed when the block ends."""
    with ThreadPoolExecutor(1) as thread:
        sink = Sink(file, thread)
        yield sink
        sink.flush()
        sink.wait()
