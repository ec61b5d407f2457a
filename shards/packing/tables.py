"""Reads tables that a person wrote about images: CSV, JSON a line, or Parquet. What their columns mean is the caller's.

Values of a CSV stay text: numbers of groups may have leading zeros.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shards.errors import Misuse, ShardError
from shards.io import parquet
from shards.io.json_files import parse_json
from shards.io.regular_files import check_regular, read_regular

#: Endings of the names of tables.
SUFFIXES = (".csv", ".csv.gz", ".jsonl", ".parquet")

#: Columns that hold an image's path or URL; the first one found counts.
FILE_COLUMNS = ("file", "file_name", "path", "url")


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name."""
    return path.name.lower().endswith(SUFFIXES)


def read_rows(path: Path, what: str = "table", todo: str = "mend it, or rename it") -> list[dict[str, Any]]:
    """The rows of a table, each by the names of its columns; binary columns of a Parquet file are left out.

    Args:
        what: the table should be, for the message.
        todo: what to do about one that is none.

    Raises:
        Misuse: there is no such file.
        ShardError: it cannot be read.
    """
    with readable(path, what, todo):
        if is_parquet(path):
            schema = pq.read_schema(path)
            columns = [field.name for field in schema if not _is_binary(field.type)]
            rows: list[dict[str, Any]] = parquet.read_table(path, todo, columns, what=what).to_pylist()
            return rows
        text = _text(path)
        if path.name.lower().endswith(".jsonl"):
            return [_object(line, number) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        return list(_csv_rows(text))


def column_in(rows: list[dict[str, Any]], names: tuple[str, ...]) -> str | None:
    """The first of several names that a table has a column of."""
    return next((name for name in names if rows and name in rows[0]), None)


def is_parquet(path: Path) -> bool:
    """Whether a table is a Parquet file by its name."""
    return path.suffix.lower() == ".parquet"


@contextmanager
def readable(path: Path, what: str, todo: str) -> Iterator[None]:
    """What libraries say of a file, as one line."""
    try:
        check_regular(path)
        yield
    except FileNotFoundError as error:
        raise Misuse(f"no such {what}", shard=str(path), todo="name one that is there") from error
    except (OSError, EOFError, zlib.error, pa.ArrowException, csv.Error, ValueError, KeyError) as error:
        found = str(error).partition("\n")[0][:160]
        raise ShardError(f"no {what}", shard=str(path), found=found, todo=todo) from error


def _is_binary(of: pa.DataType) -> bool:
    if pa.types.is_struct(of):
        return any(_is_binary(field.type) for field in of)
    return bool(pa.types.is_binary(of) or pa.types.is_large_binary(of) or pa.types.is_fixed_size_binary(of))


def _text(path: Path) -> str:
    data = read_regular(path)
    return (gzip.decompress(data) if path.suffix.lower() == ".gz" else data).decode("utf-8-sig")


def _object(line: str, number: int) -> dict[str, Any]:
    value = parse_json(line)
    if not isinstance(value, dict):
        raise ValueError(f"line {number} is no object")
    return value


def _csv_rows(text: str) -> Iterator[dict[str, Any]]:
    """The rows of a CSV, an empty cell as None.

    Raises:
        ValueError: a row has more or fewer cells than there are columns.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns = next(reader, None) or []
    if len(set(columns)) < len(columns):
        raise ValueError("two columns of one name")
    for cells in reader:
        if cells and len(cells) != len(columns):
            raise ValueError(f"line {reader.line_num} has {len(cells)} values, not {len(columns)}")
        if cells:
            yield {name: cell or None for name, cell in zip(columns, cells)}
