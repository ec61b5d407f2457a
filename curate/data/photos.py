"""Image files as they lie: a target that is only looked at needs no packing.

Owns which files of a folder or a list are meant. A file's name is its key; it has no shard and no label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from curate.errors import CurateError
from shards.errors import NotShards
from shards.io import remote, shard_set
from shards.io.folders import PassedOver
from shards.member_names import IMAGE_SUFFIXES
from shards.packing.imagefolder import image_files


@dataclass(frozen=True)
class Photos:
    """Image files of one folder.

    Args:
        root: the folder.
        paths: below it, with ``/``, sorted.
        passed_over: what else is in the folder.
    """

    root: Path
    paths: tuple[str, ...]
    passed_over: PassedOver = field(default_factory=PassedOver)

    def __len__(self) -> int:
        return len(self.paths)

    def bodies(self) -> Iterator[bytes]:
        """The encoded bytes of each image file, in the order of ``paths``.

        Raises:
            CurateError: one is gone, or may not be read.
        """
        for path in self.paths:
            try:
                yield (self.root / path).read_bytes()
            except OSError as error:
                raise CurateError(f"{self.root / path}: cannot be read ({error.strerror})") from error

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of names and contents: the same wherever the folder lies."""
        digest = hashlib.sha256(b"photos")
        for path, body in zip(self.paths, self.bodies()):
            digest.update(path.encode("utf-8", "surrogateescape") + b"\0" + hashlib.sha256(body).digest())
        return digest.hexdigest()


def of_folder(folder: Path) -> Photos:
    """The image files in a folder and below it; perhaps none."""
    paths, passed_over = image_files(folder)
    return Photos(folder, tuple(paths), passed_over)


def of_list(path: Path) -> Photos | None:
    """The image files that a text file names, one a line, relative to its folder; None where it names something else.

    Raises:
        CurateError: some of the lines are image files and some are not, or one is not there.
    """
    try:
        with open(path, "rb") as file:
            if b"\0" in file.read(4096):  # a tar, or an image
                return None
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    images = [line for line in lines if Path(line).suffix[1:].lower() in IMAGE_SUFFIXES]
    if not images:
        return None
    wrong = [line for line in lines if line not in set(images)] or [
        line for line in images if not (path.parent / line).is_file()
    ]
    if wrong:
        raise CurateError(f"{path}: {len(wrong)} of {len(lines)} lines name no image file, such as {wrong[0][:100]!r}")
    return Photos(path.parent, tuple(sorted(set(images))))


def photos_at(place: str) -> Photos | None:
    """The image files that a folder without shards holds, or a list names; None for anything else.

    Raises:
        CurateError: as `of_list`.
    """
    if remote.is_url(place):
        return None
    if not Path(place).is_dir():
        return of_list(Path(place))
    try:
        shard_set.resolve(place)
    except NotShards:
        found = of_folder(Path(place))
        return found if len(found) else None
    return None
