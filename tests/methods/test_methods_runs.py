"""A whole run with every method: its ledger, its resumption and its workers."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
import toyset

from curate.config.defaults import applicable
from curate.config.schema import from_options
from curate.errors import Misuse, NothingLeft
from curate.ledger.ledger import SCHEMA
from curate.methods import METHODS
from curate.progress import NullProgress
from curate.runs import target_distances
from curate.runs.dry_run import dry_run
from shards.indexing import domains, index
from shards.io import shard_set

COUNT, EPOCHS = 48, 2
#: Of each method, what makes it do something to 48 digits in two epochs.
OPTIONS = {
    "bdw": {},
    "dw": {"eta": 0.3, "eta_scale": "history", "lam": 0.0},
    "l2rw": {},
    "nn": {"nn_beta": 0.02},
    "oracle": {"domain": "even"},
    "uniform": {},
}
every_method = pytest.mark.parametrize("name", METHODS)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A store with an image that does not decode, and with two domains: even and odd places."""
    folder = tmp_path_factory.mktemp("data")
    toyset.make_store(folder / "store", COUNT, {9: b"no picture"})
    toyset.make_target(folder / "target")
    record(folder / "store")
    return folder


def record(store):
    """The domains of a store beside its shards."""
    held, _ = index.build(shard_set.resolve(store))
    domains.save(held, domains.Domains(("even", "odd"), np.arange(len(held)) % 2), store / domains.FILE_NAME)


def go(data, out, name, progress=None, **changes):
    return toyset.run_on(data, out, progress, **{"method": name, "epochs": EPOCHS, **OPTIONS[name], **changes})


class Stopped(BaseException):
    """What a test stops a run by."""


class StopAt(NullProgress):
    """Stops a run at its n-th step."""

    def __init__(self, step):
        self.left = step

    def step(self, images, numbers):
        self.left -= 1
        if self.left == 0:
            raise Stopped


@pytest.mark.slow
@every_method
def test_stopped_and_resumed_with_other_workers_it_leaves_the_same_bytes(data, tmp_path, name):
    """One worker and never stopped; two workers, stopped in the first epoch and in the second."""
    go(data, tmp_path / "whole", name, workers=1)
    for step in (2, 4):
        with pytest.raises(Stopped):
            go(data, tmp_path / "run", name, StopAt(step), workers=2)
    go(data, tmp_path / "run", name, workers=2)
    assert toyset.same_run(tmp_path / "run") == toyset.same_run(tmp_path / "whole")


@every_method
def test_the_ledger_has_the_same_columns_for_all(data, tmp_path, name):
    """A Beta fills a, b and below, a point weight leaves all three null; the image that does not decode is named."""
    go(data, tmp_path, name)
    for epoch in (1, 2):
        table = pq.read_table(tmp_path / "ledger" / f"epoch={epoch:04d}" / "part-0.parquet", partitioning=None)
        assert table.schema.remove_metadata() == SCHEMA
        empty = {column: table[column].null_count == len(table) for column in ("a", "b", "below")}
        assert set(empty.values()) == {name != "bdw"}
        assert 0 <= min(table["mean"].to_pylist()) <= max(table["mean"].to_pylist()) <= 1
    if name != "oracle":  # 9 is odd, and out from the start
        assert [row for row in toyset.partition(tmp_path, 1, "row", "error") if row[1]] == [(9, "not-an-image")]


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("bdw", "dw")])
def test_what_prunes_nothing_keeps_every_image_that_decodes(data, tmp_path, name):
    """Whatever the weights; the manifest says so in words."""
    go(data, tmp_path, name)
    wanted = range(0, COUNT, 2) if name == "oracle" else (row for row in range(COUNT) if row != 9)
    assert toyset.manifest(tmp_path, EPOCHS) == list(wanted)
    footer = pq.read_metadata(tmp_path / "manifests" / "epoch=0002.parquet").metadata[b"curate"]
    assert b"drop none for its weight" in footer


def test_the_oracle_trains_on_its_own_domain_alone(data, tmp_path):
    """24 of 48 images in every epoch, none of the others in the ledger; 24 in the curated shards."""
    summary = go(data, tmp_path, "oracle")
    assert (summary.kept, summary.examples) == (24, 48)
    for epoch in (1, 2):
        assert [row for (row,) in toyset.partition(tmp_path, epoch, "row")] == list(range(0, COUNT, 2))
        assert toyset.metrics(tmp_path)[epoch - 1]["images"] == 24


def test_the_oracle_and_uniform_need_no_target(data, tmp_path):
    """They look at none."""
    for name in ("oracle", "uniform"):
        fast = {"pretext": "reconstruction", "size": 8, "crop": 8, "hidden": 8, "epochs": 1, "batch": 16, "workers": 0}
        options = {"store": str(data / "store"), "method": name, "device": "cpu", **fast, **OPTIONS[name]}
        assert from_options(options).target == ""
        assert toyset.run(from_options(options), tmp_path / name).kept in (24, 47)


def test_an_oracle_without_two_images_says_so(data, tmp_path):
    """Batch norm needs two; the domain and its count are named."""
    folder = tmp_path / "data"
    toyset.make_data(folder, 32)
    held, _ = index.build(shard_set.resolve(folder / "store"))
    codes = (np.arange(len(held)) > 0).astype(np.int32)
    domains.save(held, domains.Domains(("lonely", "rest"), codes), folder / "store" / domains.FILE_NAME)
    with pytest.raises(NothingLeft, match="--domain lonely: 1 of 32 images of the store is of it"):
        go(folder, tmp_path / "run", "oracle", domain="lonely")


def test_a_dry_run_of_nn_measures_no_distance(tmp_path, monkeypatch):
    """It times the steps, which are those of plain training, and says what it left out."""
    store, target = toyset.make_store(tmp_path / "store"), toyset.make_target(tmp_path / "target")
    options = applicable("nn", {**toyset.FAST, "method": "nn", "store": str(store), "target": str(target)})
    monkeypatch.setattr(target_distances, "measure", lambda *given: pytest.fail("measured"))
    forecast = dry_run(from_options(options), tmp_path / "dry")
    assert forecast.steps == 18  # 96 images in batches of 16, three epochs
    assert any("for its distances" in note for note in forecast.notes)
    assert forecast.episode == "40 train images; every image of the store is held against its nearest"
    assert not (tmp_path / "dry").exists()
    with pytest.raises(Misuse, match="--target is missing"):
        dry_run(from_options({**options, "target": ""}), tmp_path / "dry")
