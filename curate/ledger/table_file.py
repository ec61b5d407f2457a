"""The Parquet files of a run: the same bytes for the same table, written whole, with a footer of ours.

Owns the footer (one JSON object under the key ``curate``: format, version, and what the format adds) and the refusal of
what is unfinished or of a later version. Opening and checking are `shards.io.parquet`'. What the columns mean is the
business of `ledger` and `manifest`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.types import Ints, Stamp
from shards.errors import Unfinished, UnknownFormat
from shards.io import parquet
from shards.io.atomic import atomic_write

#: Rows to a group, so that a reader of a large store can skip and stream.
GROUP_ROWS = 1 << 20

_KEY = b"curate"
#: What to do about a damaged file; of a run nothing but its weights can be made again from the rest.
_TODO = "restore it, or make it again"
_TODO_OF_RUNS = "restore it from a copy, or run again in a new --out: the same seed gives the same bytes"
#: What the fields of a `Stamp` are in a footer.
_STAMP: dict[str, type | tuple[type, ...]] = {
    "run_id": str,
    "method": str,
    "epoch": int,
    "seed": int,
    "lam": (int, float),
    "rho": (int, float),
    "eta": (int, float, type(None)),
}


def write(path: Path, table: pa.Table, footer: dict[str, Any], dense: tuple[str, ...] = ()) -> str:
    """Publish ``table`` as ``path`` and return the sha256 of the file, in hex.

    ``dense`` names columns of numbers that neither repeat nor are looked for: they get no dictionary and no statistics.

    The bytes depend on the values, the schema and the footer alone, not on how the table lies in memory. Strings are
    dictionary-encoded on disk but typed as plain strings, which is what every reader takes. Pages carry checksums.

    Raises:
        OSError: disk full, no permission; no file is left then.
    """
    plain = table.schema.remove_metadata()
    schema = plain.with_metadata(metadata(footer))
    usual: Any = [name for name in plain.names if name not in dense] if dense else True
    options = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": usual, "write_statistics": usual}
    with atomic_write(path) as file, pq.ParquetWriter(file, schema, **options) as writer:
        for start in range(0, max(1, len(table)), GROUP_ROWS):
            group = table.slice(start, GROUP_ROWS).cast(plain).combine_chunks()
            writer.write_table(group.replace_schema_metadata(schema.metadata), row_group_size=GROUP_ROWS)
    with open(path, "rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def metadata(footer: dict[str, Any]) -> dict[bytes, bytes]:
    """A footer as the metadata of an Arrow schema."""
    return {_KEY: json.dumps(footer, allow_nan=False).encode()}


def footer_in(table: pa.Table) -> dict[str, Any]:
    """The footer in the metadata of a table's schema.

    Raises:
        KeyError: there is none.
    """
    footer: dict[str, Any] = json.loads(table.schema.metadata[_KEY])
    return footer


def read(path: Path, columns: list[str] | None = None, schema: pa.Schema | None = None) -> pa.Table:
    """All rows of one file; the column ``shard`` comes dictionary-encoded, as in the store's index.

    Args:
        columns: only these, which must be there; None for all.
        schema: what the columns that are read must be (`shards.io.parquet.schema_mismatch`); further ones pass.

    Raises:
        FileNotFoundError: there is no such file.
        Unfinished: it is cut, empty or damaged, or a column is missing or of another kind.
    """
    with _damage_reported(path):
        table = parquet.read_table(path, _TODO, columns, dictionary_columns=["shard"])
    wanted = [field for field in schema or () if columns is None or field.name in columns]
    if wrong := parquet.schema_mismatch(table, pa.schema(wanted)):
        raise Unfinished(f"{path}: {wrong}; {todo(path)}")
    return table


def read_groups(path: Path, columns: list[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of one file, a group of them at a time; arguments and errors as `read`, strings as they stand."""
    wanted = pa.schema([field for field in schema if field.name in columns])
    with _damage_reported(path):
        for group in parquet.read_groups(path, _TODO, columns=columns):
            if wrong := parquet.schema_mismatch(group, wanted):
                raise Unfinished(f"{path}: {wrong}; {todo(path)}")
            yield group


def count_rows(path: Path) -> int:
    """The number of rows of one file; raises as `read`."""
    with _damage_reported(path):
        return parquet.count_rows(path, _TODO)


def check_order(path: Path, rows: Ints, last: int = -1) -> None:
    """Raise `Unfinished` unless the rows of a file are numbers above ``last`` that rise."""
    if (np.diff(rows, prepend=last) <= 0).any():
        raise Unfinished(f"{path}: its rows do not rise from 0; {todo(path)}")


def footer_of(path: Path, form: str, version: int) -> dict[str, Any] | None:
    """What the file says of itself; None where it is not of this package's making.

    Args:
        form: the format that is expected, such as ``ledger``.
        version: the latest version of it that the caller reads.

    Raises:
        Unfinished: as `read`; or the footer is damaged.
        UnknownFormat: another format, or a later version.
    """
    with _damage_reported(path):
        footer = parquet.json_metadata(parquet.read_metadata(path, _TODO), _KEY, path, _TODO)
    if footer is None:
        return None
    if footer.get("format") != form:
        raise UnknownFormat(f"{path}: expected a {form}, found a {footer.get('format')}; name the right file")
    found = footer.get("version")
    if type(found) is not int or not 1 <= found <= version:
        raise UnknownFormat(
            f"{path}: {form} format version {found}, this release reads up to {version}; update curate-bdw"
        )
    return footer


def fields_of(footer: dict[str, Any], kinds: dict[str, type | tuple[type, ...]], path: Path) -> dict[str, Any]:
    """These fields of a footer, each of its type.

    Raises:
        Unfinished: one is missing or something else.
    """
    for name, kind in kinds.items():
        if isinstance(footer.get(name), bool) or name not in footer or not isinstance(footer[name], kind):
            raise Unfinished(f"{path}: its footer is damaged ({name} is {str(footer.get(name))[:40]!r}); {todo(path)}")
    return {name: footer[name] for name in kinds}


def stamp_in(footer: dict[str, Any], path: Path) -> Stamp:
    """The stamp that a footer holds; raises as `fields_of`."""
    return Stamp(**fields_of(footer, _STAMP, path))


def todo(path: Path) -> str:
    """What a person can do about a damaged file, which its place in a run tells.

    >>> todo(Path("run/weights.parquet"))
    'make it again with `curate ledger run --final`'
    """
    if path.stem.isdigit() and "-" in path.parent.name:  # a part a shard: features-KEY, hashes-KEY
        return f"remove {path}, and the same command makes it again"
    if path.name == "weights.parquet":
        return f"make it again with `curate ledger {path.parent} --final`"
    in_run = path.parent.name == "manifests" or path.parent.parent.name == "ledger"
    return _TODO_OF_RUNS if in_run else _TODO


@contextmanager
def _damage_reported(path: Path) -> Iterator[None]:
    try:
        yield
    except parquet.Damaged as cause:
        record = cause.found if cause.problem == "not a whole Parquet file" else cause.problem
        raise Unfinished(f"{path}: unfinished or damaged Parquet file ({record}); {todo(path)}") from cause
