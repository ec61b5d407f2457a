"""The last state of every example from the partitions of a ledger, which are read side by side and never whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.errors import CurateError
from curate.ledger import table_file
from curate.types import Ints, Mask


def last_states(paths: dict[int, Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows with the columns of ``schema`` and ``pruned_epoch`` (int32, null for what is still live), sorted by row.

    Goes through the groups of the first partition; of every later one it reads the rows up to there.

    Args:
        paths: the partition of every epoch, in order.
        schema: of a partition.

    Raises:
        CurateError: the partitions contradict each other.
        Unfinished: one is cut, empty or damaged, or its rows do not rise.
    """
    (begun, start), *rest = paths.items()
    later = [(epoch, _Ahead(path, schema)) for epoch, path in rest]
    for group in _groups(start, schema):
        rows = group["row"].to_numpy()
        seen = np.zeros(len(group), dtype=np.bool_)
        parts = [_states(ahead.path, epoch, ahead.upto(int(rows[-1])), rows, seen) for epoch, ahead in reversed(later)]
        parts.append(_states(start, begun, group, rows, seen))
        yield from pa.concat_tables(parts).sort_by("row").combine_chunks().to_batches()
    for _, ahead in later:
        for row in ahead.upto(np.iinfo(np.int64).max)["row"].slice(0, 1).to_pylist():
            raise _of_two_runs(ahead.path, f"row {row} is not in the first epoch")


def _groups(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """A partition, a group of rows at a time, held to be in order."""
    last = -1
    for group in table_file.read_groups(path, schema.names, schema):
        rows = group["row"].to_numpy()
        table_file.check_order(path, rows, last)
        if len(group):
            last = int(rows[-1])
            yield group.select(schema.names).cast(schema)


class _Ahead:
    """A partition that is read as far as it is asked for."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self._groups, self._left = path, _groups(path, schema), schema.empty_table()

    def upto(self, row: int) -> pa.Table:
        """The rows up to this one that were not asked for before."""
        while not len(self._left) or self._left["row"][-1].as_py() <= row:
            group = next(self._groups, None)
            if group is None:
                break
            self._left = pa.concat_tables([self._left, group])
        n = int(np.searchsorted(self._left["row"].to_numpy(), row, side="right"))
        found, self._left = self._left.slice(0, n), self._left.slice(n)
        return found


def _states(path: Path, epoch: int, table: pa.Table, first: Ints, seen: Mask) -> pa.Table:
    """What no later partition has; marks it as seen, by its place in ``first``, the rows of the first."""
    rows, kept = table["row"].to_numpy(), table["kept"].to_numpy()
    strange = ~np.isin(rows, first, assume_unique=True)
    if strange.any():
        raise _of_two_runs(path, f"row {rows[np.argmax(strange)]} is not in the first epoch")
    places = np.searchsorted(first, rows)
    again = seen[places] & ~kept
    if again.any():
        raise _of_two_runs(path, f"row {rows[np.argmax(again)]}, pruned here, is in a later epoch")
    last = ~seen[places]
    seen[places] = True
    states = table.filter(pa.array(last))
    return states.append_column("pruned_epoch", pa.array(np.full(len(states), epoch, np.int32), mask=kept[last]))


def _of_two_runs(path: Path, why: str) -> CurateError:
    return CurateError(f"{path}: {why}; this ledger is of two runs")
