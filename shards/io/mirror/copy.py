"""Where a local copy lies, and the record of what is the same here and there; which URL a path in it stands for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from shards.io.json_files import said_in, write_json
from shards.io.locks import locked

#: The environment's word for where copies are kept, and what a copy's folder holds besides it.
PLACE, RECORD = "CURATE_MIRROR", "mirror.json"
FORMAT, VERSION = "mirror", 1
_HOME = 32


@dataclass(frozen=True)
class Held:
    """A local file that is as its object is.

    Args:
        etag: of the object; None where it was not asked for since the file was sent.
        size, mtime_ns: of the file.
        hole: the file only stands for the object: it has its size, and no content.
    """

    etag: str | None
    size: int
    mtime_ns: int
    hole: bool = False

    def is_same(self, other: Held | None) -> bool:
        """Whether the file was not written since."""
        return other is not None and (self.size, self.mtime_ns) == (other.size, other.mtime_ns)


@dataclass
class Copy:
    """The copy of a folder, or of a single file.

    Args:
        url: without a slash at its end.
        home: holds the copy, under the URL's last name, and the record of it.
        objects: what is the same here and there, by path below the copy; a single file under the empty path.
        owner: the word of our claim on the URL; None where we have none.
        ahead: while that claim is ours, the copy counts, and not the objects.
    """

    url: str
    home: Path
    objects: dict[str, Held]
    owner: str | None = None
    ahead: bool = False

    @property
    def path(self) -> Path:
        """The local folder or file."""
        return self.home / self.url.rpartition("/")[2]

    def object(self, name: str) -> str:
        """The URL of an object."""
        return f"{self.url}/{name}" if name else self.url

    def save(self) -> None:
        """Write the record."""
        objects = {name: list(asdict(held).values()) for name, held in self.objects.items()}
        said = {"url": self.url, "owner": self.owner, "ahead": self.ahead, "objects": objects}
        write_json(self.home / RECORD, {"format": FORMAT, "version": VERSION, **said})


def root() -> Path:
    """The folder of all copies: ``$CURATE_MIRROR``, else one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.path.abspath(os.environ.get(PLACE) or cache / "curate" / "mirror"))


def copy_of(url: str) -> Copy:
    """The copy of a URL, as it was last recorded."""
    home = root() / sha256(url.encode()).hexdigest()[:_HOME]
    said = _record(home) or {}
    objects = {name: Held(*held) for name, held in said.get("objects", {}).items()}
    return Copy(url, home, objects, said.get("owner"), said.get("ahead", False))


@contextmanager
def opened(url: str) -> Iterator[Copy]:
    """The copy of a URL, locked.

    Raises:
        Busy: another process has it.
    """
    root().mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(copy_of(url).home):
        yield copy_of(url)


def forget(url: str) -> None:
    """Remove the copy of a URL, if there is one.

    Raises:
        Busy: another process has it.
    """
    home = copy_of(url.rstrip("/")).home
    if home.exists():
        with locked(home):
            shutil.rmtree(home)


def url_of(path: Path) -> str | None:
    """The URL that a path in a copy stands for; None for any other path."""
    place = Path(os.path.abspath(path))
    home = next((folder for folder in place.parents if folder.parent == root()), None)
    said = None if home is None else _record(home)
    return "/".join([said["url"], *place.relative_to(home).parts[1:]]) if said and home else None


def in_urls(text: str) -> str:
    """A text for people, with its URL in place of a copy's path."""
    first, *parts = text.split(f"{root()}{os.sep}")
    for part in parts:
        said = _record(root() / part[:_HOME]) or {"url": part[:_HOME]}
        first += said["url"] + part[_HOME:].removeprefix(os.sep + said["url"].rpartition("/")[2])
    return first


def files_in(copy: Copy, below: Path) -> dict[str, Held]:
    """What a copy has in or below a folder of it, by path below the copy; what is not finished is left out."""
    if copy.path.is_file():
        return {"": stat_of(copy.path)}
    found = {}
    for place, folders, files in os.walk(below):
        folders[:] = [name for name in folders if not _is_partial(name)]
        for name in files:
            if not _is_partial(name):
                path = Path(place, name)
                found[path.relative_to(copy.path).as_posix()] = stat_of(path)
    return found


def stat_of(path: Path, etag: str | None = None, hole: bool = False) -> Held:
    """What a file is now."""
    status = path.stat()
    return Held(etag, status.st_size, status.st_mtime_ns, hole)


def is_left_out(name: str, without: tuple[str, ...]) -> bool:
    """Whether one of some patterns names a file."""
    return any(PurePosixPath(name).match(pattern) for pattern in without)


def _is_partial(name: str) -> bool:
    return name.startswith(".") and name.endswith(".partial")


def _record(home: Path) -> dict[str, Any] | None:
    """What is recorded of a copy; None where nothing is, or by another release."""
    said = said_in(home / RECORD) if (home / RECORD).is_file() else None
    return said if isinstance(said, dict) and said.get("version") == VERSION else None
