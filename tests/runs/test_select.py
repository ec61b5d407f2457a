"""Runs that train nothing: the files of any run, the same bytes after a kill, and what other verbs make of them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset
from sklearn.datasets import load_sample_images
from sklearn.metrics import roc_auc_score

from curate.api import prune
from curate.config.schema import from_options
from curate.errors import Misuse, NothingLeft, RunMismatch
from curate.ledger import ledger
from curate.runs import select
from curate.runs.dry_run import dry_run
from curate.runs.features import Choice, features
from curate.runs.run import run
from shards.rewriting.verify import verify
from shards.tar.writer import write_shards

DIGITS, PATCHES = 100, 700
#: What makes each selector choose in no time.
OPTIONS = {
    "classifier": {"nets": 1},
    "nearest": {"nets": 1, "keep": 100.0},
    "simcore": {"nets": 1},
    "semdedup": {"nets": 1},
    "softdedup": {"nets": 1, "keep": 0.5},
    "random": {"keep": 0.1},
}
every_selector = pytest.mark.parametrize("name", OPTIONS)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """100 digits among 700 patches of photographs, one image that does not decode; 50 other digits as plain files.

    Features of the store are there, as after `curate features`.
    """
    folder = tmp_path_factory.mktemp("data")
    photographs, draws = load_sample_images().images, np.random.default_rng(0)
    digits = draws.permutation(toyset.digits()[0])  # they stand writer by writer, and pi errs low where writers differ
    pictures = list(digits[:DIGITS])
    for number in range(PATCHES):
        photograph = photographs[number % 2]
        top, left = draws.integers(0, photograph.shape[0] - 32), draws.integers(0, photograph.shape[1] - 32)
        pictures.append(photograph[top : top + 32 : 2, left : left + 32 : 2].mean(2).astype(np.uint8))
    turn = draws.permutation(len(pictures))
    bodies = [(f"{'digit' if i < DIGITS else 'patch'}{i:04d}.png", toyset.png(pictures[i])) for i in turn]
    write_shards(folder / "store", [[body] for body in [*bodies, ("zzz.png", b"no picture")]], shard_size=100_000)
    (folder / "photos").mkdir()
    for i in range(1000, 1050):
        (folder / "photos" / f"{i}.png").write_bytes(toyset.png(digits[i]))
    (folder / "photos" / "notes.txt").write_text("not an image")
    index = toyset.indexed(folder / "store")
    features(index, Choice("untrained", 1), None, select_machine(), None, select_silent())
    return folder


def select_machine():
    from curate.config.schema import MachineConfig

    return MachineConfig(device="cpu", workers=0)


def select_silent():
    from curate.progress import NullProgress

    return NullProgress()


def config(data, name, **changes):
    asked = {"store": str(data / "store"), "target": str(data / "photos"), "method": name, "workers": 0}
    return from_options({**asked, "device": "cpu", "size": 16, "crop": 16, **OPTIONS[name], **changes})


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    """A finished run of the classifier, and its summary."""
    out = tmp_path_factory.mktemp("done") / "run"
    return out, run(config(data, "classifier"), out)


def test_the_classifier_finds_the_digits(done):
    """Against 50 plain files, without a label: AUROC, the cut's purity, and what the footer says of them."""
    out, summary = done
    weights = ledger.read_final(out)
    own = np.array([key.startswith("digit") for key in weights["key"].to_pylist()])
    mean, kept = weights["mean"].to_numpy(), weights["kept"].to_numpy()
    usable = weights["error"].is_null().to_numpy(zero_copy_only=False)
    assert roc_auc_score(own[usable], mean[usable]) > 0.97
    assert own[kept].mean() > 0.8
    assert own[kept].sum() > 60
    facts = ledger.facts_of(out, 1)
    assert facts == summary.facts
    assert facts["kept"] == kept.sum() == summary.kept
    assert set(facts) == {"kept", "pi", "purity", "auroc"}
    assert facts["pi"] == pytest.approx(DIGITS, rel=0.4)
    assert facts["auroc"] > 0.9


def test_it_leaves_the_files_of_any_run(data, done):
    """Ledger with a null a and b, manifest, weights, one line of metrics, run.json and shards that verify."""
    out, summary = done
    assert summary.epochs == 0
    partition = pq.read_table(out / "ledger" / "epoch=0001" / "part-0.parquet", partitioning=None)
    assert partition.schema.names == ledger.SCHEMA.names
    assert len(partition) == 801
    assert partition["a"].null_count == partition["b"].null_count == partition["below"].null_count == 801
    assert partition["error"].null_count == 800
    assert toyset.manifest(out, 1) == np.flatnonzero(partition["kept"].to_numpy()).tolist()
    (line,) = toyset.metrics(out)
    assert line["kept"] + line["pruned"] == 801
    assert {"pi", "purity", "auroc", "mean_belief"} <= set(line)
    assert not verify(out / "curated", toyset.indexed(data / "store"))
    record = json.loads((out / "run.json").read_text())
    assert record["configuration"]["encoder_key"].startswith("untrained-")
    assert not (out / "features").exists()  # those beside the store were used


def test_prune_judges_it_again(done):
    """Without thresholds by the run's own cut; by a budget best first."""
    out, summary = done
    same = prune(out)
    assert same["row"].to_pylist() == toyset.manifest(out, 1)
    assert len(same) == summary.kept
    assert len(prune(out, keep=0.5)) == 400


@every_selector
def test_the_same_bytes_after_a_kill(data, tmp_path, monkeypatch, name):
    """Stopped before the manifest, and before the shards; then gone on with."""
    run(config(data, name), tmp_path / "whole")

    class Stopped(BaseException):
        pass

    def stop(*_, **__):
        raise Stopped

    for module, function in ((select.manifest, "write"), (select.reshard, "curated")):
        with monkeypatch.context() as patch:
            patch.setattr(module, function, stop)
            with pytest.raises(Stopped):
                run(config(data, name), tmp_path / "stopped")
    run(config(data, name), tmp_path / "stopped")
    one, two = toyset.same_run(tmp_path / "whole"), toyset.same_run(tmp_path / "stopped")
    assert one == two
    before = (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    run(config(data, name), tmp_path / "whole")  # finished: says the same again, and measures nothing anew
    assert (tmp_path / "whole" / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(("keep", "count"), [(25.0, 25), (0.05, 40)])
def test_a_budget_is_kept_to(data, tmp_path, keep, count):
    """A count, or a share of what decodes."""
    assert run(config(data, "classifier", keep=keep), tmp_path / "run").kept == count


def test_without_features_beside_the_store_they_are_made_in_the_run(data, tmp_path):
    """The store is never written to."""
    store = toyset.make_store(tmp_path / "store", 48)
    before = sorted(store.iterdir())
    asked = config(data, "nearest", store=str(store), keep=10.0)
    assert run(asked, tmp_path / "run").kept == 10
    assert sorted(store.iterdir()) == before
    assert list((tmp_path / "run" / "features").glob("untrained-*/*.parquet"))


def test_given_features_are_found_by_name(data, tmp_path):
    """The store's and the target's from one file; a plain file of the target has the shard ""."""
    summary = run(by_given(data, tmp_path, "patch"), tmp_path / "run")
    assert 85 <= summary.kept <= 115
    kept = toyset.rows_of(tmp_path / "run" / "manifests" / "epoch=0001.parquet", "key")
    assert sum(key.startswith("digit") for (key,) in kept) > 0.8 * len(kept)


def by_given(data, folder, unlike):
    """The classifier over given features: those whose key begins with ``unlike`` lie three deviations off."""
    index, draws = toyset.indexed(data / "store"), np.random.default_rng(0)
    keys = [*index.table["key"].to_pylist(), *(f"{i}.png" for i in range(1000, 1050))]
    shards = [*(str(x) for x in index.table["shard"].to_pylist()), *[""] * 50]
    own = np.array([not key.startswith(unlike) for key in keys])
    table = pa.table(
        {"shard": shards, "key": keys, "embedding": list(draws.normal(size=(len(keys), 4)) + 3 * own[:, None])}
    )
    pq.write_table(table, folder / "given.parquet")
    options = {"store": str(data / "store"), "target": str(data / "photos"), "method": "classifier"}
    return from_options(options | {"encoder": f"parquet:{folder / 'given.parquet'}", "workers": 0, "device": "cpu"})


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("nearest", {"keep": 0.0}, "--method nearest needs --keep"),
        ("random", {"keep": 1.5}, "--keep 1.5: must be a share below 1 or a whole number"),
        ("random", {"nets": 2}, "--nets 2: says nothing to --method random: it looks at no image"),
        ("classifier", {"nets": 4}, "--nets 4: must be 1, 2 or 3"),
        ("classifier", {"encoder": "lite0"}, "--nets 1: is for --encoder untrained"),
        ("classifier", {"lam": 0.5}, "--lam 0.5: says nothing to --method classifier"),
        ("classifier", {"eta": 2.0}, "--eta 2.0: says nothing to --method classifier: it trains nothing"),
        ("classifier", {"keep": 1000.0}, "--keep 1000: expected 1 to 800"),
    ],
)
def test_what_cannot_be_meant_is_refused(data, tmp_path, name, changes, said):
    """One line each."""
    with pytest.raises(Misuse, match=said):
        run(config(data, name, **changes), tmp_path / "run")


def test_what_says_nothing_here_and_what_is_doubtful_is_noted(data, tmp_path):
    """Options of a training are no misuse, as a file of options may hold them; twenty images judge no purity."""
    heard = toyset.Notes()
    few = tmp_path / "few"
    few.mkdir()
    for path in sorted((data / "photos").iterdir())[:20]:
        shutil.copy(path, few)
    asked = config(data, "classifier", epochs=5, lr=0.1, target=str(few))
    run(asked, tmp_path / "run", heard)
    assert "--epochs 5, --lr 0.1: of a training, and --method classifier trains nothing" in heard.notes
    assert [note for note in heard.notes if "estimated by 20 images of the target: by 20 it was .1 too high" in note]
    heard = toyset.Notes()
    run(config(data, "classifier"), tmp_path / "plain", heard)
    assert not [note for note in heard.notes if "trains nothing" in note or "purity" in note]


def test_another_choice_needs_another_folder(data, done):
    """The encoder counts by what it is, not by where its files lie."""
    out, _ = done
    with pytest.raises(RunMismatch, match=r"--keep was 0\.0, is 40"):
        run(config(data, "classifier", keep=40.0), out)


def test_nothing_alike_is_said_after_the_ledger(data, tmp_path):
    """All of the store is far from the target: what could be kept is on record, and nothing is rewritten."""
    with pytest.raises(NothingLeft, match="hardly one is like the target"):
        run(by_given(data, tmp_path, ("patch", "digit", "zzz")), tmp_path / "run")
    assert (tmp_path / "run" / "ledger" / "epoch=0001" / "part-0.parquet").is_file()
    assert not (tmp_path / "run" / "curated").exists()


def test_a_dry_run_of_what_trains_nothing_is_refused(data, tmp_path):
    """It says what tells the rate."""
    with pytest.raises(Misuse, match="--method classifier has none; `curate features` tells its rate"):
        dry_run(config(data, "classifier"), tmp_path / "run")
