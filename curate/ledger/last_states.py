"""The last state of every example from the partitions of a ledger, which are read side by side and never whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.errors import CurateError
from curate.ledger import table_file
from curate.types import Ints


def last_states(paths: dict[int, Path], schema: pa.Schema, may_return: bool = False) -> Iterator[pa.RecordBatch]:
    """Rows with the columns of ``schema`` and ``pruned_epoch``, sorted by row.

    ``pruned_epoch`` is int32: the first epoch from which on none kept the row, null for what is still live.
    Goes through the groups of the first partition; of every later one it reads the rows up to there.

    Args:
        paths: the partition of every epoch, in order.
        schema: of a partition.
        may_return: whether a row that one epoch drops may stand in a later one.

    Raises:
        CurateError: the partitions contradict each other.
        Unfinished: one is cut, empty or damaged, or its rows do not rise.
    """
    (begun, start), *rest = paths.items()
    later = [(epoch, _Ahead(path, schema)) for epoch, path in rest]
    for group in _groups(start, schema):
        rows = group["row"].to_numpy()
        states = _States(rows, may_return)
        parts = [states.take(ahead.path, epoch, ahead.upto(int(rows[-1]))) for epoch, ahead in reversed(later)]
        parts.append(states.take(start, begun, group))
        yield from states.with_epochs(pa.concat_tables(parts).sort_by("row")).combine_chunks().to_batches()
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


class _States:
    """What is found of some rows of the first partition, from the last epoch backwards.

    Args:
        rows: shape (m,).
        may_return: as of `last_states`.

    Attributes:
        seen: shape (m,): who stood in a later partition.
        gone: shape (m,), int32: the first of the unbroken row of epochs, the last one included, that did not keep it;
            -1 for none.
        dropped: shape (m,): who was kept in no epoch so far.
    """

    def __init__(self, rows: Ints, may_return: bool) -> None:
        self.rows, self.may_return = rows, may_return
        self.seen, self.dropped = np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)
        self.gone = np.full(len(rows), -1, np.int32)

    def take(self, path: Path, epoch: int, table: pa.Table) -> pa.Table:
        """What no later partition has; marks it as seen."""
        rows, kept = table["row"].to_numpy(), table["kept"].to_numpy()
        strange = ~np.isin(rows, self.rows, assume_unique=True)
        if strange.any():
            raise _of_two_runs(path, f"row {rows[np.argmax(strange)]} is not in the first epoch")
        places = np.searchsorted(self.rows, rows)
        again = self.seen[places] & ~kept
        if again.any() and not self.may_return:
            raise _of_two_runs(path, f"row {rows[np.argmax(again)]}, pruned here, is in a later epoch")
        last = ~self.seen[places]
        self.seen[places] = True
        self.dropped[places[kept]] = False
        self.gone[places[~kept & self.dropped[places]]] = epoch
        return table.filter(pa.array(last))

    def with_epochs(self, states: pa.Table) -> pa.Table:
        """The states, sorted by row, with the epoch that each went in."""
        gone = self.gone[np.searchsorted(self.rows, states["row"].to_numpy())]
        return states.append_column("pruned_epoch", pa.array(gone, mask=gone < 0))


def _of_two_runs(path: Path, why: str) -> CurateError:
    return CurateError(f"{path}: {why}; this ledger is of two runs")
