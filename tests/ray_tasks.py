"""Tasks that the tests of the Ray engine hand out: in a module of their own, which the cluster's processes import."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from shards.errors import Busy, NotShards
from shards.io.mapped import open_mapped


def squared(item: int) -> int:
    return item * item


def where(item: int) -> tuple[int, str, int]:
    """The item, the working directory and the process that had it."""
    return item, os.getcwd(), os.getpid()


def heavy(item: int) -> bytes:
    """So large that it stays where it was made until it is asked for."""
    time.sleep(0.05)
    return bytes([item % 256]) * (1 << 20)


def unhappy(item: int) -> int:
    """Refuses 5 and all that come later, these sooner."""
    if item < 5:
        return item
    time.sleep(0.3 if item == 5 else 0)
    raise NotShards("is no tar", shard=f"{item}.tar", expected="a tar", found="a zip", todo="fetch it again")


def mistaken(item: int) -> int:
    return 1 // item


class Stubborn(Exception):
    """Holds what cannot be pickled."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{number} and a lock")
        self.lock = threading.Lock()


def stubborn(item: int) -> int:
    raise Stubborn(item)


def deadly(item: int) -> int:
    if item == 1:
        os.kill(os.getpid(), 9)
    return item


def shrunk(path: str) -> int:
    """Reads a shard that is cut meanwhile, at each try."""
    Path(path).write_bytes(bytes(1 << 16))
    with open_mapped(path) as source:
        open(path, "wb").close()
        return source.buffer[-1]


def held_up(folder: Path, item: int) -> int:
    """Busy the first time, as where a lost task still writes."""
    mark = folder / str(item)
    if not mark.exists():
        mark.touch()
        raise Busy("another process is writing this", shard=str(mark))
    return item


def killed_once(folder: Path, item: int) -> int:
    """Its process dies in the midst of the first try."""
    mark = folder / str(item)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    return item


def noted(folder: Path, item: int) -> int:
    """Leaves a file when it begins and another when it has ended."""
    (folder / f"{item}.begun").touch()
    time.sleep(0.2)
    (folder / f"{item}.ended").touch()
    if item == 0:
        raise ValueError(item)
    return item
