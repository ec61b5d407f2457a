"""Whole runs on a tiny store: what is conserved, what is written, and what changes no byte."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import toyset
from scipy.special import betainc
from shard_makers import read_set
from toyset import manifest, metrics, partition

from curate.progress import NullProgress
from curate.runs import checkpoint, provenance
from shards.rewriting.verify import verify

COUNT, EPOCHS, BATCH = 96, 4, 16


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a store and a target."""
    return toyset.make_data(tmp_path_factory.mktemp("data"), COUNT)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A finished run and what it returned."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return out, go(data, out)


def go(data, out, progress=None, **changes):
    return toyset.run_on(data, out, progress, **{"epochs": EPOCHS, **changes})


def test_each_partition_has_what_was_live_and_each_manifest_less(whole):
    """in = kept + pruned at every epoch; what is pruned never returns; this run does prune, and keeps some."""
    out, summary = whole
    live = list(range(COUNT))
    for epoch in range(1, EPOCHS + 1):
        assert [row for row, _ in partition(out, epoch, "row", "kept")] == live
        kept = [row for row, is_kept in partition(out, epoch, "row", "kept") if is_kept]
        assert manifest(out, epoch) == kept
        assert set(kept) <= set(live)
        live = kept
    assert summary.kept == len(live)
    assert BATCH <= len(live) < COUNT / 2


def test_who_stays_is_by_the_mass_below_lambda(whole):
    """Kept iff the Beta's mass below lambda is at most rho, by scipy's own function of the ledger's a and b."""
    out, _ = whole
    for epoch in range(1, EPOCHS + 1):
        rows = partition(out, epoch, "a", "b", "mean", "below", "kept")
        a, b, mean, below, kept = (np.array(column, np.float64) for column in zip(*rows))
        mass = betainc(a, b, 0.45)
        assert np.array_equal(mass <= 0.5, kept.astype(bool))
        np.testing.assert_allclose(below, mass, rtol=1e-6)
        np.testing.assert_allclose(mean, a / (a + b), rtol=1e-6)


def test_each_image_is_visited_once_an_epoch_while_it_is_live(whole):
    """So an image's visits are the epoch that pruned it, or all of them."""
    out, _ = whole
    final = toyset.rows_of(out / "weights.parquet", "row", "visits", "pruned_epoch", "error")
    assert [row for row, *_ in final] == list(range(COUNT))
    assert all(visits == (EPOCHS if pruned is None else pruned) for _, visits, pruned, _ in final)
    assert all(error is None for *_, error in final)
    pruned_in = {row: pruned for row, _, pruned, _ in final}
    for epoch in range(1, EPOCHS + 1):
        assert manifest(out, epoch) == [row for row in range(COUNT) if (pruned_in[row] or 99) > epoch]


def test_the_curated_shards_are_the_last_manifest_to_the_byte(whole, data):
    """Every member of what is kept, in store order, and nothing else; proved by verify too."""
    out, _ = whole
    keys = [key for (key,) in toyset.rows_of(out / "manifests" / f"epoch={EPOCHS:04d}.parquet", "key")]
    expected = [(name, body) for name, body in read_set(data / "store") if name.split(".")[0] in keys]
    assert read_set(out / "curated") == expected
    assert verify(out / "curated", against=toyset.indexed(data / "store")) == []


def test_metrics_have_a_line_an_epoch_that_adds_up(whole):
    """Losses, counts, rate, seconds by stage and memory, with the counts of ledger and manifest."""
    out, _ = whole
    lines = metrics(out)
    assert [line["epoch"] for line in lines] == list(range(1, EPOCHS + 1))
    named = {"epoch", "images", "kept", "pruned", "pretext_loss", "meta_loss", "mean_belief", "meta_gradient_rms"}
    named |= {"nonfinite_rows", "learning_rate", "seconds", "images_per_second", "peak_memory"}
    for line in lines:
        assert named <= set(line)
        assert set(line["seconds"]) == {"load", "step", "ledger", "prune", "rewrite", "checkpoint"}
        assert all(math.isfinite(value) for name, value in line.items() if name != "seconds")
        assert line["kept"] == len(manifest(out, line["epoch"]))
        assert line["images"] == line["kept"] + line["pruned"] == len(partition(out, line["epoch"], "row"))
        means = [mean for (mean,) in partition(out, line["epoch"], "mean")]
        assert line["mean_belief"] == pytest.approx(np.mean(means), rel=1e-6)
    assert lines[-1]["pretext_loss"] < lines[0]["pretext_loss"]


def test_everything_written_says_which_run_it_is_of(whole):
    """The run id is in run.json and in the footer of every ledger partition and manifest."""
    out, summary = whole
    assert provenance.read_run(out)["run_id"] == summary.run_id
    paths = [*out.glob("ledger/*/*.parquet"), *out.glob("manifests/*.parquet"), out / "weights.parquet"]
    assert len(paths) == 2 * EPOCHS + 1
    for path in paths:
        footer = b" ".join(pq.read_schema(path).metadata.values())
        assert summary.run_id.encode() in footer


def test_nothing_but_the_run_directory_is_written(whole, data):
    """The store gets no index; the run leaves no file under a temporary name."""
    out, _ = whole
    assert not list((data / "store").glob("*.parquet"))
    assert not [path for path in out.rglob("*") if path.name.startswith(".")]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workers": 1},
        pytest.param({"workers": 2}, marks=pytest.mark.slow),
        {"cache_bytes": 0},
        {"rewrite": "always", "cache_bytes": 0},
        {"rewrite": "end"},
    ],
    ids=str,
)
def test_what_changes_no_byte(whole, data, tmp_path, changes):
    """Workers, memory and when shards are rewritten: the same id and the same bytes in every lasting file."""
    go(data, tmp_path / "run", **changes)
    one, two = toyset.same_run(whole[0]), toyset.same_run(tmp_path / "run")
    assert one.keys() == two.keys()
    # A checkpoint says which generation is read next; that is the policy's.
    differ = {name for name in one if one[name] != two[name]}
    assert not {name for name in differ if not name.endswith("state.json")}
    assert not differ or changes.get("rewrite")


def test_another_seed_is_another_run(whole, data, tmp_path):
    """Other beliefs, another id."""
    summary = go(data, tmp_path / "run", seed=1, epochs=1)
    assert summary.run_id != whole[1].run_id
    assert partition(tmp_path / "run", 1, "a") != partition(whole[0], 1, "a")


def test_superseded_generations_go_unless_they_are_to_stay(whole, data, tmp_path):
    """`--keep-generations` with `--rewrite always`: one after each epoch that pruned, but the last, each whole."""
    assert not (whole[0] / "shards").exists()
    out = tmp_path / "run"
    go(data, out, rewrite="always", keep_generations=True)
    pruning = [line["epoch"] for line in metrics(out)[:-1] if line["pruned"]]
    folders = sorted((out / "shards").iterdir())
    assert [folder.name for folder in folders] == [f"generation={n}" for n in range(1, len(pruning) + 1)]
    for folder, epoch in zip(folders, pruning):
        assert verify(folder, against=toyset.indexed(data / "store")) == []
        assert [row for (row,) in toyset.rows_of(folder / "manifest.parquet", "row")] == manifest(out, epoch)


def test_auto_rewrites_when_over_half_of_what_is_held_is_pruned(data, tmp_path):
    """And then reads from the new shards: the generation in each checkpoint follows the counts of metrics.jsonl."""
    out = tmp_path / "run"
    go(data, out, keep_generations=True)
    held, generation = COUNT, 0
    for line in metrics(out):
        if line["kept"] < held / 2 and line["epoch"] < EPOCHS:
            held, generation = line["kept"], generation + 1
        said = json.loads((checkpoint.folder(out, line["epoch"]) / "state.json").read_text())
        assert said["generation"] == generation
    assert generation >= 1


def test_a_warm_up_prunes_nothing(data, tmp_path):
    """And moves no belief: all are still Beta(1, 1)."""
    out = tmp_path / "run"
    go(data, out, warmup=1, epochs=2)
    assert manifest(out, 1) == list(range(COUNT))
    assert {row[:2] for row in partition(out, 1, "a", "b")} == {(1.0, 1.0)}
    assert len(set(partition(out, 2, "a", "b"))) > COUNT / 2


def test_plain_training_keeps_everything(data, tmp_path):
    """Weights of 1, no beliefs; its curated set is the store's samples."""
    out = tmp_path / "run"
    summary = go(data, out, method="uniform", epochs=2)
    assert summary.kept == COUNT
    assert set(partition(out, 2, "a", "b", "mean")) == {(None, None, 1.0)}
    assert read_set(out / "curated") == read_set(data / "store")


class Heard(NullProgress):
    """Keeps what it is told."""

    def __init__(self):
        self.notes, self.began, self.epochs, self.images, self.reports = [], None, [], 0, []

    def note(self, text):
        self.notes.append(text)

    def begin(self, epochs, done):
        self.began = (epochs, done)

    def epoch(self, epoch, images, examples):
        self.epochs.append((epoch, images, examples))

    def step(self, images, numbers):
        self.images += images

    def report(self, report):
        self.reports.append(report)


def test_the_same_key_in_two_shards_is_two_examples(tmp_path):
    """Merged stores have them: each has its own row and fate, and `--rename prefix` tells them apart in the end."""
    for part in ("a", "b"):
        toyset.make_store(tmp_path / "store" / part, COUNT // 2)
    toyset.make_target(tmp_path / "target")
    out = tmp_path / "run"
    go(tmp_path, out, epochs=2, rename="prefix")
    named = partition(out, 1, "shard", "key")
    assert len(set(named)) == COUNT
    assert len({key for _, key in named}) == COUNT // 2
    kept = toyset.rows_of(out / "manifests" / "epoch=0002.parquet", "shard", "key")
    found = [name for name, _ in read_set(out / "curated") if name.endswith(".png")]
    assert found == [f"{shard.removesuffix('.tar')}/{key}.png" for shard, key in kept]
    heard = Heard()
    go(tmp_path, tmp_path / "plain", heard, epochs=1)
    both = len(manifest(tmp_path / "plain", 1)) - len(
        set(toyset.rows_of(tmp_path / "plain" / "manifests" / "epoch=0001.parquet", "key"))
    )
    assert both > 0
    assert [note for note in heard.notes if note.startswith(f"{both} kept keys are in several shards")]


@pytest.mark.parametrize("count", [2, 10])
def test_a_store_smaller_than_a_batch_is_trained_on_all_the_same(tmp_path, count):
    """One short step an epoch."""
    toyset.make_store(tmp_path / "store", count)
    toyset.make_target(tmp_path / "target")
    go(tmp_path, tmp_path / "run", epochs=2, lam=0.01)
    assert [line["images"] for line in metrics(tmp_path / "run")] == [count, count]
    assert [visits for (visits,) in partition(tmp_path / "run", 2, "visits")] == [2] * count


def test_the_vae_reconstructs_colour_too(data, tmp_path):
    """Three channels, normalised to [-1, 1] as one."""
    go(data, tmp_path / "run", epochs=1, colour="rgb")
    assert provenance.read_run(tmp_path / "run")["configuration"]["mean"] == [0.5, 0.5, 0.5]


def test_rotation_with_prototypes_runs_whole(data, tmp_path):
    """The other pretext and meta-loss, on the small ResNet with batch norm; the notes say what the episode lacks."""
    heard = Heard()
    changes = {"pretext": "rotation", "meta_loss": "prototypical", "reference": "none", "width": 4, "lr": 0.01}
    go(data, tmp_path / "run", heard, epochs=2, lam=0.3, ways=12, shots=2, size=9, momentum=0.9, **changes)
    assert any("episodes have 10 ways, not 12" in note for note in heard.notes)
    assert metrics(tmp_path / "run")[-1]["meta_loss"] > 0
    assert len({a for (a,) in partition(tmp_path / "run", 1, "a")}) > COUNT / 2


def test_progress_hears_what_happens(data, tmp_path):
    """Epochs with their sizes, all images, and a report an epoch that is the line of metrics.jsonl."""
    heard = Heard()
    go(data, tmp_path / "run", heard, epochs=2)
    lines = metrics(tmp_path / "run")
    assert heard.began == (2, 0)
    assert heard.epochs == [(1, COUNT, COUNT), (2, lines[0]["kept"], COUNT)]
    assert heard.images == sum(line["images"] for line in lines)
    assert [report.kept for report in heard.reports] == [line["kept"] for line in lines]
