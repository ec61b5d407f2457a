"""Reads Parquet files with their page checksums and column types verified; damage becomes one error.

Every Parquet file is read through here. What a table means is its caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shards.errors import ShardError
from shards.io.json_files import parse_json
from shards.io.regular_files import check_regular


class Damaged(ShardError):
    """A Parquet file is truncated, empty or damaged; ``found`` says how that shows."""


def read_table(
    path: Path,
    todo: str,
    columns: list[str] | None = None,
    *,
    what: str = "Parquet file",
    dictionary_columns: Sequence[str] = (),
) -> pa.Table:
    """All rows of one file; the schema keeps the footer's metadata.

    Args:
        todo: advice at the end of the message where the file is damaged.
        columns: read only these, which must exist; None for all.
        what: what the file should be, for the message.
        dictionary_columns: columns to read dictionary-endictionary_columns where they exist.

    Raises:
        FileNotFoundError, PermissionError: there is no such file, or it may not be read.
        OSError: it is no regular file.
        Damaged: it is truncated, empty or damaged, or lacks a column.
    """
    check_regular(path)
    with _damage_as_error(path, todo, what):
        held = pq.read_schema(path).names
        _refuse_missing(path, held, columns, todo)
        options = {"partitioning": None, "page_checksum_verification": True}
        table = pq.read_table(
            path, columns=columns, read_dictionary=[name for name in dictionary_columns if name in held], **options
        )
        table.validate(full=True)  # text that is no UTF-8, places that no dictionary has
    return table


def _refuse_missing(path: Path, held: list[str], columns: list[str] | None, todo: str) -> None:
    missing = [name for name in columns or () if name not in held]
    if missing:
        found = ", ".join(held) or "no column"
        raise Damaged(f"no column {missing[0]}", shard=str(path), found=found, todo=todo)


def read_groups(
    path: Path, todo: str, what: str = "Parquet file", columns: list[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of one file, a group of them at a time, however many there are; arguments and errors as `read_table`."""
    check_regular(path)
    with _damage_as_error(path, todo, what), pq.ParquetFile(path, page_checksum_verification=True) as file:
        _refuse_missing(path, file.schema_arrow.names, columns, todo)
        for number in range(file.num_row_groups):
            group = file.read_row_group(number, columns)
            group.validate(full=True)
            yield group


def count_rows(path: Path, todo: str) -> int:
    """The number of rows of a file; raises as `read_table`."""
    check_regular(path)
    with _damage_as_error(path, todo):
        return int(pq.read_metadata(path).num_rows)


def read_metadata(path: Path, todo: str) -> dict[bytes, bytes]:
    """The key-value metadata in a file's footer; raises as `read_table`."""
    check_regular(path)
    with _damage_as_error(path, todo):
        return dict(pq.read_metadata(path).metadata or {})


def json_metadata(read_metadata: dict[bytes, bytes] | None, key: bytes, path: Path, todo: str) -> dict[str, Any] | None:
    """The JSON object under a key of a file's metadata; None where the key is missing.

    Raises:
        Damaged: it is no JSON object.
    """
    if key not in (read_metadata or {}):
        return None
    try:
        value = parse_json((read_metadata or {})[key])
    except ValueError as error:
        raise Damaged("its footer cannot be read", shard=str(path), found=str(error)[:80], todo=todo) from error
    if not isinstance(value, dict):
        found = type(value).__name__
        raise Damaged("its footer cannot be read", shard=str(path), expected="an object", found=found, todo=todo)
    return value


def schema_mismatch(table: pa.Table, schema: pa.Schema) -> str | None:
    """The first column of ``schema`` that a table lacks or has as another type, in words; None where there is none.

    Integers of any width count as one type, and so do strings of any encoding.
    """
    for field in schema:
        n_held = table.column_names.count(field.name)
        if n_held != 1:
            return f"no column {field.name}" if n_held == 0 else f"{n_held} columns {field.name}"
        column = table[field.name]
        if not (
            _type_class(column.type) == _type_class(field.type) or (field.nullable and pa.types.is_null(column.type))
        ):
            return f"column {field.name}: expected {field.type}, found {column.type}"
        if column.null_count and not field.nullable:
            return f"column {field.name}: {column.null_count} values are missing"
    return None


def cast_to_schema(table: pa.Table, schema: pa.Schema, path: Path, what: str, todo: str) -> pa.Table:
    """The columns of ``schema`` in its order and types, without metadata.

    Raises:
        Damaged: there is a `schema_mismatch`, or a number does not fit its column.
    """
    wrong = schema_mismatch(table, schema)
    if wrong is None:
        try:
            return table.replace_schema_metadata(None).select(schema.names).cast(schema)
        except (pa.ArrowException, ValueError) as error:
            wrong = _first_line(error)
    raise Damaged(f"its content is no {what} ({wrong})", shard=str(path), todo=todo)


def _type_class(of: pa.DataType) -> Any:
    if pa.types.is_dictionary(of):
        of = of.value_type
    if pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of):
        return "text"
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return ("list", _type_class(of.value_type))
    if pa.types.is_struct(of):
        return ("struct", *((field.name, _type_class(field.type)) for field in of))
    kinds = {"whole": pa.types.is_integer, "real": pa.types.is_floating, "truth": pa.types.is_boolean}
    return next((name for name, holds in kinds.items() if holds(of)), str(of))


@contextmanager
def _damage_as_error(path: Path, todo: str, what: str = "Parquet file") -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, PermissionError, UnicodeEncodeError, ShardError):  # its name may be no UTF-8
        raise
    except Exception as error:  # of a damaged file the reader raises nearly anything: KeyError, UnicodeDecodeError ...
        found = _first_line(error) if path.stat().st_size else "0 bytes"
        raise Damaged(f"not a whole {what}", shard=str(path), found=found, todo=todo) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:160]}"
