"""A prior that is there already: a Parquet file with shard, key and either mean or a and b; or what a run believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.errors import CurateError, Misuse
from curate.ledger import ledger
from curate.types import Ints, Prior, Reals
from shards.indexing.key_join import join_keys
from shards.io import parquet


def given_prior(path: Path, names: pa.Table, needed: Ints) -> Prior:
    """What a file says of a store's images.

    Args:
        path: a Parquet file, or a folder of them, or one of a ``weights.parquet`` beside others; a run, or its folder
            ``ledger``, for the last state of every image.
        names: n rows, columns ``shard`` and ``key``.
        needed: the rows that must be there.

    Returns:
        a and b as they are where the file has them, else the means, without a cut.

    Raises:
        CurateError: an image is not there or stands there twice, or a value is out of its range.
    """
    held = _read(path)
    left, right = join_keys(names, held)
    if len(left) > len(names):
        twice = names.slice(int(left[np.argmax(np.diff(left) == 0)]), 1).to_pylist()[0]
        raise CurateError(f"{path}: {twice['shard']} {twice['key']} stands there twice; give each image one belief")
    _refuse_rows(path, names, needed[right[needed] < 0], needed, "missing")
    columns = {name: _column(held[name], right) for name in held.column_names if name not in ("shard", "key")}
    whole = {"a", "b"} <= columns.keys() and not any(np.isnan(columns[name][needed]).any() for name in ("a", "b"))
    if whole:
        a, b = columns["a"], columns["b"]
        wrong = ~((a > 0) & (b > 0) & np.isfinite(a + b))
        _refuse_rows(path, names, needed[wrong[needed]], needed, "a and b must be positive numbers", a, b)
        return Prior(a / (a + b), a=a, b=b)
    if "mean" not in columns:
        raise CurateError(f"{path}: expected the columns shard, key, and mean, or a and b without a null")
    mean = columns["mean"]
    _refuse_rows(path, names, needed[~((mean >= 0) & (mean <= 1))[needed]], needed, "mean must lie in [0, 1]", mean)
    return Prior(mean)


def _read(path: Path) -> pa.Table:
    if path.is_dir():
        for run in (path, path.parent if path.name == "ledger" else path):
            if (run / "run.json").exists() and ledger.epochs(run):
                return ledger.final(run).select(["shard", "key", "mean", "a", "b"])
    weights = path / "weights.parquet"  # beside the table of what `curate dedup --soft` found
    files = [weights] if weights.is_file() else sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise Misuse(f"--prior {path}: no Parquet file is there, and no run with a ledger; name one")
    parts = [_columns(file, parquet.read_table(file, "give a whole file")) for file in files]
    return pa.concat_tables(parts, promote_options="default")


def _columns(path: Path, table: pa.Table) -> pa.Table:
    """Names as text, numbers as float64; other columns pass."""
    lacking = [name for name in ("shard", "key") if name not in table.column_names]
    if lacking:
        raise CurateError(f"{path}: has no column {', '.join(lacking)}; expected shard, key, and mean, or a and b")
    found = {name: _cast(path, table, name, pa.string()) for name in ("shard", "key")}
    for name in ("mean", "a", "b"):
        if name in table.column_names:
            kind = table.schema.field(name).type
            if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
                raise CurateError(f"{path}: {name} is of type {kind}; expected numbers")
            found[name] = _cast(path, table, name, pa.float64())
    return pa.table(found)


def _cast(path: Path, table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        return table[name].cast(kind)
    except pa.ArrowException as error:
        what, todo = ("names", "text") if kind == pa.string() else ("numbers", "float64")
        found = " ".join(str(error).split())[:160]
        raise CurateError(f"{path}: {name} holds no {what} ({found}); write it as {todo}") from error


def _column(column: pa.ChunkedArray, places: Ints) -> Reals:
    """Shape (n,), NaN for null and where an image is not there."""
    values = np.append(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.nan)
    return np.asarray(values[places], np.float64)


def _refuse_rows(path: Path, names: pa.Table, bad: Ints, needed: Ints, rule: str, *values: Reals) -> None:
    """Say how many images a rule does not hold for, and which is the first.

    Raises:
        CurateError: there is one.
    """
    if not len(bad):
        return
    first = names.slice(int(bad[0]), 1).to_pylist()[0]
    found = ", ".join(f"{x[bad[0]]:g}" for x in values)
    shown = f"{first['shard']} {first['key']}" + (f" ({found})" if found else "")
    what = f"no belief of {len(bad)} of {len(needed)} images" if not values else f"{rule}, not so for {len(bad)} images"
    raise CurateError(f"{path}: {what}, such as {shown}; give a file that has them right")
