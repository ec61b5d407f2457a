"""What a table in a folder says of the images there, as Hugging Face's image folders have it.

``metadata.csv``, ``metadata.jsonl`` or ``metadata.parquet`` has a column ``file_name``, relative to its own folder. The
other columns of a row become the sample's ``.json``, and its ``text`` or ``caption`` the ``.txt``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from posixpath import join, normpath
from typing import Any

from shards.member_names import storable
from shards.packing import tables

FILE_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
#: The column of the image's path, and those that are a caption, the first one found.
PATH, CAPTIONS = "file_name", ("text", "caption")

#: Suffix and body of each member that a row becomes.
Members = tuple[tuple[str, bytes], ...]


def is_captions(path: str) -> bool:
    """Whether a file may be such a table, by its name."""
    return path.rpartition("/")[2].lower() in FILE_NAMES


def captions_of(
    root: Path, found: Sequence[str], images: Collection[str]
) -> tuple[dict[str, Members], set[str], tuple[str, ...]]:
    """The members that tables give to images; the tables that were read; and notes on rows of no image.

    Of two tables that name an image, the one nearer to it counts.

    Args:
        root: the folder.
        found: files that are tables by their names, relative to it; one without the column of paths is none.
        images: all images, relative to the root.

    Raises:
        ShardError: one cannot be read.
    """
    told: dict[str, Members] = {}
    used: set[str] = set()
    notes: list[str] = []
    for path in sorted(found, key=lambda path: path.count("/")):
        rows = tables.read_rows(root / path)
        if not rows or PATH not in rows[0]:
            continue
        used.add(path)
        folder = path.rpartition("/")[0]
        named = {normpath(join(folder, str(row.get(PATH)))): row for row in rows}
        told |= {file: members_of(row, PATH) for file, row in named.items() if file in images}
        if gone := sorted(set(named) - set(images)):
            first = storable(gone[0])
            notes.append(f"{len(gone):,} of {len(named):,} rows of {path} name no image that is there, such as {first}")
    return told, used, tuple(notes)


def members_of(row: Mapping[str, Any], place: str) -> Members:
    """The ``.json`` and the ``.txt`` of a row; neither where it says nothing. What is no number (NaN) is nothing said.

    Args:
        place: the column that says where the image is, and nothing of it.

    >>> members_of({"file_name": "1.jpg", "text": "a cat", "width": None}, "file_name")
    (('.json', b'{"text": "a cat"}'), ('.txt', b'a cat'))
    """
    said = {name: value for name, value in row.items() if name != place and value is not None and value == value}
    text = next((said[name] for name in CAPTIONS if isinstance(said.get(name), str)), None)
    whole = ((".json", json.dumps(said, ensure_ascii=False, default=str).encode("utf-8", "replace")),) if said else ()
    return (*whole, *(((".txt", text.encode("utf-8", "replace")),) if text is not None else ()))
