"""What a run leaves out, where it stops, and what it refuses before it touches anything."""

from __future__ import annotations

import dataclasses

import pytest
import toyset
from shard_makers import read_set, write_tar
from toyset import manifest, metrics, partition

from curate.errors import Misuse, NonFinite, NothingLeft, RunMismatch
from curate.runs.run import run
from shards.errors import ShardsChanged
from shards.indexing import index_file

COUNT = 96
BROKEN = {5: b"no picture", 40: b"", 77: b"\x89PNG\r\n\x1a\n cut"}
IMAGELESS, UNSAFE = COUNT, COUNT + 1
REASONS = {5: "not-an-image", 40: "empty-member", 77: "truncated-image", IMAGELESS: "no-image", UNSAFE: "unsafe-name"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a store and a target."""
    return toyset.make_data(tmp_path_factory.mktemp("data"), COUNT)


@pytest.fixture(scope="module")
def begun(data, tmp_path_factory):
    """The directory of a run of one epoch."""
    out = tmp_path_factory.mktemp("begun") / "run"
    go(data, out, epochs=1)
    return out


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A store with three images that do not decode, a sample without an image, and one with an unsafe name."""
    folder = tmp_path_factory.mktemp("damaged")
    toyset.make_store(folder / "store", COUNT, BROKEN)
    picture = toyset.png(toyset.digits()[0][500])
    members = [("alone.txt", b"no image"), ("../up.png", picture), ("zz.png", picture)]
    write_tar(folder / "store" / "000009.tar", members)
    toyset.make_target(folder / "target")
    return folder


def go(data, out, **changes):
    return toyset.run_on(data, out, **changes)


def test_what_does_not_decode_is_dropped_after_the_first_epoch(damaged, tmp_path):
    """With its reason in the ledger, never visited, and in no later partition, manifest or shard."""
    out = tmp_path / "run"
    go(damaged, out, epochs=2, batch=14)
    first = partition(out, 1, "row", "error", "visits", "kept")
    assert [row for row, *_ in first] == list(range(COUNT + 3))
    assert {row: error for row, error, *_ in first if error} == REASONS
    assert all(visits == (0 if error else 1) for _, error, visits, _ in first)
    assert not any(kept for _, error, _, kept in first if error)
    assert not set(REASONS) & {row for (row,) in partition(out, 2, "row")}
    assert metrics(out)[0]["images"] == COUNT + 3 - len(REASONS)
    names = {name for name, _ in read_set(out / "curated")}
    assert not names & {"000005.png", "000040.png", "000077.png", "alone.txt", "../up.png"}


def test_what_does_not_decode_may_be_kept(damaged, tmp_path):
    """`--undecodable keep`: in every manifest and in the curated set, never trained on; an unsafe name never is."""
    out = tmp_path / "run"
    go(damaged, out, epochs=2, batch=14, undecodable="keep")
    for epoch in (1, 2):
        held = {row: (error, visits) for row, error, visits in partition(out, epoch, "row", "error", "visits")}
        assert {row for row in REASONS if row != UNSAFE} <= set(manifest(out, epoch))
        assert UNSAFE not in manifest(out, epoch)
        assert all(held[row] == (reason, 0) for row, reason in REASONS.items() if row in held)
    kept = dict(read_set(out / "curated"))
    assert kept["000005.png"] == BROKEN[5]
    assert kept["alone.txt"] == b"no image"
    assert "../up.png" not in kept


def test_pruning_nearly_everything_stops_the_run(data, tmp_path):
    """It names what was set and the last manifest; the ledger shows why; there is no curated set."""
    out = tmp_path / "run"
    with pytest.raises(NothingLeft, match=r"after epoch 1 only \d+ images .* less than a batch \(16\), .*--lam 0\.9"):
        go(data, out, lam=0.9, rho=0.1)
    assert not (out / "curated").exists()
    assert not (out / "manifests").exists()
    assert len(partition(out, 1, "row")) == COUNT
    with pytest.raises(NothingLeft, match=r"after epoch 3 .* the last manifest is .*epoch=0002\.parquet"):
        go(data, tmp_path / "later", lam=0.9, rho=0.1, warmup=2)


@pytest.mark.parametrize("place", ["store/run", "target/run", "target", "."])
def test_an_output_that_overlaps_the_input_is_refused(data, place):
    """Below the store or the target, the same folder, or around them; before anything is read or written."""
    with pytest.raises(Misuse, match=r"--out .*: overlaps the (store|target) .*; name a folder apart from it"):
        go(data, data / place)
    assert not (data / place / "run.json").exists()


def test_a_folder_with_other_files_is_refused(data, tmp_path):
    """It is not ours to fill."""
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(Misuse, match=r"holds files, but no run\.json; name a new folder"):
        go(data, tmp_path)


def test_another_configuration_is_refused(begun, data):
    """Both values are shown, and nothing is touched."""
    before = toyset.same_run(begun)
    with pytest.raises(RunMismatch, match=r"--seed was 0, is 3; --lam was 0\.45, is 0\.4;|--lam .*--seed"):
        go(data, begun, epochs=1, seed=3, lam=0.4)
    assert toyset.same_run(begun) == before


def test_shards_that_changed_are_refused(begun, data, tmp_path):
    """The run's own index says what they were: the first shard that differs is named."""
    toyset.make_store(tmp_path / "store", COUNT, first=200)
    with pytest.raises(ShardsChanged, match=r"000000\.tar: .*changed"):
        run(toyset.config(tmp_path / "store", data / "target", epochs=1), begun)


def test_another_store_or_target_is_refused(begun, data, tmp_path):
    """One with an index of its own, and a target of other images: both fingerprints are shown."""
    index_file.save(
        toyset.indexed(toyset.make_store(tmp_path / "store", COUNT, first=200)), tmp_path / "store" / "index.parquet"
    )
    toyset.make_target(tmp_path / "target", 30)
    other = r"holds other images or names than it did \(fingerprint [0-9a-f]{12}, now [0-9a-f]{12}\)"
    message = rf"the store {other}; the target {other}; start"
    with pytest.raises(RunMismatch, match=message):
        run(toyset.config(tmp_path / "store", tmp_path / "target", epochs=1), begun)


def test_learning_needs_a_target(data, tmp_path):
    """Plain training does not."""
    config = dataclasses.replace(toyset.config(data / "store", data / "target"), target="")
    with pytest.raises(Misuse, match="--method bdw needs a --target"):
        run(config, tmp_path / "run")


def test_a_training_that_diverges_says_so_and_leaves_no_curated_set(data, tmp_path):
    """A rate of 1e6: numbers end within an epoch."""
    with pytest.raises(NonFinite, match=r"epoch \d, step \d+: the (training loss is|parameters are) not finite"):
        go(data, tmp_path / "run", lr=1e6)
    assert not (tmp_path / "run" / "curated").exists()
