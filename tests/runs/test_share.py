"""Runs whose images learn from one another: found once, kept and checked, resumed to the byte; and dropped images that
return."""

from __future__ import annotations

import shutil
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset
from test_run_resume import StopIn, Stopped

import curate
from curate.errors import CurateError, Misuse, RunMismatch
from curate.ledger import ledger
from curate.runs.dry_run import dry_run
from shards.rewriting.verify import verify

N = 96
#: The VAE of the toy store, its pixels as features.
OPTIONS = {"share": "clusters:6", "encoder": "pixels", "epochs": 4, "lam": 0.49}
RETURNING = {**OPTIONS, "returns": True, "rewrite": "always"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Digits, one of which does not decode."""
    folder = tmp_path_factory.mktemp("data")
    toyset.make_store(folder / "store", N, broken={5: b"no picture"})
    toyset.make_target(folder / "target")
    return folder


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    """A finished run in which images return."""
    out = tmp_path_factory.mktemp("done") / "run"
    toyset.run_on(data, out, **RETURNING)
    return out


@pytest.mark.parametrize("share", ["clusters:6", "neighbours:5"])
def test_look_alikes_are_found_once_and_kept(data, tmp_path, share):
    """A place for every image; the same file for the same seed, whatever the workers."""
    asked = {**OPTIONS, "share": share, "epochs": 1}
    toyset.run_on(data, tmp_path / "one", **asked)
    toyset.run_on(data, tmp_path / "two", **asked, workers=2)
    files = [(tmp_path / name / "look_alikes.parquet").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]
    alike = np.array([row for (row,) in toyset.rows_of(tmp_path / "one" / "look_alikes.parquet", "alike")])
    assert alike.shape == (N, 1 if share == "clusters:6" else 5)
    if share == "clusters:6":
        assert set(np.delete(alike, 5).tolist()) <= set(range(6))
        assert alike[5, 0] == 6
    else:
        sound = np.delete(alike, 5, 0)
        assert not (sound == np.delete(np.arange(N), 5)[:, None]).any()
        assert 5 not in sound


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("share", ["clusters:6", "neighbours:5"])
def test_a_stopped_run_leaves_the_same_bytes(data, done, tmp_path, epoch, share):
    """Both parts of a belief are in the checkpoint."""
    asked = {**RETURNING, "share": share}
    whole = done
    if share != RETURNING["share"]:
        whole = tmp_path / "whole"
        toyset.run_on(data, whole, **asked)
    with pytest.raises(Stopped):
        toyset.run_on(data, tmp_path / "run", StopIn(epoch), **asked)
    toyset.run_on(data, tmp_path / "run", **asked)
    assert toyset.same_run(tmp_path / "run") == toyset.same_run(whole)


def test_dropped_images_return(data, done):
    """Manifests are no subsets of those before; the ledger lists who is judged again, and who was live."""
    kept = [set(toyset.manifest(done, epoch)) for epoch in (1, 2, 3, 4)]
    returned = [len(after - before) for before, after in pairwise(kept)]
    assert any(returned)
    lines = toyset.metrics(done)
    assert [line["returned"] for line in lines] == [0, *returned]
    assert [line["kept"] for line in lines] == [len(rows) for rows in kept]
    for epoch in (2, 3, 4):
        rows, live, held = (toyset.partition(done, epoch, name) for name in ("row", "live", "kept"))
        assert [row for (row,) in rows] == [row for row in range(N) if row != 5]
        assert {row for (row,), (now,) in zip(rows, live) if now} == kept[epoch - 2]
        assert {row for (row,), (now,) in zip(rows, held) if now} == kept[epoch - 1]
        assert lines[epoch - 1]["images"] == len(kept[epoch - 2])
        assert lines[epoch - 1]["pruned"] == len(kept[epoch - 2] - kept[epoch - 1])
    assert verify(done / "curated", against=toyset.indexed(data / "store")) == []


def test_weights_say_when_an_image_went_for_good(done):
    """The first epoch of those that dropped it to the end; null for what returned and stayed."""
    kept = [set(toyset.manifest(done, epoch)) for epoch in (1, 2, 3, 4)]
    weights = ledger.read_final(done)
    for row, epoch in zip(weights["row"].to_pylist(), weights["pruned_epoch"].to_pylist()):
        held = [row in rows for rows in kept]
        if row == 5:
            assert epoch == 1
        elif held[-1]:
            assert epoch is None
        else:
            assert epoch == 1 + max([number for number, now in enumerate(held, 1) if now], default=0)
    assert ledger.final(done, 2)["kept"].to_pylist() == [row in kept[1] for row in weights["row"].to_pylist()]


def test_live_images_are_counted_as_such(done):
    """`curate ledger` and the report go by who was trained on."""
    kept = [len(toyset.manifest(done, epoch)) for epoch in (1, 2, 3, 4)]
    lines = curate.ledger_summary(done)
    assert [line["live"] for line in lines] == [N, *kept[:-1]]
    assert [line["kept"] for line in lines] == kept


def test_without_return_a_manifest_is_a_subset_of_the_one_before(data, tmp_path):
    """And the ledger has no further column."""
    toyset.run_on(data, tmp_path / "run", **OPTIONS)
    kept = [set(toyset.manifest(tmp_path / "run", epoch)) for epoch in (1, 2, 3, 4)]
    assert kept[0] > kept[-1]
    assert all(after <= before for before, after in pairwise(kept))
    assert "live" not in ledger.read_epoch(tmp_path / "run", 2).column_names
    assert "returned" not in toyset.metrics(tmp_path / "run")[0]


def test_what_a_prior_dropped_may_return(data, done, tmp_path):
    """It was never visited, and is judged by what it was believed to be and what its cluster teaches."""
    means = ledger.read_final(done).select(["shard", "key"])
    spread = np.random.default_rng(0).uniform(0.2, 0.8, len(means))
    pq.write_table(means.append_column("mean", pa.array(spread)), tmp_path / "prior.parquet")
    asked = {**RETURNING, "prior": str(tmp_path / "prior.parquet"), "warmup": 1}
    toyset.run_on(data, tmp_path / "run", **asked)
    kept = [set(toyset.manifest(tmp_path / "run", epoch)) for epoch in range(5)]
    assert kept[0] > kept[1] or kept[0] == kept[1]  # a warm-up lets nothing in
    assert len(kept[0]) < N - 1
    back = set.union(*kept[2:]) - kept[0]
    assert back
    visits = dict(toyset.rows_of(tmp_path / "run" / "weights.parquet", "row", "visits"))
    assert all(visits[row] < 4 for row in back)


def test_a_damaged_file_is_named(data, tmp_path):
    """And made again where it is removed: the run goes on as it would have."""
    toyset.run_on(data, tmp_path / "run", **{**OPTIONS, "epochs": 1})
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    path = tmp_path / "run" / "look_alikes.parquet"
    column = pq.ParquetFile(path).metadata.row_group(0).column(3)
    assert column.path_in_schema.startswith("alike")
    begun = column.dictionary_page_offset or column.data_page_offset
    whole, at = bytearray(path.read_bytes()), begun + column.total_compressed_size - 9
    whole[at] ^= 1
    path.write_bytes(whole)
    with pytest.raises(CurateError, match=r"look_alikes\.parquet: .*; remove the file"):
        toyset.run_on(data, tmp_path / "run", **{**OPTIONS, "epochs": 2})
    path.unlink()
    for name in ("run", "copy"):
        toyset.run_on(data, tmp_path / name, **{**OPTIONS, "epochs": 2})
    assert toyset.same_run(tmp_path / "run") == toyset.same_run(tmp_path / "copy")


def test_other_look_alikes_are_another_run(data, done, tmp_path):
    """By their kind and number and by the encoder."""
    shutil.copytree(done, tmp_path / "run")
    for change in ({"share": "clusters:5"}, {"share": "none", "returns": False, "encoder": "untrained"}, {"nets": 2}):
        with pytest.raises((RunMismatch, Misuse)):
            toyset.run_on(data, tmp_path / "run", **{**RETURNING, **change})


@pytest.mark.parametrize(("share", "most"), [("clusters", 96), ("neighbours", 95)])
def test_a_dry_run_says_that_there_are_too_few_images(data, tmp_path, share, most):
    """Before features are computed; as many as there are pass."""
    said = []
    for count in (most, most + 1):
        asked = toyset.config(data / "store", data / "target", **OPTIONS | {"share": f"{share}:{count}"})
        said.append([problem for problem in dry_run(asked, tmp_path / "run").problems if "--share" in problem])
    assert said == [[], [f"--share {share}:{most + 1}: of 96 images; give at most {most}"]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": "all"}, "--share all: expected none, clusters:K or neighbours:N"),
        ({"share": "clusters:"}, "--share clusters:: expected none, clusters:K or neighbours:N"),
        ({"share": "clusters:1"}, r"--share clusters:1: clusters must be in 2\.\.65536"),
        ({"share": "neighbours:99999999999"}, r"neighbours must be in 1\.\.256"),
        ({"share": "clusters:200"}, "--share clusters:200: of 96 images; give at most 96"),
        ({"share": "neighbours:95"}, "--share neighbours:95: of 95 images; give at most 94"),
        ({"meta_momentum": 0.9}, "--share clusters:6: with --meta-momentum 0.9 an image coasts on its own visits"),
        ({"share": "none", "returns": True, "encoder": "untrained"}, "--return: .*add --share clusters:64"),
        ({"share": "none"}, "--encoder pixels: says nothing .*add --prior classifier or --share"),
        ({"method": "dw"}, "--share clusters:6: says nothing to --method dw: its images have no beliefs to share"),
        ({"method": "dw", "share": "none", "returns": True, "encoder": "untrained"}, "--return True: says nothing"),
    ],
)
def test_what_cannot_be_meant(data, tmp_path, changes, message):
    """One line, what to do, and no run."""
    asked = {**OPTIONS, "epochs": 1, **changes}
    asked = {name: value for name, value in asked.items() if not (changes.get("method") == "dw" and name == "lam")}
    with pytest.raises(Misuse, match=message):
        toyset.run_on(data, tmp_path / "run", **asked)


def test_the_command_line_calls_it_return():
    """Python keeps the word for itself; files and Python say ``returns``."""
    from curate.cli.run import run

    flags = {parameter.name: (parameter.opts, parameter.secondary_opts) for parameter in run.params}
    assert flags["returns"] == (["--return"], ["--no-return"])
