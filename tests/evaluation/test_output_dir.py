"""Where an evaluation may be written: apart from what it reads, and never among files of somebody else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import toyset

from curate.config.schema import from_options
from curate.errors import CurateError, Misuse, RunMismatch
from curate.evaluation.output_dir import folder_of, keep
from curate.runs.provenance import write_run


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A store, a target, another target, and a run that used the first two; no training is needed."""
    toyset.make_data(tmp_path, 4)
    toyset.make_target(tmp_path / "other")
    options = {"store": str(tmp_path / "store"), "target": str(tmp_path / "target")}
    who = {"options": {}, "store": "a", "target": "b"}
    (tmp_path / "run" / "ledger").mkdir(parents=True)
    write_run(tmp_path / "run" / "run.json", from_options(options), who, {})
    return tmp_path


def placed(world: Path, out: Path | None) -> Path:
    return folder_of(world / "run", str(world / "other"), out, "finetune-1", "search.json")


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("out", ["new", "run/evaluations/mine", "deep/er", "run-2"])
def test_a_folder_apart_from_all_is_taken(world: Path, out: str) -> None:
    before = files(world)
    assert placed(world, world / out) == world / out
    assert files(world) == before  # nothing is made yet


def test_without_a_name_it_lies_in_the_run(world: Path) -> None:
    assert placed(world, None) == world / "run" / "evaluations" / "finetune-1"


@pytest.mark.parametrize(
    ("out", "what"),
    [
        *(("other", "target"), ("other/val", "target"), ("other/val/new", "target"), ("", "target")),
        *(("store", "store"), ("store/new", "store"), ("target/train/new", "run's target")),
        *(("run", "run"), ("run/new", "run"), ("run/ledger/new", "run"), ("run/evaluations", "run")),
    ],
)
def test_in_or_around_what_is_read_it_is_refused(world: Path, out: str, what: str) -> None:
    before = files(world)
    with pytest.raises(Misuse, match=rf"^--out .*: overlaps the {what} /.*; name a folder apart from it, or leave"):
        placed(world, world / out)
    assert files(world) == before


def test_a_link_into_the_target_is_seen_through(world: Path) -> None:
    os.symlink(world / "other", world / "link")
    with pytest.raises(Misuse, match="overlaps the target"):
        placed(world, world / "link" / "new")


def test_a_store_that_is_gone_or_elsewhere_hinders_nothing(world: Path) -> None:
    path = world / "run" / "run.json"
    for store in (str(world / "gone"), "https://nowhere.invalid/store/"):
        record = json.loads(path.read_text())
        record["configuration"]["store"] = store
        path.write_text(json.dumps(record))
        assert placed(world, world / "new") == world / "new"


def test_files_of_somebody_else_are_refused_and_its_own_or_hidden_ones_are_not(world: Path) -> None:
    out = world / "new"
    out.mkdir()
    (out / ".hidden").write_text("")
    assert placed(world, out) == out
    (out / "notes.txt").write_text("mine")
    with pytest.raises(Misuse, match=r"^--out .*new: holds files, but no search\.json; name a new folder, or that of"):
        placed(world, out)
    (out / "search.json").write_text("{}")
    assert placed(world, out) == out
    with pytest.raises(Misuse, match=r"notes\.txt: expected a folder, found a file; name another$"):
        placed(world, out / "notes.txt")


def test_a_record_is_written_once_and_another_one_is_refused_with_both_values(tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    keep(path, {"format": "x", "version": 1, "target": "a"})
    before = path.stat().st_mtime_ns
    keep(path, {"format": "x", "version": 1, "target": "a"})
    assert path.stat().st_mtime_ns == before
    with pytest.raises(RunMismatch, match=r": holds another evaluation: target was a, is b; name a new --out$"):
        keep(path, {"format": "x", "version": 1, "target": "b"})
    for text in ("{", "3"):
        path.write_text(text)
        with pytest.raises(CurateError, match=r"comparison\.json: is damaged \(.*\); name a new --out$"):
            keep(path, {"format": "x", "version": 1, "target": "a"})
