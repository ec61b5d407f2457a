"""How much there is to do, as an engine is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What an engine should know of the tasks of a map.

    Args:
        items: their number; 0 where nobody knows it.
        workers: processes of this machine that may work at them.
        cards: graphics cards that each keeps busy.
    """

    items: int
    workers: int = 1
    cards: int = 0
