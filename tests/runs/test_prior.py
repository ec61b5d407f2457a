"""Runs that know something before their first epoch: epoch 0 by a classifier or a file, and what follows from it."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset
from click.testing import CliRunner
from sklearn.datasets import load_sample_images
from test_run_continued import BEGUN, OLD
from test_run_resume import StopIn, Stopped, stop_at_rename

import curate
from curate.cli.ledger import ledger as ledger_verb
from curate.config import catalogue
from curate.config.defaults import paper, resolve
from curate.config.schema import from_options, read_options
from curate.errors import CurateError, Error, Misuse, NothingLeft, RunMismatch
from curate.ledger import ledger, pruner
from curate.progress import NullProgress
from curate.runs import prior, provenance
from curate.runs.dry_run import dry_run
from curate.runs.features import Choice, features
from curate.runs.inputs import check_inputs
from curate.runs.run import run
from curate.training import engine
from shards.rewriting.verify import verify
from shards.tar.writer import write_shards

DIGITS, PATCHES = 60, 240
N = DIGITS + PATCHES + 1  # and one that does not decode
#: Prior and training of a second or two.
OPTIONS = {"prior": "classifier", "nets": 1, "epochs": 2, "reference": "none", "lam": 0.25, "rewrite": "always"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """60 digits among 240 patches of photographs, one image that does not decode; features of them are there."""
    folder = tmp_path_factory.mktemp("data")
    photographs, draws = load_sample_images().images, np.random.default_rng(0)
    digits = draws.permutation(toyset.digits()[0])  # they stand writer by writer, and the cut errs low between writers
    pictures = list(digits[:DIGITS])
    for number in range(PATCHES):
        photograph = photographs[number % 2]
        top, left = draws.integers(0, photograph.shape[0] - 32), draws.integers(0, photograph.shape[1] - 32)
        pictures.append(photograph[top : top + 32 : 2, left : left + 32 : 2].mean(2).astype(np.uint8))
    bodies = [
        (f"{'digit' if i < DIGITS else 'patch'}{i:04d}.png", toyset.png(pictures[i])) for i in range(len(pictures))
    ]
    turned = [bodies[i] for i in draws.permutation(len(bodies))]
    write_shards(folder / "store", [[body] for body in [*turned, ("zzz.png", b"no picture")]], shard_size=20_000)
    for split, first in (("train", 1000), ("val", 1100)):
        pngs = [[(f"{i:04d}.png", toyset.png(digits[i]))] for i in range(first, first + 60)]
        write_shards(folder / "target" / split, pngs)
    machine = toyset.MachineConfig(device="cpu", workers=0)
    features(toyset.indexed(folder / "store"), Choice("untrained", 1), None, machine, None, NullProgress())
    return folder


def go(data, out, progress=None, **changes):
    return toyset.run_on(data, out, progress, **{**OPTIONS, **changes})


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    """A finished run, and its summary."""
    out = tmp_path_factory.mktemp("done") / "run"
    return out, go(data, out)


@pytest.fixture(scope="module")
def chosen(data, tmp_path_factory):
    """The run of the selector itself, by the same features and seed."""
    out = tmp_path_factory.mktemp("chosen") / "run"
    asked = {"method": "classifier", "nets": 1, "workers": 0, "device": "cpu", "size": 16, "crop": 16}
    store, target = str(data / "store"), str(data / "target")
    run(from_options({"store": store, "target": target, **asked}), out)
    return out


@pytest.mark.parametrize("method", ["bdw", "dw"])
def test_before_the_first_epoch_the_classifiers_cut_is_kept(data, done, chosen, tmp_path, method):
    """`--prior classifier` says what `--method classifier` says, in the same facts; nothing else is trained on."""
    out = done[0]
    if method == "dw":
        out = tmp_path / "run"
        toyset.run_on(data, out, method="dw", prior="classifier", nets=1, epochs=1)
    assert toyset.manifest(out, 0) == toyset.manifest(chosen, 1)
    assert ledger.facts_of(out, 0) == ledger.facts_of(chosen, 1)
    errors = [error for (error,) in toyset.partition(out, 0, "error")]
    assert [error for error in errors if error] == ["not-an-image"]
    assert toyset.metrics(out)[0]["images"] == len(toyset.manifest(out, 0))
    assert [row for (row,) in toyset.partition(out, 1, "row")] == toyset.manifest(out, 0)


def test_it_finds_the_digits(done):
    """Or the tests here would show little: patches are gone before anything is trained, hardly a digit is."""
    keys = [key for key, kept in toyset.partition(done[0], 0, "key", "kept") if kept]
    own = sum(key.startswith("digit") for key in keys)
    assert own > 0.8 * DIGITS
    assert len(keys) - own < 10


def test_what_the_prior_pruned_stays_pruned(done):
    """In weights.parquet as pruned by epoch 0, never visited; judged again by `curate prune`, gone all the same."""
    out, summary = done
    weights = ledger.read_final(out)
    assert len(weights) == N
    gone = sorted(set(range(N)) - set(toyset.manifest(out, 0)))
    pruned = weights["pruned_epoch"].to_pylist()
    assert [row for row in range(N) if pruned[row] == 0] == gone
    assert all(weights["visits"][row].as_py() == 0 for row in gone)
    again = curate.prune(out)["row"].to_pylist()
    assert set(toyset.manifest(out, 2)) <= set(again)
    assert not set(gone) & set(again)
    assert len(curate.prune(out, lam=0.999)) < len(again)
    assert summary.kept == len(toyset.manifest(out, 2)) > 16


def test_a_run_shows_its_epoch_0(done, data):
    """`open_run`, `curate ledger` and the curated shards know of it; metrics.jsonl has a line a trained epoch."""
    out, summary = done
    opened = curate.open_run(out)
    assert opened.epochs == [1, 2]
    assert len(opened.ledger(0)) == N
    assert sorted(set(opened.ledger()["epoch"].to_pylist())) == [0, 1, 2]
    assert opened.manifest(0)["row"].to_pylist() == toyset.manifest(out, 0)
    assert len(opened.manifest()) == summary.kept
    assert ledger.final(out, 0)["kept"].to_pylist() == opened.ledger(0)["kept"].to_pylist()
    assert verify(out / "curated", against=toyset.indexed(data / "store")) == []
    said = CliRunner().invoke(ledger_verb, [str(out)], catch_exceptions=False).output
    assert said.splitlines()[2].split()[:3] == ["0", str(N), str(len(toyset.manifest(out, 0)))]


def test_shards_are_rewritten_before_the_first_epoch(data, tmp_path):
    """Under --rewrite always, what the prior pruned is not in the shards that epoch 1 reads."""
    out, seen = tmp_path / "run", []

    class Look(NullProgress):
        def epoch(self, epoch, images, examples):
            made = out / "shards" / "generation=1" / "manifest.parquet"
            seen.append(toyset.rows_of(made, "row") if made.exists() else None)

    go(data, out, Look(), epochs=1)
    assert [row for (row,) in seen[0]] == toyset.manifest(out, 0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bdw", "dw"])
def test_stopped_before_a_file_of_epoch_0_gets_its_name(monkeypatch, data, tmp_path, method):
    """run.json, the ledger and the manifest of epoch 0, its generation, the first files of epoch 1: the same bytes."""
    asked = {"epochs": 1, "method": method, "lam": 0.25 if method == "bdw" else 0.0, "rewrite": "always"}

    def start(out):
        toyset.run_on(data, out, prior="classifier", nets=1, **asked)

    start(tmp_path / "whole")
    whole = toyset.same_run(tmp_path / "whole")
    for number in range(1, 13):
        out = tmp_path / str(number)
        with monkeypatch.context() as patch:
            stop_at_rename(patch, number)
            with pytest.raises(Stopped):
                start(out)
        start(out)
        assert toyset.same_run(out) == whole, number
        shutil.rmtree(out)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_stopped_run_leaves_the_same_bytes(data, done, tmp_path, monkeypatch, epoch):
    """The prior is taken from the ledger: nothing is judged a second time."""
    with pytest.raises(Stopped):
        go(data, tmp_path / "run", StopIn(epoch))
    monkeypatch.setattr(prior, "_prior", lambda *_: pytest.fail("judged again"))
    go(data, tmp_path / "run")
    assert toyset.same_run(tmp_path / "run") == toyset.same_run(done[0])


def test_a_run_with_a_prior_is_extended(data, done, tmp_path):
    """Its ledger is that of a run that was begun so long."""
    go(data, tmp_path / "run", epochs=1)
    go(data, tmp_path / "run")
    for epoch in (0, 1, 2):
        columns = ("row", "a", "b", "mean", "kept", "visits")
        assert toyset.partition(tmp_path / "run", epoch, *columns) == toyset.partition(done[0], epoch, *columns)


def test_a_run_goes_on_with_its_prior_where_none_is_named(data, chosen, tmp_path):
    """As with the drops of the learning rate; named as another one it is refused."""
    asked = {"nets": 3, "epochs": 1}
    begun = go(data, tmp_path / "run", prior=str(chosen), **asked)
    assert go(data, tmp_path / "run", prior=None, nets=3).run_id == begun.run_id
    assert len(toyset.metrics(tmp_path / "run")) == 2
    with pytest.raises(RunMismatch, match=r"--prior was file [0-9a-f]{16}, is uniform;"):
        go(data, tmp_path / "run", prior="uniform", nets=3)


def test_a_lost_epoch_0_is_said_before_training(data, done, tmp_path):
    """As of any finished epoch."""
    shutil.copytree(done[0], tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "ledger" / "epoch=0000")
    with pytest.raises(CurateError, match=r"epoch=0000/part-0\.parquet: is missing; restore it"):
        go(data, tmp_path / "run", epochs=3)


def test_another_prior_is_another_run(data, done, tmp_path):
    """By its name, its strength, its encoder, and what a file says; not by where the file lies."""
    shutil.copytree(done[0], tmp_path / "run")
    for changes in ({"prior": "uniform", "nets": 3}, {"prior_strength": 8.0}, {"nets": 2}):
        with pytest.raises(RunMismatch, match="belongs to another run"):
            go(data, tmp_path / "run", **changes)
    told = ledger.read_final(done[0]).select(["shard", "key", "mean"])
    for name, table in (("one", told), ("two", told.take(pa.array(range(N)[::-1])))):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    go(data, tmp_path / "by-file", prior=str(tmp_path / "one.parquet"), nets=3, epochs=1)
    go(data, tmp_path / "by-file", prior=str(tmp_path / "two.parquet"), nets=3, epochs=1)
    pq.write_table(told.set_column(2, "mean", pa.array(np.full(N, 0.75))), tmp_path / "one.parquet")
    with pytest.raises(RunMismatch, match=r"--prior was file [0-9a-f]{16}, is file"):
        go(data, tmp_path / "by-file", prior=str(tmp_path / "one.parquet"), nets=3, epochs=1)


@pytest.mark.parametrize("place", [".", "ledger", "weights.parquet"])
def test_an_earlier_runs_beliefs_are_a_prior(data, done, tmp_path, place):
    """The run, its ledger, its weights: a and b as they are, so what it kept is kept before epoch 1."""
    out = tmp_path / "run"
    go(data, out, prior=str(done[0] / place), nets=3, epochs=1)
    assert set(toyset.manifest(out, 0)) >= set(toyset.manifest(done[0], 2))
    assert toyset.partition(out, 0, "a", "b") == toyset.rows_of(done[0] / "weights.parquet", "a", "b")
    assert ledger.facts_of(out, 0) == {}


def test_a_mean_at_the_boundary_is_at_the_boundary(data, chosen, tmp_path):
    """Means of a file are not moved: the selector's scores as a prior keep whoever lies above the boundary's mean."""
    out = tmp_path / "run"
    go(data, out, prior=str(chosen / "ledger"), nets=3, epochs=1)
    boundary = pruner.boundary_mean(0.25, 0.5, 4.0)
    held = toyset.rows_of(chosen / "weights.parquet", "row", "mean")
    assert toyset.manifest(out, 0) == [row for row, mean in held if mean > boundary]


def test_images_that_do_not_decode_stay_where_they_are_asked_for(data, tmp_path):
    """--undecodable keep: in every manifest and in the curated set, trained on in none."""
    go(data, tmp_path / "run", undecodable="keep", epochs=1)
    assert toyset.manifest(tmp_path / "run", 0)[-1] == N - 1
    assert toyset.manifest(tmp_path / "run", 1)[-1] == N - 1
    assert toyset.metrics(tmp_path / "run")[0]["images"] == len(toyset.manifest(tmp_path / "run", 0)) - 1


def test_less_than_a_batch_is_weighed_all_the_same(data, tmp_path):
    """Of a small store the prior leaves few, and each epoch fewer: a run says so, and comes to its end."""
    out, heard = tmp_path / "run", Heard()
    go(data, out, heard, batch=128, epochs=2)
    left = len(toyset.manifest(out, 0))
    assert engine.FEWEST <= len(toyset.manifest(out, 2)) <= left < 128
    assert [note for note in heard.notes if note.startswith(f"{left} images are left to weigh, 1 step an epoch: too")]
    assert toyset.metrics(out)[0]["images"] == left


def test_a_prior_that_keeps_nothing_is_refused(data, done, tmp_path):
    """Before anything is trained, with what to do."""
    small = with_values("mean", [0.01] * N)
    path = broken_file(tmp_path / "none.parquet", done, lambda table: small(table.drop_columns(["a", "b"])))
    with pytest.raises(NothingLeft, match=r"--prior .* keeps 0 of 301 images, training needs 2; give --prior uniform"):
        go(data, tmp_path / "run", prior=path, nets=3)
    assert not (tmp_path / "run" / "manifests").exists()


def broken_file(path, done, change):
    table = change(ledger.read_final(done[0]).select(["shard", "key", "mean", "a", "b"]))
    pq.write_table(table, path)
    return str(path)


def with_values(name, values):
    return lambda table: table.set_column(table.column_names.index(name), name, pa.array(values))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.slice(3), r"no belief of 3 of 301 images, such as 000000\.tar \w+"),
        (lambda t: pa.concat_tables([t, t.slice(5, 1)]), r"stands there twice"),
        (lambda t: t.drop_columns(["shard"]), "has no column shard"),
        (lambda t: t.drop_columns(["a", "mean"]), "expected the columns shard, key, and mean, or a and b"),
        (with_values("a", [-1.0] + [1.0] * (N - 1)), r"a and b must be positive numbers, not so for 1 images, such as"),
        (
            lambda t: with_values("mean", [1.5] * 2 + [0.5] * (N - 2))(t.drop_columns(["a"])),
            r"mean must lie in \[0, 1\]",
        ),
        (lambda t: with_values("mean", [np.nan] + [0.5] * (N - 1))(t.drop_columns(["a"])), r"such as 000000.*\(nan\)"),
        (with_values("a", ["much"] * N), "a is of type string; expected numbers"),
        (with_values("a", [2**60 + 1] * N), r"a holds no numbers \(Integer value .*\); write it as float64"),
        (with_values("key", [["k"]] * N), r"key holds no names \(.*\); write it as text"),
        (with_values("shard", [b"\xff"] * N), r"shard holds no names \(.*\); write it as text"),
    ],
)
def test_a_file_that_does_not_say_it_all_is_refused(data, done, tmp_path, change, message):
    """How many images, and which is the first; nothing is written."""
    file = broken_file(tmp_path / "prior.parquet", done, change)
    with pytest.raises(CurateError, match=message):
        go(data, tmp_path / "run", prior=file, nets=3)
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prior": "nowhere.parquet"}, "--prior nowhere.parquet: no such file; give uniform, classifier"),
        ({"prior": ""}, "--prior : no such file; give uniform, classifier"),
        ({"prior": "nearest"}, "--prior nearest: its score is no probability"),
        ({"prior": "classifier", "prior_strength": 0.0}, "--prior-strength 0.0: must be in 0.1..100"),
        ({"prior_strength": 8.0}, "--prior-strength 8: of a prior that is not uniform"),
        ({"encoder": "lite0"}, "--encoder lite0: says nothing to --method bdw by itself; add --prior classifier"),
        ({"nets": 1}, "--nets 1: says nothing to --method bdw by itself"),
        ({"features": "f", "method": "dw"}, "--features f: says nothing to --method dw by itself"),
        ({"keep": 0.5, "prior": "classifier"}, "--keep 0.5: says nothing to --method bdw: .*takes a budget afterwards"),
        ({"method": "dw", "prior": "classifier", "prior_strength": 8.0}, "a point weight has no strength"),
        *(
            ({"method": method, "prior": "classifier"}, "it has no beliefs to begin with; leave it out")
            for method in ("l2rw", "nn", "oracle", "uniform", "classifier")
        ),
    ],
)
def test_a_prior_that_cannot_be_meant_is_refused(data, changes, message):
    """Before torch is loaded."""
    asked = {"domain": "own"} if changes.get("method") == "oracle" else {}
    given = {"store": str(data / "store"), "target": str(data / "target"), **asked, **changes}
    with pytest.raises(Misuse, match=message):
        check_inputs(from_options(given))


def test_a_file_that_is_no_table_is_refused(data, tmp_path):
    """Text, an empty folder, a file that has gone since: a line, and no traceback."""
    (tmp_path / "text.parquet").write_text("mean")
    (tmp_path / "empty").mkdir()
    for name, message in (("text", "not a whole Parquet file"), ("gone", "no Parquet file is there")):
        with pytest.raises(Error, match=message):
            go(data, tmp_path / "run", prior=str(tmp_path / f"{name}.parquet"), nets=3)
    with pytest.raises(Misuse, match="no Parquet file is there, and no run with a ledger"):
        go(data, tmp_path / "run", prior=str(tmp_path / "empty"), nets=3)


def test_a_prior_needs_a_target(data):
    """In one line."""
    with pytest.raises(Misuse, match="--target is missing"):
        from_options({"store": str(data / "store"), "prior": "classifier"})


def test_a_dry_run_counts_the_features(data, tmp_path):
    """Where they are not there yet; with them, or without a prior, nothing is noted."""
    asked = {name: value for name, value in OPTIONS.items() if name != "rewrite"}
    there = dry_run(toyset.config(data / "store", data / "target", **asked), tmp_path / "run")
    assert not any("features" in note for note in there.notes)
    new = dry_run(toyset.config(data / "store", data / "target", **asked | {"nets": 2}), tmp_path / "run")
    assert any(note.startswith("before the first epoch the store is read once for features") for note in new.notes)
    assert new.hours * 3600 > new.steps * new.seconds_per_step
    assert not (tmp_path / "run").exists()


def test_a_dry_run_counts_what_the_prior_keeps(data, tmp_path, monkeypatch):
    """Where features are there, or cheap; else it says that it cannot. The run that follows keeps as many."""
    asked = {name: value for name, value in OPTIONS.items() if name != "rewrite"}
    configured = toyset.config(data / "store", data / "target", **asked)
    found = dry_run(configured, tmp_path / "run")
    toyset.run_on(data, tmp_path / "run", **asked)
    assert found.kept == len(toyset.manifest(tmp_path / "run", 0)) < found.images
    assert found.steps == -(-found.kept // configured.train.batch) * found.epochs
    assert f"{found.images} images, of which the prior keeps {found.kept}, " in found.text()
    new = toyset.config(data / "store", data / "target", **asked | {"nets": 2})
    cheap = dry_run(new, tmp_path / "other")
    assert 0 < cheap.kept < cheap.images
    monkeypatch.setattr(sys.modules["curate.runs.dry_run"], "PRIOR_FOR", 0.0)
    unknown = dry_run(new, tmp_path / "other")
    assert unknown.kept is None
    assert any("how many images the prior keeps is known once" in note for note in unknown.notes)
    assert not (tmp_path / "other").exists()


def test_few_images_left_to_weigh_are_told(data, tmp_path):
    heard = Heard()
    toyset.run_on(data, tmp_path / "run", heard, **OPTIONS)
    kept, steps = len(toyset.manifest(tmp_path / "run", 0)), -(-len(toyset.manifest(tmp_path / "run", 0)) // 16)
    assert any(note.startswith(f"{kept} images are left to weigh, {steps} steps an epoch") for note in heard.notes)


class Heard(NullProgress):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_the_default_may_become_the_classifier(data, monkeypatch, tmp_path):
    """One line of the catalogue: new runs take it, --paper does not, and older ones go on as they were begun."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    held = catalogue.METHODS.spec("bdw")
    changed = dataclasses.replace(held, defaults={**held.defaults, "prior": "classifier"})
    monkeypatch.setitem(catalogue.METHODS._rows, "bdw", changed)
    assert (
        resolve(toyset.config(data / "store", data / "target", prior=None), labelled=True).belief.prior == "classifier"
    )
    paper_mode = toyset.config(data / "store", data / "target", **paper("bdw"))
    assert resolve(paper_mode, labelled=True).belief.prior == "uniform"
    assert provenance.read_config(tmp_path / "run").belief.prior == "uniform"
    assert read_options(tmp_path / "run" / "run.json")["prior"] == "uniform"
    summary = toyset.run_on(tmp_path, tmp_path / "run", prior=None, **BEGUN)
    assert (summary.run_id, summary.epochs) == ("a89c28a1b03f7337", 3)
    assert not ledger.has_prior(tmp_path / "run")
