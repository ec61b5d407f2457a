"""Parquet as this package writes and opens it: the same bytes for the same table, published whole, with a footer.

Owns the footer (one JSON object under the key ``curate``: format, version, and what the format adds) and the refusal of
what is unfinished or of a later version. What the columns mean is the business of `ledger` and `manifest`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shards.errors import Unfinished, UnknownFormat
from shards.io.atomic import publishing
from shards.io.json_files import from_json

#: Rows to a group, so that a reader of a large store can skip and stream.
GROUP_ROWS = 1 << 20

_KEY = b"curate"


def write(path: Path, table: pa.Table, footer: dict[str, Any]) -> str:
    """Publish ``table`` as ``path`` and return the sha256 of the file, in hex.

    The bytes depend on the values, the schema and the footer alone, not on how the table lies in memory. Strings are
    dictionary-encoded on disk but typed as plain strings, which is what every reader takes. Pages carry checksums.

    Raises:
        OSError: disk full, no permission; no file is left then.
    """
    plain = table.cast(table.schema.remove_metadata()).combine_chunks()
    schema = plain.schema.with_metadata(metadata(footer))
    with (
        publishing(path) as file,
        pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        writer.write_table(plain.replace_schema_metadata(schema.metadata), row_group_size=GROUP_ROWS)
    with open(path, "rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def metadata(footer: dict[str, Any]) -> dict[bytes, bytes]:
    """A footer as the metadata of an Arrow schema."""
    return {_KEY: json.dumps(footer, allow_nan=False).encode()}


def read(path: Path, columns: list[str] | None = None) -> pa.Table:
    """All rows of one file; the column ``shard`` comes dictionary-encoded, as in the store's index.

    Raises:
        FileNotFoundError: there is no such file.
        Unfinished: it is cut, empty or damaged.
    """
    with _damage_reported(path):
        dictionaries = [name for name in pq.read_schema(path).names if name == "shard"]
        with pq.ParquetFile(path, read_dictionary=dictionaries, page_checksum_verification=True) as file:
            return file.read(columns)


def footer_in(metadata: dict[bytes, bytes] | None) -> dict[str, Any] | None:
    """The footer in the metadata of a file or of an Arrow schema; None where there is none of this package's making."""
    if not metadata or _KEY not in metadata:
        return None
    footer: dict[str, Any] = from_json(metadata[_KEY])
    return footer


def footer_of(path: Path, form: str, version: int) -> dict[str, Any] | None:
    """What the file says of itself; None where it is not of this package's making.

    Args:
        form: the format that is expected, such as ``ledger``.
        version: the latest version of it that the caller reads.

    Raises:
        Unfinished: as `read`.
        UnknownFormat: another format, or a later version.
    """
    with _damage_reported(path):
        footer = footer_in(pq.read_metadata(path).metadata)
    if footer is None:
        return None
    if footer.get("format") != form:
        raise UnknownFormat(f"{path}: expected a {form}, found a {footer.get('format')}; name the right file")
    if footer.get("version") not in range(1, version + 1):
        found = footer.get("version")
        raise UnknownFormat(
            f"{path}: {form} format version {found}, this release reads up to {version}; update curate-bdw"
        )
    return footer


@contextmanager
def _damage_reported(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError) as cause:
        detail = str(cause).splitlines()[0] if path.stat().st_size else "0 bytes"
        raise Unfinished(f"{path}: unfinished or damaged Parquet file ({detail}); write it again") from cause
