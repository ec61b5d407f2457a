"""What there is to pack where a table names it: a CSV, JSON lines or Parquet file of paths and URLs.

A row's other columns go along with the image, as those of a table of captions do.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from shards.errors import Misuse, ShardError
from shards.io import remote
from shards.packing import tables
from shards.packing.captions import members_of
from shards.packing.entry import Entry
from shards.packing.keys import keys_of
from shards.packing.listing import Listing, is_image

_TODO = "write a column file, of paths relative to the table or URLs"
#: What URLs may begin with: servers, this machine's own files, and stores of objects.
SCHEMES = ("http", "https", "file", "s3", "gs", "gcs", "az", "abfs")
_KNOWN = f"a path, or {'://, '.join(SCHEMES)}://"


def list_table(source: Path) -> Listing:
    """The images that a table names, in its order; a path is relative to the table's folder.

    A key is the path or URL without scheme, query, suffix and ``..``. An image whose name has no suffix of one is
    called ``.image``; what it is, its bytes say.

    Raises:
        Misuse: there is no such file, or a row names a command.
        ShardError: it cannot be read, has no column of paths, or a row without one.
    """
    rows = tables.read_rows(source, "table of images", _TODO)
    column = tables.column_in(rows, tables.FILE_COLUMNS)
    if column is None:
        found = ", ".join(rows[0]) if rows else "no row"
        raise ShardError("no table of images", shard=str(source), expected="file", found=found, todo=_TODO)
    empty = next((number for number, row in enumerate(rows, 1) if not row.get(column)), None)
    if empty is not None:
        raise ShardError(f"row {empty} names no image", shard=str(source), todo="fill it in, or leave the row out")
    files = [str(row[column]) for row in rows]
    for file in files:
        _check(file, source)
    named = [_below(file) for file in files]
    entries = (
        Entry(file, key, os.path.splitext(name)[1], (), members_of(row, column))
        for file, key, name, row in zip(files, keys_of(named), named, rows, strict=True)
    )
    return Listing(source.parent, tuple(entries))


def _check(file: str, source: Path) -> None:
    """Raise `Misuse` for a command, and for a URL that would not be read."""
    if remote.is_pipe(file):
        raise Misuse("a table of images names a command", shard=str(source), found=ascii(file)[:80])
    if remote.is_url(file) and file.partition("://")[0].lower() not in SCHEMES:
        found, todo = ascii(file)[:80], "fetch these images first, and name the files"
        raise Misuse("a URL of this kind is not read", shard=str(source), expected=_KNOWN, found=found, todo=todo)
    remote.check_url(file)


def _below(file: str) -> str:
    """A path or URL as the path of an image file below a root.

    >>> _below("https://example.org/a/b.JPG?w=3"), _below("../x/./y.png"), _below("s3://bucket/page")
    ('example.org/a/b.JPG', 'x/y.png', 'bucket/page.image')
    """
    path = re.split("[?#]", file.split("://", 1)[1])[0] if remote.is_url(file) else file
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    name = "/".join(parts) or "image"
    return name if is_image(name) else f"{name}.image"
