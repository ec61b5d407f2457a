"""Reads ledger files of several ages as one table: what a user of many runs would write with our two calls."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from curate.ledger import table_file
from curate.ledger.ledger import VERSION, _together
from shards.errors import Unfinished


def read_files(paths: Iterable[Path]) -> tuple[pa.Table, list[str]]:
    """Several ledger files as one table, whatever their age: all columns of all of them, nulls where one has none.

    A column's type is the widest that its files state; a file in which it is all null states none. Files without our
    footer are taken as they stand.

    Returns:
        The rows of the whole files in the order given, and a line on each file that is cut, empty or damaged.
    """
    tables, faults = [], []
    for path in paths:
        try:
            table_file.footer_of(path, "ledger", VERSION)
            tables.append(table_file.read(path))
        except Unfinished as fault:
            faults.append(str(fault))
    return _together(tables), faults
