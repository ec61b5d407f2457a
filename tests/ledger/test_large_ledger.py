"""A ledger of many groups of rows gives what one of a single group gives: last states, summary, manifest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curate.errors import CurateError
from curate.ledger import ledger, reprune, summary, table_file
from curate.types import Beliefs, Stamp
from shards.errors import Unfinished


def write_run(run: Path, rows_of_epochs: list[list[int]], pruned: list[list[int]]) -> None:
    rng = np.random.default_rng(0)
    for epoch, (live, gone) in enumerate(zip(rows_of_epochs, pruned), start=1):
        rows = np.array(live, np.int64)
        a, b = (rng.uniform(0.1, 4, len(rows)).astype(np.float32) for _ in range(2))
        beliefs = Beliefs(rows, a / (a + b), np.full(len(rows), epoch, np.int32), np.zeros(len(rows), np.uint8), a, b)
        names = pa.table({"shard": [f"{row // 9}.tar" for row in live], "key": [str(row) for row in live]})
        stamp = Stamp("3f9c", "bdw", epoch, 7, 0.25, 0.5, 1.0)
        ledger.write(ledger.path_of(run, epoch), beliefs, a, names, ~np.isin(rows, gone), stamp)


def last_states(run: Path) -> list[dict[str, object]]:
    """The plain way: later partitions replace earlier rows."""
    found: dict[int, dict[str, object]] = {}
    for epoch in ledger.epochs(run):
        for row in ledger.read_epoch(run, epoch).to_pylist():
            found[row["row"]] = {**row, "pruned_epoch": None if row["kept"] else epoch}
    return [found[row] for row in sorted(found)]


@pytest.mark.parametrize("group_rows", [1, 7, 1000])
def test_groups_of_any_size_say_the_same(group_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "GROUP_ROWS", group_rows)
    everything = list(range(3, 90, 2))
    write_run(tmp_path, [everything, everything[5:], everything[5:-9]], [everything[:5], everything[-9:], [21]])
    assert ledger.final(tmp_path).to_pylist() == last_states(tmp_path)
    assert ledger.final(tmp_path, 1)["visits"].to_pylist() == [1] * len(everything)
    ledger.write_final(tmp_path)
    kept = reprune.judge_again(tmp_path, reprune.Choice(share=0.25), tmp_path / "kept.parquet")
    best = sorted(sorted(last_states(tmp_path), key=lambda row: -row["mean"])[: len(kept)], key=lambda row: row["row"])
    assert kept.to_pylist() == [{name: row[name] for name in ("shard", "key", "row")} for row in best]
    lines = summary.by_epoch(tmp_path)
    assert [(line["live"], line["kept"]) for line in lines] == [(44, 39), (39, 30), (30, 29)]
    assert lines[0]["mean"] == pytest.approx(np.mean(ledger.read_epoch(tmp_path, 1)["mean"].to_numpy()), rel=1e-6)


@pytest.mark.parametrize("stray", [2, 40, 200])
def test_a_row_of_another_run_is_found_in_any_group(
    stray: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, "GROUP_ROWS", 4)
    live = [row for row in range(3, 90) if row != stray]
    write_run(tmp_path, [live, sorted([*live, stray])], [[], []])
    with pytest.raises(CurateError, match=rf"epoch=0002.*row {stray} is not in the first epoch"):
        ledger.final(tmp_path)


def test_rows_that_fall_from_one_group_to_the_next_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "GROUP_ROWS", 4)
    write_run(tmp_path, [list(range(8))], [[]])
    path = ledger.path_of(tmp_path, 1)
    table = ledger.read_epoch(tmp_path, 1)
    halves = pa.concat_tables([table.slice(4), table.slice(0, 4)])
    table_file.write(path, halves, table_file.footer_of(path, "ledger", 1) or {})
    with pytest.raises(Unfinished, match="its rows do not rise from 0"):
        ledger.final(tmp_path)
