"""The written record of a run: what was believed of every example, one Parquet partition an epoch.

Owns the columns and their types, the partitions' place in the run folder, and reading them back: one epoch, all of
them, or the last state of every example. Judges nothing and trains nothing: values, masses and masks come from the
caller (`pruner` computes them). The format is described, with queries, in docs/formats/ledger.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.errors import CurateError
from curate.ledger import table_file
from curate.ledger.last_states import last_states
from curate.types import ERRORS, Beliefs, Codes, Floats, Mask, Stamp
from shards.errors import Unfinished
from shards.io.spilled import spilled

VERSION = 1

SCHEMA = pa.schema(
    [
        pa.field("shard", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("a", pa.float32()),
        pa.field("b", pa.float32()),
        pa.field("mean", pa.float32(), nullable=False),
        pa.field("below", pa.float32()),
        pa.field("visits", pa.int32(), nullable=False),
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("error", pa.string()),
    ]
)

#: One column more where images may return: whether the row was trained on in the epoch, or only judged again.
LIVE = pa.field("live", pa.bool_(), nullable=False)

FINAL_SCHEMA = SCHEMA.append(pa.field("pruned_epoch", pa.int32()))
_NAMES = pa.schema([SCHEMA.field("shard"), SCHEMA.field("key")])
#: The arrays of `Beliefs`.
_BELIEFS: dict[str, Any] = {
    **{"rows": np.int64, "mean": np.float32, "visits": np.int32, "error": np.uint8},
    **{"a": np.float32, "b": np.float32},
}

_FOLDER = re.compile(r"epoch=(\d{4,})")


def path_of(run: Path, epoch: int) -> Path:
    """Path of an epoch's partition: ``ledger/epoch=0001/part-0.parquet``."""
    return run / "ledger" / f"epoch={epoch:04d}" / "part-0.parquet"


def epochs(run: Path) -> list[int]:
    """The epochs that have a partition, rising; whether each is whole shows when it is read.

    Raises:
        OSError: the ledger is there and cannot be listed, which is another thing than none.
    """
    place = run / "ledger"
    parts = [folder for folder in place.iterdir() if (folder / "part-0.parquet").exists()] if place.exists() else []
    return sorted(int(match[1]) for folder in parts if (match := _FOLDER.fullmatch(folder.name)))


def has_prior(run: Path) -> bool:
    """Whether something was believed before the first epoch: the run has a partition of epoch 0."""
    return path_of(run, 0).exists()


def write(
    path: Path,
    beliefs: Beliefs,
    below: Floats | None,
    names: pa.Table,
    kept: Mask,
    stamp: Stamp,
    facts: dict[str, float] | None = None,
    live: Mask | None = None,
) -> str:
    """Publish one partition: the examples that were live when the epoch began, sorted by row; where images may return,
    all that were judged when it ended.

    Args:
        path: `path_of` the run and the epoch.
        beliefs: m examples.
        below: shape (m,), float32: mass of each belief below the run's lambda; None for point weights.
        names: m rows in the same order, columns ``shard`` and ``key`` (strings, dictionary-encoded or not).
        kept: shape (m,): what the epoch's pruning decided.
        stamp: goes into the footer.
        facts: numbers that a selector found out, for the footer, too.
        live: shape (m,): who was live when the epoch began; None where all were.

    Returns:
        The sha256 of the file, in hex, for the manifest that follows from it.

    Raises:
        CurateError: the parts are not of one length, or the rows do not rise.
    """
    lengths = {len(beliefs), len(names), len(kept), len(beliefs) if below is None else len(below)}
    if len(lengths) != 1:
        raise CurateError(f"{path}: beliefs, names, masses and mask differ in length {sorted(lengths)}; align them")
    if (np.diff(beliefs.rows) <= 0).any():
        raise CurateError(f"{path}: rows must rise strictly; sort the beliefs by row")
    columns = [
        *_plain_names(names),
        pa.array(beliefs.rows),
        _or_null(beliefs.a, len(beliefs)),
        _or_null(beliefs.b, len(beliefs)),
        pa.array(beliefs.mean),
        _or_null(below, len(beliefs)),
        pa.array(beliefs.visits),
        pa.array(kept),
        _reasons(beliefs.error),
    ]
    table = pa.table(columns, schema=SCHEMA)
    if live is not None:
        table = table.append_column(LIVE, pa.array(live))
    footer = (
        _footer("ledger", stamp) | ({"facts": facts} if facts else {}) | ({} if live is None else {"returns": True})
    )
    return table_file.write(path, table, footer)


def live_in(table: pa.Table) -> Mask:
    """Shape (m,): who of a partition was live when its epoch began; all, where it has no column that says so."""
    if LIVE.name not in table.column_names:
        return np.ones(len(table), np.bool_)
    return np.asarray(table[LIVE.name].to_numpy(), np.bool_)


def stamp_of(run: Path, epoch: int) -> Stamp:
    """The stamp in the footer of an epoch's partition."""
    footer = table_file.footer_of(path_of(run, epoch), "ledger", VERSION)
    if footer is None:
        raise CurateError(f"{path_of(run, epoch)}: no footer of a ledger; this file was not written by a run")
    return table_file.stamp_in(footer, path_of(run, epoch))


def facts_of(run: Path, epoch: int) -> dict[str, float]:
    """What a selector found out, from the footer of its partition; nothing of any other."""
    footer = table_file.footer_of(path_of(run, epoch), "ledger", VERSION) or {}
    return dict(footer.get("facts", {}))


def read_epoch(run: Path, epoch: int, columns: list[str] | None = None) -> pa.Table:
    """One partition as it was written, columns of later releases included.

    Raises:
        CurateError: there is no such epoch; the message names those there are.
        Unfinished: its file is cut, empty or damaged, a column is missing or of another kind, or rows do not rise.
        UnknownFormat: a later version of the format.
    """
    path = path_of(run, epoch)
    if not path.is_file():
        there = ", ".join(str(number) for number in epochs(run)) or "none"
        raise CurateError(f"{run}: no ledger partition of epoch {epoch} (there: {there}); name one of these")
    table_file.footer_of(path, "ledger", VERSION)
    return _in_order(path, table_file.read(path, columns, SCHEMA))


def groups(run: Path, epoch: int, columns: list[str]) -> Iterator[pa.Table]:
    """These columns of one partition, and ``live`` where it has that, a group of rows at a time.

    Raises as `read_epoch`, but for the order of rows.
    """
    path = path_of(run, epoch)
    return table_file.read_groups(path, [*columns, LIVE.name] if _may_return(path) else columns, SCHEMA)


def _may_return(path: Path) -> bool:
    """Whether a partition is of a run in which images may return, and so says who was live; raises as `read_epoch`."""
    return bool((table_file.footer_of(path, "ledger", VERSION) or {}).get("returns"))


def read(run: Path) -> tuple[pa.Table, list[str]]:
    """All partitions that are whole, with a column ``epoch`` (int32) behind their own, and a line on each that is not.

    Raises:
        CurateError: the run has no partition at all.
    """
    if not epochs(run):
        raise CurateError(f"{run}: no ledger here; name the folder that `curate run` wrote to")
    tables, faults = [], []
    for epoch in epochs(run):
        try:
            table = read_epoch(run, epoch)
        except Unfinished as fault:
            faults.append(str(fault))
        else:
            tables.append(table.append_column("epoch", pa.array(np.full(len(table), epoch, np.int32))))
    return _together(tables), faults


def final(run: Path, upto: int | None = None) -> pa.Table:
    """The last state of every example that ever was live: `FINAL_SCHEMA`, sorted by row.

    Args:
        run: the run directory.
        upto: as it stood after this epoch; None for the last.

    ``pruned_epoch`` is the epoch that pruned it and from which it did not return, null for what is kept. Goes through
    all partitions side by side, some rows at a time, and takes of each what no later one has.

    Raises:
        CurateError: an epoch is missing, or the partitions contradict each other.
        Unfinished: a partition is cut, empty or damaged.
    """
    history = epochs(run)
    begun = 0 if has_prior(run) else 1
    if not history or history != list(range(begun, history[-1] + 1)):
        found = ", ".join(str(epoch) for epoch in history) or "none"
        raise CurateError(f"{run}: expected a partition of every epoch from {begun} on, found {found}; resume the run")
    if upto is not None and not begun <= upto <= history[-1]:
        raise CurateError(f"{run}: has no epoch {upto}, only {begun} to {history[-1]}; name one of these")
    last = history[-1] if upto is None else upto
    for epoch in range(begun, last + 1):
        table_file.footer_of(path_of(run, epoch), "ledger", VERSION)
    paths = {epoch: path_of(run, epoch) for epoch in range(begun, last + 1)}
    return spilled(FINAL_SCHEMA, last_states(paths, SCHEMA, _may_return(path_of(run, begun))))


def write_final(run: Path) -> Path:
    """Publish `final` as ``weights.parquet``, stamped like the last epoch, and return its path."""
    path = run / "weights.parquet"
    table = final(run)
    table_file.write(path, table, _footer("weights", stamp_of(run, epochs(run)[-1])))
    return path


def read_final(run: Path) -> pa.Table:
    """The run's ``weights.parquet``.

    Raises:
        CurateError: it is not there yet; it is damaged, or of a later version.
    """
    path = _final_path(run)
    return _in_order(path, table_file.read(path, schema=FINAL_SCHEMA))


def final_beliefs(run: Path) -> Beliefs:
    """The beliefs in the run's ``weights.parquet``, without the names; raises as `read_final`."""
    path = _final_path(run)
    columns = ["row", "a", "b", "mean", "visits", "error"]
    n_rows, done, point_weights = table_file.count_rows(path), 0, False
    joined: dict[str, Any] = {name: np.empty(n_rows, kind) for name, kind in _BELIEFS.items()}
    for group in table_file.read_groups(path, columns, FINAL_SCHEMA):
        beliefs = beliefs_of(group)
        point_weights |= beliefs.a is None and len(group) > 0
        for name in joined if not point_weights else joined.keys() - {"a", "b"}:
            joined[name][done : done + len(group)] = getattr(beliefs, name)
        done += len(group)
    table_file.check_order(path, joined["rows"])
    a, b = (None, None) if point_weights else (joined["a"], joined["b"])
    return Beliefs(joined["rows"], joined["mean"], joined["visits"], joined["error"], a, b)


def final_names(run: Path, kept: Mask) -> pa.Table:
    """``shard`` and ``key`` of the rows of ``weights.parquet`` that a mask keeps, as strings."""

    def batches() -> Iterator[pa.RecordBatch]:
        done = 0
        for group in table_file.read_groups(_final_path(run), _NAMES.names, FINAL_SCHEMA):
            own = pa.array(kept[done : done + len(group)])
            done += len(group)
            yield from group.filter(own).cast(_NAMES).combine_chunks().to_batches()

    return spilled(_NAMES, batches())


def _final_path(run: Path) -> Path:
    path = run / "weights.parquet"
    if not path.is_file():
        raise CurateError(f"{path}: not there; finish the run, or make it with `curate ledger {run} --final`")
    table_file.footer_of(path, "weights", VERSION)
    return path


def beliefs_of(table: pa.Table) -> Beliefs:
    """The beliefs in a table with the ledger's columns, sorted by row: a partition, or the final state.

    Raises:
        CurateError: a reason in ``error`` that this release does not know.
    """
    codes = pc.fill_null(pc.index_in(table["error"], pa.array(ERRORS[1:], pa.string())), -1).to_numpy() + 1
    unknown = (codes == 0) & table["error"].is_valid().to_numpy()
    if unknown.any():
        reason = table["error"][int(np.argmax(unknown))]
        raise CurateError(f"ledger: error {str(reason)!r} is not a reason this release knows; update curate-bdw")
    point_weights = table["a"].null_count > 0
    return Beliefs(
        rows=table["row"].to_numpy(),
        mean=table["mean"].to_numpy(),
        visits=table["visits"].to_numpy(),
        error=codes.astype(np.uint8),
        a=None if point_weights else table["a"].to_numpy(),
        b=None if point_weights else table["b"].to_numpy(),
    )


def _in_order(path: Path, table: pa.Table) -> pa.Table:
    """The table, if its rows, where they were read, are numbers from 0 that rise."""
    if "row" in table.column_names and len(table):
        table_file.check_order(path, table["row"].to_numpy())
    return table


def _together(tables: list[pa.Table]) -> pa.Table:
    # A plain reader takes the first file's schema and drops what later ones add without a word.
    if not tables:
        return SCHEMA.empty_table()
    bare = [table.replace_schema_metadata(None) for table in tables]
    try:
        return pa.concat_tables(bare, promote_options="permissive").unify_dictionaries()
    except pa.ArrowException as error:
        raise CurateError(f"ledger: its files do not fit together ({error}); leave some out") from error


def _plain_names(names: pa.Table) -> list[pa.ChunkedArray]:
    return [names[name].cast(pa.string()) for name in ("shard", "key")]


def _or_null(values: Floats | None, length: int) -> pa.Array:
    return pa.nulls(length, pa.float32()) if values is None else pa.array(values, pa.float32())


def _reasons(codes: Codes) -> pa.Array:
    return pc.take(pa.array(ERRORS, pa.string()), pa.array(codes))


def _footer(form: str, stamp: Stamp) -> dict[str, object]:
    return {"format": form, "version": VERSION, **asdict(stamp)}
