"""Damage for tests: bytes of a file changed, cut, moved; values of a JSON text replaced."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from typing import Any

#: Damaged files of a kind, or tars of chance, that the suite reads; FUZZ=100000 asks for what it has no time for.
FUZZ = int(os.environ.get("FUZZ", "4000"))
#: What stands where something else is expected.
ODD: tuple[Any, ...] = (None, True, -1, 0, 2**70, 1e300, "", "x", "é\udc80", "../x", [], [None], {}, {"x": 1})


def damaged(whole: bytes, draw: random.Random) -> bytes:
    """``whole`` with one damage, in its end (where Parquet has its footer) as often as anywhere."""
    data = bytearray(whole)
    first = max(0, len(data) - draw.choice((len(data), 16, 400, 2500)))
    at = draw.randrange(first, len(data))
    size = draw.choice((1, 1, 2, 4, 16, 200))
    match draw.randrange(8):
        case 0 | 1:
            data[at] ^= 1 << draw.randrange(8)
        case 2:
            data[at] = draw.randrange(256)
        case 3:
            data[at : at + size] = draw.randbytes(min(size, len(data) - at))
        case 4:
            del data[at : at + size]
        case 5:
            data[at:at] = data[at : at + size]
        case 6:
            data[at : at + size] = bytes(min(size, len(data) - at))
        case 7:
            del data[at:]
    return bytes(data)


def odd_values(text: bytes) -> Iterator[bytes]:
    """A JSON text with each of its values, in turn, replaced by each of `ODD`, and with each field left out."""
    whole = json.loads(text)
    for path in _paths(whole):
        for value in ODD:
            yield _with(whole, path, value)
        if path:
            yield _with(whole, path, None, remove=True)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for place in list(value)[:40] if isinstance(value, dict) else range(min(3, len(value))):
            yield from _paths(value[place], (*path, place))


def _with(whole: Any, path: tuple[Any, ...], value: Any, remove: bool = False) -> bytes:
    root = [copy.deepcopy(whole)]
    holder, (*above, last) = root, (0, *path)
    for place in above:
        holder = holder[place]
    if remove:
        del holder[last]
    else:
        holder[last] = value
    return json.dumps(root[0]).encode()
