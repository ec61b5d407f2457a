"""`--share`: which images learn from one another's visits, as it is written on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from curate.errors import Misuse

KINDS = ("clusters", "neighbours")
EXPECTED = "none, clusters:K or neighbours:N"
#: The fewest and the most of each: one cluster has no look-alikes, of neighbours n times as many places are held.
RANGES = {"clusters": (2, 65536), "neighbours": (1, 256)}


@dataclass(frozen=True)
class Share:
    """Look-alikes: ``count`` clusters, or the ``count`` nearest of each image."""

    kind: str
    count: int


def parse_share(text: str) -> Share | None:
    """``none``, ``clusters:K`` or ``neighbours:N``.

    Raises:
        Misuse: something else, or a count out of its range.

    >>> parse_share("clusters:64"), parse_share("none")
    (Share(kind='clusters', count=64), None)
    """
    if text == "none":
        return None
    kind, _, number = text.partition(":")
    if kind not in KINDS or not (number.isascii() and number.isdecimal()):
        raise Misuse(f"--share {text}: expected {EXPECTED}")
    low, high = RANGES[kind]
    if len(number) > 9 or not low <= int(number) <= high:
        raise Misuse(f"--share {text}: {kind} must be in {low}..{high}")
    return Share(kind, int(number))
