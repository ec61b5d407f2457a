"""Runs that outlive a release, and runs that go on for longer than they were begun for."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tarfile
from pathlib import Path

import pytest
import toyset

from curate.config import schema
from curate.config.schema import from_options, option
from curate.errors import RunMismatch
from curate.runs import provenance
from curate.runs.pretrain import pretrain
from curate.runs.run import run
from shards.rewriting.verify import verify

OLD = Path(__file__).with_name("begun_by_0.2.0.tar.gz")
#: The options of the run in `OLD`.
BEGUN = {"epochs": 3, "meta_momentum": 0.9, "reference": "batch", "eta": 1.0, "lam": 0.35, "rewrite": "end"}


@dataclasses.dataclass(frozen=True)
class Longer(schema.TrainConfig):
    """A training with an option more."""

    swing: int = option(3, "Made up.", later=True)


@pytest.fixture
def old(tmp_path):
    """A run of three epochs that release 0.2.0 began and left after the second, with its store and target."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return toyset.make_data(tmp_path_factory.mktemp("data"), 48)


def test_a_run_of_an_older_release_goes_on(old):
    """Under its own id; what it wrote stays to the byte; what was missing is there."""
    before = {path: path.read_bytes() for path in (old / "run").rglob("*") if path.is_file()}
    summary = toyset.run_on(old, old / "run", **BEGUN)
    assert (summary.run_id, summary.epochs) == ("a89c28a1b03f7337", 3)
    for path, bytes_ in before.items():
        if path.name.endswith(".parquet") or path.name == "run.json":
            assert path.read_bytes() == bytes_, path
    assert len(toyset.metrics(old / "run")) == 3
    assert verify(old / "run" / "curated", against=toyset.indexed(old / "store")) == []


def test_an_option_that_is_younger_than_the_run_is_read_as_its_default(old):
    """A run.json that lacks an option goes on; given another value, it is another run."""
    record = json.loads((old / "run" / "run.json").read_text())
    for name in ("warmup", "target_augment", "nn_tap"):
        del record["configuration"][name]
    who = provenance.identity(
        provenance.config_of(record, old),
        record["store"],
        record["target"],
    )
    assert provenance.compare(old, record, who) == []
    who["options"]["warmup"] = 1
    with pytest.raises(RunMismatch, match="--warmup was 0, is 1;"):
        provenance.compare(old, record, who)


def test_an_option_of_a_later_release_at_its_default_leaves_the_id(monkeypatch):
    """The id of every run that was there before is what it was."""
    config = from_options({"store": "s", "target": "t"})
    before = provenance.identity(config, "a", "b")

    monkeypatch.setitem(schema.GROUPS, "train", Longer)
    assert provenance.identity(from_options({"store": "s", "target": "t"}), "a", "b") == before
    other = provenance.identity(from_options({"store": "s", "target": "t", "swing": 4}), "a", "b")
    assert other["options"].pop("swing") == 4
    assert other == before


def test_a_finished_run_is_extended(data, tmp_path):
    """Two epochs, then five: the ledger of a run of five with the same drops, but for the id in the footers."""
    out, heard = tmp_path / "run", toyset.Notes()
    toyset.run_on(data, out, epochs=2)
    begun = provenance.read_run(out)
    summary = toyset.run_on(data, out, heard, epochs=5)
    assert [note for note in heard.notes if "extended" in note] == [
        "extended from 2 epochs to 5, 2 are done; rate drops: none"
    ]
    whole = tmp_path / "whole"
    toyset.run_on(data, whole, epochs=5)
    for epoch in range(1, 6):
        assert toyset.partition(out, epoch, "row", "a", "b", "kept") == toyset.partition(
            whole, epoch, "row", "a", "b", "kept"
        )
    assert summary.run_id == begun["run_id"]
    record = provenance.read_run(out)
    assert (record["configuration"]["epochs"], record["machine"]["extended_from"]) == (5, [2])
    assert sorted(key for _, key in toyset.rows_of(out / "curated" / "manifest.parquet", "shard", "key")) == sorted(
        key for _, key in toyset.rows_of(whole / "curated" / "manifest.parquet", "shard", "key")
    )
    assert verify(out / "curated", against=toyset.indexed(data / "store")) == []


def test_an_extended_run_keeps_its_drops(data, tmp_path):
    """Without --lr-drops they would follow from the number of epochs, and be wrong for those that are done."""
    options = {
        "pretext": "rotation",
        "network": "small",
        "width": 2,
        "colour": "grey",
        "size": 8,
        "crop": 8,
        "batch": 16,
    }
    pretrain(str(data / "store"), tmp_path / "net", {**options, "epochs": 4, "workers": 0, "device": "cpu"})
    assert provenance.read_run(tmp_path / "net")["configuration"]["lr_drops"] == [2, 3]
    pretrain(str(data / "store"), tmp_path / "net", {**options, "epochs": 7, "workers": 0, "device": "cpu"})
    assert provenance.read_run(tmp_path / "net")["configuration"]["lr_drops"] == [2, 3]
    rates = [line["learning_rate"] for line in toyset.metrics(tmp_path / "net")]
    assert rates == pytest.approx([0.1, 0.1, 0.01] + [0.001] * 4)


def test_a_schedule_that_contradicts_the_epochs_that_are_done_is_refused(data, tmp_path):
    """The rate of an epoch that is trained cannot be changed any more; fewer epochs are another run."""
    toyset.run_on(data, tmp_path / "run", epochs=3, lr_drops=(2,))
    with pytest.raises(RunMismatch, match=r"--lr-drops was \(2,\), is \(1,\)"):
        toyset.run_on(data, tmp_path / "run", epochs=5, lr_drops=(1,))
    with pytest.raises(RunMismatch, match="--epochs was 3, is 2"):
        toyset.run_on(data, tmp_path / "run", epochs=2, lr_drops=(2,))
    toyset.run_on(data, tmp_path / "run", epochs=4, lr_drops=(2, 3))


def test_run_json_repeats_an_extended_run(data, tmp_path):
    """What it holds is the run as it is now."""
    toyset.run_on(data, tmp_path / "run", epochs=1)
    toyset.run_on(data, tmp_path / "run", epochs=2)
    shutil.rmtree(tmp_path / "run" / "curated")
    summary = run(from_options(schema.read_options(tmp_path / "run" / "run.json")), tmp_path / "run")
    assert summary.epochs == 2
