"""What is kept after an epoch, as a file that people and other tools read: shard, key, row.

Owns the columns, the footer that says by which rule and from which ledger partition the choice came, and reading it
back. Chooses nothing itself (`pruner` does). The rewrite takes any Parquet file with ``shard`` and ``key``; this module
reads only manifests that a run or `curate prune` wrote.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.errors import CurateError
from curate.ledger import table_file
from curate.types import Ints, Stamp
from shards.errors import Unfinished, UnknownFormat

VERSION = 1

SCHEMA = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Origin:
    """Where a manifest comes from.

    Args:
        rule: in words with its numbers, such as ``prune when CDF(0.25; a, b) > 0.5``.
        examples_in: how many the rule was applied to, at least as many as are kept.
        ledger_sha256: hex sha256 of the ledger file whose beliefs were judged.
        stamp: the run, its settings and the epoch.
    """

    rule: str
    examples_in: int
    ledger_sha256: str
    stamp: Stamp


def path_of(run: Path, epoch: int) -> Path:
    """Path of an epoch's manifest: ``manifests/epoch=0001.parquet``."""
    return run / "manifests" / f"epoch={epoch:04d}.parquet"


def write(path: Path, names: pa.Table, rows: Ints, origin: Origin) -> str:
    """Publish the manifest of exactly these examples and return the sha256 of the file, in hex.

    Args:
        path: `path_of` the run and the epoch, or any other.
        names: m rows, columns ``shard`` and ``key`` (strings, dictionary-encoded or not).
        rows: shape (m,), strictly rising, in the same order.
        origin: goes into the footer, with the counts in and out.

    Raises:
        CurateError: names and rows do not match, rows do not rise, or more is kept than was judged.
    """
    if len(names) != len(rows):
        raise CurateError(f"{path}: {len(names)} names for {len(rows)} rows; take the names of exactly the kept rows")
    if (np.diff(rows) <= 0).any():
        raise CurateError(f"{path}: rows must rise strictly; sort what is kept by row")
    if len(rows) > origin.examples_in:
        raise CurateError(f"{path}: {len(rows)} kept of {origin.examples_in} judged; count what went in again")
    return table_file.write(path, _columns(names, rows), _footer(len(rows), origin))


def table_of(names: pa.Table, rows: Ints, origin: Origin) -> pa.Table:
    """What `write` writes, in memory, the footer as metadata of the schema."""
    return _columns(names, rows).replace_schema_metadata(table_file.metadata(_footer(len(rows), origin)))


def footer_in(table: pa.Table) -> dict[str, Any]:
    """The footer that `table_of` put into a table: ``rule``, counts ``in`` and ``out``, and the stamp."""
    return table_file.footer_in(table)


def _columns(names: pa.Table, rows: Ints) -> pa.Table:
    columns = [names["shard"].cast(pa.string()), names["key"].cast(pa.string()), pa.array(rows, pa.int64())]
    return pa.table(columns, schema=SCHEMA)


def read(path: Path) -> tuple[pa.Table, Origin]:
    """What is kept, sorted by row, and where the choice comes from.

    Raises:
        FileNotFoundError: there is no such file.
        CurateError: it is cut or damaged, of a later version, no manifest, or its rows are not those it counted.
    """
    footer = table_file.footer_of(path, "manifest", VERSION)
    if footer is None:
        raise CurateError(f"{path}: no footer of a manifest; a file of your own goes to `curate rewrite --manifest`")
    origin, kept = _origin_in(footer, path)
    table = table_file.read(path, schema=SCHEMA)
    if len(table) != kept:
        raise CurateError(f"{path}: expected {kept} rows, found {len(table)}; write the manifest again")
    if (np.diff(table["row"].to_numpy()) <= 0).any():
        raise CurateError(f"{path}: its rows do not rise; write the manifest again")
    return table, origin


def origin_of(path: Path) -> Origin | None:
    """Where the choice of a manifest comes from, by its footer alone; None where it is no manifest of ours."""
    try:
        footer = table_file.footer_of(path, "manifest", VERSION)
        return None if footer is None else _origin_in(footer, path)[0]
    except (Unfinished, UnknownFormat):
        return None


def _origin_in(footer: dict[str, Any], path: Path) -> tuple[Origin, int]:
    """What a footer says of the choice, and how many it keeps."""
    record = table_file.fields_of(footer, {"rule": str, "in": int, "out": int, "ledger_sha256": str}, path)
    stamp = table_file.stamp_in(footer, path)
    return Origin(record["rule"], record["in"], record["ledger_sha256"], stamp), record["out"]


def _footer(kept: int, origin: Origin) -> dict[str, object]:
    return {
        "format": "manifest",
        "version": VERSION,
        "rule": origin.rule,
        "in": origin.examples_in,
        "out": kept,
        "ledger_sha256": origin.ledger_sha256,
        **asdict(origin.stamp),
    }
