"""Samples that are made, in several processes, and written from where an earlier attempt stopped.

`shards.packing.writing` does the same for files that are packed as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from shards.io.parallel import map_shards
from shards.packing.journal import Journal
from shards.tar.writer import Sample, written_shards

#: Images of one task.
PART = 128

Part = TypeVar("Part")


class Made(NamedTuple):
    """What became of an image.

    Args:
        sample: None where it is left out.
        said: what there is to tell of it, in JSON's values; empty where there is nothing.
    """

    sample: Sample | None
    said: dict[str, Any]


class Said(NamedTuple):
    """What was said of an image, and its number."""

    number: int
    what: dict[str, Any]


@dataclass(frozen=True)
class Maker(Generic[Part]):
    """How the samples of a shard set are made.

    Args:
        count: images, which have the numbers from 0 on.
        load: what is needed to make those of some numbers; called in this process, in order.
        make: one `Made` for each of them; a module-level function, so that it can be pickled.
    """

    count: int
    load: Callable[[range], Part]
    make: Callable[[Part], Sequence[Made]]


def write_made(
    folder: Path, place: str, maker: Maker[Any], shard_size: int, journal: Journal, workers: int
) -> list[Said]:
    """Write the shards that the journal does not have; returns what was said of all images, in their order.

    Args:
        folder: is being packed.
        place: of the shards in it, with a ``/`` at its end.
        workers: processes that make samples; the bytes do not depend on their number.
    """
    before = [line for line in journal.lines("written") if line["written"].rpartition("/")[0] == place[:-1]]
    said = [Said(*one) for line in before for one in line["said"]]
    ends: deque[int] = deque()

    def samples() -> Iterator[Sample]:
        for number, made in _made(maker, before[-1]["numbers"] if before else 0, workers):
            if made.said:
                said.append(Said(number, made.said))
            if made.sample is not None:
                ends.append(number + 1)
                yield made.sample

    n_told = len(said)
    for path, count in written_shards(folder / place, samples(), shard_size=shard_size, first_number=len(before)):
        end = [ends.popleft() for _ in range(count)][-1]
        new = [one for one in said[n_told:] if one.number < end]
        journal.say({"written": place + path.name, "numbers": end, "said": new})
        n_told += len(new)
    return said


def _made(maker: Maker[Any], start: int, workers: int) -> Iterator[tuple[int, Made]]:
    """Number and result of each image from ``start`` on."""
    firsts = range(start - start % PART, maker.count, PART)
    parts = (maker.load(range(first, min(first + PART, maker.count))) for first in firsts)
    made = chain.from_iterable(map_shards(maker.make, parts, workers, len(firsts)))
    return islice(enumerate(made, firsts.start), start - firsts.start, None)
