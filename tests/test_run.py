"""Whole runs on a tiny store: what is conserved, what is written, what changes no byte, what is refused."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import toyset
from scipy.special import betainc
from shard_makers import read_set, write_tar

from curate import checkpoint, provenance
from curate.errors import CurateError, Misuse, NonFinite, NothingLeft, RunMismatch
from curate.progress import Silent
from curate.run import run
from shards.errors import ShardError
from shards.verify import verify

COUNT, EPOCHS, BATCH = 96, 4, 16
BROKEN = {5: b"no picture", 40: b"", 77: b"\x89PNG\r\n\x1a\n cut"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a store and a target."""
    folder = tmp_path_factory.mktemp("data")
    toyset.make_store(folder / "store", COUNT)
    toyset.make_target(folder / "target")
    return folder


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A finished run and what it returned."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return out, go(data, out)


def go(data, out, progress=None, **changes):
    config = toyset.config(data / "store", data / "target", **{"epochs": EPOCHS, **changes})
    return run(config, out, progress)


def partition(out, epoch, *columns):
    return toyset.rows_of(out / "ledger" / f"epoch={epoch:04d}" / "part-0.parquet", *columns)


def manifest(out, epoch):
    return [row for (row,) in toyset.rows_of(out / "manifests" / f"epoch={epoch:04d}.parquet", "row")]


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


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


def test_who_stays_is_method_md_section_4(whole):
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
    assert verify(out / "curated", against=str(data / "store")).faults == ()


def test_metrics_have_a_line_an_epoch_that_adds_up(whole):
    """What design.md section 3 lists, with the counts of ledger and manifest."""
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
    [{}, {"workers": 1}, {"workers": 2}, {"cache_bytes": 0}, {"rewrite": "always", "cache_bytes": 0}, {"rewrite": "end"}],
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
        assert verify(folder, against=str(data / "store")).faults == ()
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


IMAGELESS, UNSAFE = COUNT, COUNT + 1
REASONS = {5: "not-an-image", 40: "empty-member", 77: "truncated-image", IMAGELESS: "no-image", UNSAFE: "unsafe-name"}


def test_what_does_not_decode_is_dropped_after_the_first_epoch(damaged, tmp_path):
    """With its reason in the ledger, never visited, and in no later partition, manifest or shard."""
    out = tmp_path / "run"
    go(damaged, out, epochs=2)
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
    go(damaged, out, epochs=2, undecodable="keep")
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


def test_a_warm_up_prunes_nothing(data, tmp_path):
    """And moves no belief: all are still Beta(1, 1)."""
    out = tmp_path / "run"
    go(data, out, warmup=1, epochs=2)
    assert manifest(out, 1) == list(range(COUNT))
    assert {row[:2] for row in partition(out, 1, "a", "b")} == {(1.0, 1.0)}
    assert len({row for row in partition(out, 2, "a", "b")}) > COUNT / 2


def test_plain_training_keeps_everything(data, tmp_path):
    """Weights of 1, no beliefs; its curated set is the store's samples."""
    out = tmp_path / "run"
    summary = go(data, out, method="uniform", epochs=2)
    assert summary.kept == COUNT
    assert set(partition(out, 2, "a", "b", "mean")) == {(None, None, 1.0)}
    assert read_set(out / "curated") == read_set(data / "store")


def test_rotation_with_prototypes_runs_whole(data, tmp_path):
    """The other pretext and meta-loss, on the small ResNet with batch norm; the notes say what the episode lacks."""
    heard = Heard()
    changes = {"pretext": "rotation", "meta_loss": "prototypical", "reference": "none", "width": 4, "lr": 0.01}
    go(data, tmp_path / "run", heard, epochs=2, lam=0.3, ways=12, shots=2, size=9, momentum=0.9, **changes)
    assert any("episodes have 10 ways, not 12" in note for note in heard.notes)
    assert metrics(tmp_path / "run")[-1]["meta_loss"] > 0
    assert len({a for (a,) in partition(tmp_path / "run", 1, "a")}) > COUNT / 2


class Heard(Silent):
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


def test_progress_hears_what_happens(data, tmp_path):
    """Epochs with their sizes, all images, and a report an epoch that is the line of metrics.jsonl."""
    heard = Heard()
    go(data, tmp_path / "run", heard, epochs=2)
    lines = metrics(tmp_path / "run")
    assert heard.began == (2, 0)
    assert heard.epochs == [(1, COUNT, COUNT), (2, lines[0]["kept"], COUNT)]
    assert heard.images == sum(line["images"] for line in lines)
    assert [report.kept for report in heard.reports] == [line["kept"] for line in lines]


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


def test_another_configuration_is_refused(whole, data):
    """Both values are shown, and nothing is touched."""
    before = toyset.same_run(whole[0])
    with pytest.raises(RunMismatch, match=r"--seed was 0, is 3; --lam was 0\.45, is 0\.4;|--lam .*--seed"):
        go(data, whole[0], seed=3, lam=0.4)
    assert toyset.same_run(whole[0]) == before


def test_another_store_is_refused(whole, data, tmp_path):
    """In another place or in the same: a run belongs to the bytes it was begun with."""
    toyset.make_store(tmp_path / "store", COUNT, first=200)
    config = toyset.config(tmp_path / "store", data / "target", epochs=EPOCHS)
    with pytest.raises((RunMismatch, ShardError), match="was|changed"):
        run(config, whole[0])


def test_learning_needs_a_target(data, tmp_path):
    """Plain training does not."""
    config = dataclasses.replace(toyset.config(data / "store", data / "target"), target="")
    with pytest.raises(CurateError, match="--method bdw needs a --target"):
        run(config, tmp_path / "run")


def test_a_training_that_diverges_says_so_and_leaves_no_curated_set(data, tmp_path):
    """A rate of 1e6: numbers end within an epoch."""
    with pytest.raises(NonFinite, match=r"epoch \d, step \d+: the (training loss is|parameters are) not finite"):
        go(data, tmp_path / "run", lr=1e6)
    assert not (tmp_path / "run" / "curated").exists()
