"""Brace patterns such as ``{000..099}.tar``: their names are counted by arithmetic before `braceexpand` makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

import braceexpand
from braceexpand import alphabet

from shards.errors import Misuse

#: More names than any store has shards: a pattern that makes more is a slip.
MAX_SHARDS = 1_000_000
#: Braces in braces; each level is read once more.
MAX_DEPTH = 20

# As braceexpand has them.
_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?$")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?$")


def expand(pattern: str) -> Iterator[str]:
    """The names that a pattern makes.

    Raises:
        Misuse: its braces are not balanced, or it makes more than `MAX_SHARDS`.
    """
    if _depth(pattern) > MAX_DEPTH:
        raise Misuse(
            "malformed pattern (nested too deeply)", shard=f"{pattern:.80}", expected=f"at most {MAX_DEPTH} levels"
        )
    try:
        if count(pattern) > MAX_SHARDS:
            raise Misuse("the pattern names too many shards", shard=pattern, expected=f"at most {MAX_SHARDS}")
        yield from braceexpand.braceexpand(pattern)
    except ValueError as error:
        raise Misuse(f"malformed pattern ({error})", shard=pattern, todo="balance its braces") from error


def count(pattern: str) -> int:
    """How many names a pattern with balanced braces makes.

    >>> count("{a..c}/{00..09..3}-{x,y{1,2}}.tar")
    36
    """
    total, depth, start = 1, 0, 0
    for place, letter in _unescaped(pattern):
        if letter == "{":
            start = place + 1 if depth == 0 else start
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                total *= _alternatives(pattern[start:place])
    return total


def _depth(pattern: str) -> int:
    steps = ((letter == "{") - (letter == "}") for _, letter in _unescaped(pattern))
    return max(accumulate(steps), default=0)


def _alternatives(inside: str) -> int:
    """How many names there are for one pair of braces."""
    if numbers := _NUMBERS.match(inside):
        first, last, step = numbers.groups()
        return abs(int(last) - int(first)) // (int(step or 1) or 1) + 1
    if letters := _LETTERS.match(inside):
        first, last, step = letters.groups()
        return abs(alphabet.index(last) - alphabet.index(first)) // (int(step or 1) or 1) + 1
    parts = _parts(inside)
    return sum(count(part) for part in parts)


def _parts(inside: str) -> list[str]:
    """Split at the commas that stand in no braces of their own."""
    cuts, depth = [-1], 0
    for place, letter in _unescaped(inside):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            cuts.append(place)
    return [inside[first + 1 : last] for first, last in zip(cuts, [*cuts[1:], len(inside)])]


def _unescaped(text: str) -> Iterator[tuple[int, str]]:
    """Place and letter of what no backslash takes its meaning from."""
    place = 0
    while place < len(text):
        if text[place] == "\\":
            place += 2
            continue
        yield place, text[place]
        place += 1
