"""What can go wrong with a run; the root of the tree, and the errors of requests and shards: `shards.errors`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from shards.errors import Error, Misuse

__all__ = [
    "CurateError",
    "Error",
    "LostRank",
    "Misuse",
    "NonFinite",
    "NothingLeft",
    "RunMismatch",
    "differences",
    "is_want_of_memory",
    "nearest",
]


class CurateError(Error):
    """Something is wrong with a run, its configuration, or what it reads."""


class RunMismatch(CurateError):
    """A run folder belongs to another configuration or another store."""


class NonFinite(CurateError):
    """The training loss is no longer a number."""


class NothingLeft(CurateError):
    """Pruning would leave less than one batch."""


class LostRank(CurateError):
    """One of the processes that train together has ended before the work was done."""


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is otherwise now than it was, in words; a name that was not there was None.

    >>> differences({"seed": 0, "epochs": 5}, {"seed": 1, "epochs": 5})
    ['seed was 0, is 1']
    """
    return [f"{name} was {before.get(name)}, is {value}" for name, value in now.items() if before.get(name) != value]


def nearest(name: str, known: Iterable[str]) -> str:
    """What to add to the message about an unknown name: the known one that it may be a slip of; else nothing.

    >>> nearest("epoks", ["epochs", "batch"])
    ' (did you mean epochs?)'
    """
    found = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def is_want_of_memory(error: Exception) -> bool:
    """Whether it is Python's own error, or torch's on the CPU, which has no type of its own."""
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)
