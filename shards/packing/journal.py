"""A folder that is filled in several attempts: what an earlier one finished is in its journal, and stays.

The journal is a line of JSON a step; a last line that a kill cut is none.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from shards.io.atomic import empty_folder, named_in_errors, partial_folder
from shards.io.json_files import parse_json

FILE_NAME = ".journal.jsonl"
#: Of what decides the bytes that are written besides the input: what another version has begun is begun anew.
VERSION = 1


class Journal:
    """What was done so far in a folder.

    Args:
        file: open for reading and appending, without a buffer, so that a line is there when `say` returns.
    """

    def __init__(self, file: FileIO) -> None:
        self._file, self._lines = file, _whole_lines(file)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """What an earlier attempt said under a name, in order."""
        return [line for line in self._lines if name in line]

    def say(self, line: dict[str, Any]) -> None:
        """Add a line.

        Raises:
            OSError: the disk is full.
        """
        data = json.dumps(line).encode() + b"\n"
        with named_in_errors(Path(os.fsdecode(self._file.name))):
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def void(self) -> None:
        """What was done is of no use to a later attempt: the error that comes now is of the input."""
        self.say({"void": True})


def _whole_lines(file: FileIO) -> list[dict[str, Any]]:
    """The lines up to the first that is none; the file ends there then."""
    file.seek(0)
    lines, end = [], 0
    for text in file.read().splitlines(keepends=True):
        try:
            line = parse_json(text) if text.endswith(b"\n") else None
        except ValueError:
            line = None
        if not isinstance(line, dict):
            break
        lines.append(line)
        end += len(text)
    file.truncate(end)
    file.seek(end)
    return lines


@contextmanager
def resumed_folder(path: Path, identity: str) -> Iterator[tuple[Path, Journal]]:
    """As `shards.io.atomic.atomic_folder`, for work that is long: a later attempt at the same goes on.

    The folder is ``.NAME.partial`` until it has its name. What it holds stays after a kill or Ctrl-C, and after an
    error once a step of kind ``written`` or ``fetched`` was done; an attempt at something else begins anew.

    Args:
        identity: of all that decides what is written.

    Raises:
        Busy: another process is filling it.
        OSError: ``path`` exists and is not an empty folder, disk full, no permission.
    """
    with partial_folder(path) as partial:
        place = partial / FILE_NAME
        if _identity(place) != identity:
            empty_folder(partial)
        try:
            with open(place, "a+b", buffering=0) as file:
                journal = Journal(file)
                if not journal.lines("identity"):
                    journal.say({"identity": identity})
                yield partial, journal
            place.unlink()
            os.replace(partial, path)
        except KeyboardInterrupt:
            raise
        except BaseException:
            if not _holds_work(place):
                shutil.rmtree(partial, ignore_errors=True)
            raise


def _identity(place: Path) -> object:
    """Of what a folder was begun for; None where that is not known."""
    if not place.is_file():
        return None
    with open(place, "r+b", buffering=0) as file:
        first = Journal(file).lines("identity")
    return first[0]["identity"] if first else None


def _holds_work(place: Path) -> bool:
    if not place.is_file():
        return False
    with open(place, "r+b", buffering=0) as file:
        journal = Journal(file)
    return not journal.lines("void") and bool(journal.lines("written") or journal.lines("fetched"))


def identity_of(files: Iterable[Path], *options: object) -> str:
    """sha256 of all that decides what is written: names, sizes and times of the files that are read, and options."""
    stamps = [[os.path.abspath(file), stamp(str(file))] for file in files]
    return hashlib.sha256(json.dumps([VERSION, stamps, options]).encode()).hexdigest()


def stamp(path: str) -> tuple[int, int] | None:
    """Size and time of a file; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # no name of a file
        return None
    return found.st_size, found.st_mtime_ns
