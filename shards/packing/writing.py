"""Writes shards of entries, from where an earlier attempt at the same stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from shards.io import remote
from shards.io.regular_files import read_regular
from shards.packing.checks import Places
from shards.packing.entry import Entry
from shards.packing.journal import Journal
from shards.packing.names import Name
from shards.tar.writer import Sample, written_shards

#: What becomes of an entry: its sample, whose first member is the image.
SampleOf = Callable[[Entry], Sample]


def write_entries(
    folder: Path,
    place: str,
    entries: Iterator[Entry],
    sample_of: SampleOf,
    shard_size: int,
    journal: Journal,
    forget: Callable[[Entry], None] = lambda entry: None,
) -> list[Name]:
    """Write the shards that the journal does not have; the names of all samples, in order.

    Args:
        folder: is being packed.
        place: of the shards in it, with a ``/`` at its end; empty for the folder itself.
        entries: in the order of the samples.
        forget: called with each whose shard is whole.
    """
    names: list[Name] = []
    before = [line for line in journal.lines("written") if line["written"].rpartition("/")[0] == place[:-1]]
    for line in before:
        done = zip(islice(entries, len(line["bytes"])), line["bytes"])
        names += [Name(line["written"], entry.key, entry.file, size) for entry, size in done]
    drawn: list[tuple[Entry, int]] = []

    def samples() -> Iterator[Sample]:
        for entry in entries:
            sample = sample_of(entry)
            drawn.append((entry, len(sample[0][1])))
            yield sample

    for path, count in written_shards(folder / place, samples(), shard_size=shard_size, first_number=len(before)):
        shard, whole = place + path.name, drawn[:count]
        journal.say({"written": shard, "bytes": [size for _, size in whole]})
        names += [Name(shard, entry.key, entry.file, size) for entry, size in whole]
        for entry, _ in whole:
            forget(entry)
        del drawn[:count]
    return names


def sampler(places: Places, label: Callable[[Entry], int] | None = None) -> SampleOf:
    """What makes the sample of an entry: image, label where there is one, side files, and what a table tells."""

    def sample_of(entry: Entry) -> Sample:
        members = [(entry.key + entry.suffix, read_regular(places.of(entry)))]
        sides = [(suffix, read_regular(places.beside(file))) for suffix, file in entry.sides]
        if label is not None:
            members.append((f"{entry.key}.cls", b"%d" % label(entry)))
            sides = [side for side in sides if side[0].lower() != ".cls"]
        return [*members, *((entry.key + suffix, body) for suffix, body in (*sides, *entry.told))]

    return sample_of


def forgetting(places: Places) -> Callable[[Entry], None]:
    """What removes an image that was fetched."""

    def forget(entry: Entry) -> None:
        if remote.is_url(entry.file):
            with suppress(FileNotFoundError):
                os.unlink(places.of(entry))

    return forget
