"""Reads and decodes every image before it is packed, in several processes, and fetches those that are URLs.

An image is packed as its bytes stand, so this is all the work there is; writing is as fast as copying.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from shards.errors import ShardError
from shards.faults import Fault
from shards.indexing.content import image_fault
from shards.io import remote
from shards.io.atomic import atomic_write_unsynced, sync_folder
from shards.io.parallel import map_shards
from shards.io.regular_files import read_regular
from shards.packing.entry import Entry
from shards.packing.journal import Journal

#: Images of one task: some seconds of large photographs.
IMAGES = 128
#: Connections at a time of a task, tries of each image, and its bytes at most.
CONNECTIONS, TRIES, MAX_BYTES = 16, 3, 1 << 30
#: Folder of fetched images in the folder that is being packed.
FETCHED = ".fetched"
#: The kind of fault of an image that cannot be had.
MISSING = "missing-image"


@dataclass(frozen=True)
class Places:
    """Where files lie.

    Args:
        root: of paths that are relative.
        fetched: folder of images that are URLs.
    """

    root: str
    fetched: str

    def of(self, entry: Entry) -> str:
        """Of an image: in its folder, or where it is fetched to."""
        if remote.is_url(entry.file):
            return os.path.join(self.fetched, sha256(entry.key.encode("utf-8", "surrogateescape")).hexdigest())
        return self.beside(entry.file)

    def beside(self, file: str) -> str:
        """Of a side file."""
        return os.path.join(self.root, file)


@dataclass(frozen=True)
class Check:
    """The task of one process: fetch and decode a few images; their faults, and those of their side files."""

    places: Places

    def __call__(self, entries: Sequence[Entry]) -> list[Fault]:
        failed: dict[str, str | None] = {}
        if remotes := [entry for entry in entries if remote.is_url(entry.file)]:
            with ThreadPoolExecutor(CONNECTIONS) as threads:
                failed = dict(zip((entry.key for entry in remotes), threads.map(self._fetch, remotes)))
            if os.path.isdir(self.places.fetched):
                sync_folder(Path(self.places.fetched))  # before the journal says that they are there
        return [fault for entry in entries for fault in self._faults(entry, failed.get(entry.key))]

    def _fetch(self, entry: Entry) -> str | None:
        """Fetch an image to its place; what went wrong, else None."""
        place = self.places.of(entry)
        if os.path.exists(place):
            return None
        data = _download(entry.file)
        if isinstance(data, str):
            return data
        with atomic_write_unsynced(Path(place)) as file:
            file.write(data)
        return None

    def _faults(self, entry: Entry, failed: str | None) -> Iterator[Fault]:
        data = failed or _read(self.places.of(entry))
        if not isinstance(data, bytes):
            yield Fault(MISSING, entry.file, None, None, f"{entry.file}: {data}")
        elif (wrong := image_fault(data)) is not None:
            yield Fault(wrong[0], entry.file, None, None, f"{entry.file}: {wrong[1]}")
        for _, side in entry.sides:
            said = _read(self.places.beside(side))
            if not isinstance(said, bytes):
                yield Fault("bad-sidecar", side, None, None, f"{side}: {said}")


def _download(url: str) -> bytes | str:
    """The bytes of a URL, or why there are none; what a server does not refuse is tried again."""
    problem = ""
    for _ in range(TRIES):
        try:
            with remote.open_url(url) as stream:
                data = stream.read(MAX_BYTES + 1)
            return data if len(data) <= MAX_BYTES else f"more than {MAX_BYTES:,} bytes"
        except ShardError as error:
            problem = error.problem
        if "HTTP Error 4" in problem:
            break
    return problem


def _read(place: str) -> bytes | str:
    """The bytes of a file, or why it cannot be read."""
    try:
        return read_regular(place)
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def checked(
    entries: Sequence[Entry], places: Places, journal: Journal, workers: int, strict: bool
) -> Iterator[tuple[Sequence[Entry], list[Fault]]]:
    """Parts of the entries in their order, each with its faults; those in the journal are not read again."""
    known = [[Fault(**fault) for fault in line["faults"]] for line in journal.lines("faults")]
    parts = [entries[first : first + IMAGES] for first in range(0, len(entries), IMAGES)]
    yield from zip(parts, known)
    rest = parts[len(known) :]
    for part, faults in zip(rest, map_shards(Check(places), rest, workers)):
        if n_fetched := sum(remote.is_url(entry.file) for entry in part):
            journal.say({"fetched": n_fetched})
        if strict:
            _refuse_missing(faults, len(part))
        journal.say({"faults": [fault.record() for fault in faults]})
        yield part, faults


def _refuse_missing(faults: Sequence[Fault], count: int) -> None:
    missing = [fault for fault in faults if fault.kind == MISSING]
    if missing:
        raise ShardError(
            f"{len(missing)} of {count} images that were looked at cannot be had, the first: {missing[0].detail}",
            todo="the same command tries again; --allow-missing goes on without them",
        )


def readable(
    entries: Sequence[Entry], places: Places, journal: Journal, workers: int, faults: list[Fault], *, strict: bool
) -> Iterator[Entry]:
    """The entries whose image decodes, without side files that cannot be read; what is left out goes to ``faults``.

    Args:
        journal: of the folder that is being packed.
        workers: processes that decode.
        strict: an image that cannot be had at all is an error.

    Raises:
        ShardError: of ``strict``; what was fetched stays for the next attempt.
    """
    for part, found in checked(entries, places, journal, workers, strict):
        faults += found
        bad = {fault.shard for fault in found}
        for entry in part:
            if entry.file in bad:
                continue
            sides = tuple(side for side in entry.sides if side[1] not in bad)
            yield entry if sides == entry.sides else replace(entry, sides=sides)
