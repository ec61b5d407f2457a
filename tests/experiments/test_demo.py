"""The demo: what it promises of the digits, and everything that it writes."""

from __future__ import annotations

import json
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.errors import CurateError, Misuse
from curate.experiments.demo import data, demo
from shards.io.json_files import parse_json


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A demo of a tenth of the patches, a few steps, and a folder for it."""
    monkeypatch.setattr(demo, "SEEDS", 2)
    monkeypatch.setattr(demo, "STEPS", 3)
    monkeypatch.setattr(demo, "compute", partial(_alone, demo.compute))
    monkeypatch.setattr(demo.data, "pack", partial(data.pack, patches=1300))
    monkeypatch.setitem(demo.BELIEF["reconstruction"], "epochs", 2)
    return tmp_path / "demo"


def _alone(compute, *given):
    """In this process, where what the test has set holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo.os, "sched_getaffinity", lambda _: {0})
        return compute(*given)


@pytest.mark.slow
def test_curated_is_better_than_raw_and_random(tmp_path):
    """Three seeds: at least 8 points above both, and no tie; the classifier and BDW tell digits from patches."""
    results = demo.demo(tmp_path / "demo")
    accuracy = results["accuracy"]
    for other in ("raw", "random"):
        assert accuracy["curated"] - accuracy[other] >= 0.08
        assert results["by_tap"]["pool"]["difference"][other]["verdict"] == "better"
    for found in (results, results["bdw"]):
        assert found["auroc"] >= 0.99
        assert found["kept_in_domain"] >= 0.9
        assert found["kept_out_of_domain"] <= 0.05


@pytest.mark.slow
def test_rotation_tells_digits_from_patches(tmp_path):
    """AUROC >= 0.75 by BDW with the rotation pretext."""
    data.pack(tmp_path, 0, patches=1300)
    demo.select(tmp_path, demo.BELIEF["rotation"] | {"pretext": "rotation"}, "bdw", 0)
    assert demo.by_domain(tmp_path, demo.ledger.read_final(tmp_path / "bdw"))["auroc"] >= 0.75


@pytest.mark.slow
def test_all_that_a_demo_writes(small):
    """A short demo: every file and number that is promised, and a second call that trains nothing again."""
    results = demo.demo(small)
    assert json.loads((small / "results.json").read_text()) == results
    assert set(results) >= {"kept_in_domain", "kept_out_of_domain", "auroc", "accuracy", "accuracy_std", "seconds"}
    assert set(results["accuracy"]) == {"raw", "random", "curated", "in_domain", "untrained", "pixels"}
    assert set(results["accuracy_std"]) == set(results["accuracy"])
    assert set(results["seconds"]) == {"pack", "classifier", "trainings", "total"}
    assert set(results["cpu_seconds"]) >= {"raw", "random", "curated", "in_domain", "bdw", "classifier"}
    for rule in ("bdw", "paper_rule"):
        assert set(results[rule]) == {"auroc", "kept_in_domain", "kept_out_of_domain"}
    assert results["source"] == 2000
    for name in ("weights-by-domain.png", "beliefs.png", "kept-and-pruned.png"):
        assert (small / name).read_bytes().startswith(b"\x89PNG")
    for name in demo.SETS:
        assert parse_json((small / "cells" / f"{name}-1.json").read_bytes())["cell"]["steps"] == 3
    lines = {path: path.read_bytes() for path in small.rglob("metrics.jsonl")}
    again = demo.demo(small)
    assert again["accuracy"] == results["accuracy"]
    assert all(path.read_bytes() == before for path, before in lines.items())
    assert "who is kept" in demo.table(results, small)


def test_another_demo_in_the_same_folder_is_refused(tmp_path):
    """Both settings are shown; a folder with something else is refused too."""
    demo.claim(tmp_path / "d", {"pretext": "rotation", "seed": 0})
    demo.claim(tmp_path / "d", {"pretext": "rotation", "seed": 0})
    with pytest.raises(Misuse, match=r"'seed': 0.*'seed': 1"):
        demo.claim(tmp_path / "d", {"pretext": "rotation", "seed": 1})
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "mine.txt").write_text("")
    with pytest.raises(Misuse, match="not empty"):
        demo.claim(tmp_path / "e", {"pretext": "rotation", "seed": 0})


def test_keys_say_nothing_of_the_domain(tmp_path):
    """The store's keys are a shuffled count; the record of origins lies beside the shards, with one line each."""
    data.pack(tmp_path, 3, patches=1300)
    index = demo.shard_index.build(demo.shard_set.resolve(tmp_path / "source"))[0]
    keys = index.table["key"].to_pylist()
    assert keys == [f"{i:05d}" for i in range(2000)]
    domains = data.domains_of(tmp_path, index.table["key"])
    assert (domains == "digit").sum() == 700
    assert (domains == "patch").sum() == 1300


def test_a_record_of_other_images_is_refused(tmp_path):
    """A damaged key, of a file without checksums."""
    pq.write_table(pa.table({"key": ["0", "2"], "domain": ["digit", "patch"]}), tmp_path / "domains.parquet")
    assert list(data.domains_of(tmp_path, pa.chunked_array([["2", "0"]]))) == ["patch", "digit"]
    with pytest.raises(CurateError, match=r"domains\.parquet: says nothing of image '1'"):
        data.domains_of(tmp_path, pa.chunked_array([["0", "1"]]))
