"""The demo: what it promises of the digits, and everything that it writes."""

from __future__ import annotations

import json

import pytest

from curate.errors import Misuse
from curate.experiments.demo import data, demo


@pytest.mark.slow
def test_reconstruction_tells_digits_from_patches(tmp_path):
    """Wanted: AUROC >= 0.95, at least 90 % of the digits kept, at most 30 % of the patches."""
    data.pack(tmp_path, demo.SIZES["reconstruction"], 0)
    demo.weigh(tmp_path, "reconstruction", 0)
    found = demo.by_domain(tmp_path, demo.ledger.read_final(tmp_path / "run"))
    assert found["auroc"] >= 0.95
    assert found["kept_in_domain"] >= 0.9
    assert found["kept_out_of_domain"] <= 0.3


@pytest.mark.slow
def test_rotation_tells_digits_from_patches(tmp_path):
    """AUROC >= 0.75 by the rotation pretext with its best settings."""
    data.pack(tmp_path, demo.SIZES["rotation"], 0)
    demo.weigh(tmp_path, "rotation", 0)
    assert demo.by_domain(tmp_path, demo.ledger.read_final(tmp_path / "run"))["auroc"] >= 0.75


@pytest.mark.slow
def test_all_that_a_demo_writes(tmp_path, monkeypatch):
    """A short demo: every file and number that is promised, and a second call that trains nothing again."""
    monkeypatch.setattr(demo, "SEEDS", 2)
    monkeypatch.setitem(demo.PRETRAIN, "epochs", 1)
    monkeypatch.setitem(demo.WEIGH["reconstruction"], "epochs", 6)
    out = tmp_path / "demo"
    results = demo.demo(out)
    assert json.loads((out / "results.json").read_text()) == results
    assert set(results) >= {"kept_in_domain", "kept_out_of_domain", "auroc", "accuracy", "accuracy_std", "seconds"}
    assert set(results["accuracy"]) == set(results["accuracy_std"]) == {"raw", "curated", "random"}
    assert set(results["seconds"]) == {"bdw", "raw", "curated", "random", "total"}
    assert set(results["paper_rule"]) == {"auroc", "kept_in_domain", "kept_out_of_domain"}
    assert results["source"] == 1400
    assert results["steps"]["curated"] == results["steps"]["random"] == -(-results["kept"] // 32)
    for name in ("weights-by-domain.png", "beliefs.png", "kept-and-pruned.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    assert list((out / "source").glob("*.tar"))
    before = (out / "run" / "metrics.jsonl").read_bytes()
    again = demo.demo(out)
    assert again["accuracy"] == results["accuracy"]
    assert (out / "run" / "metrics.jsonl").read_bytes() == before
    assert "digits kept" in demo.table(results, out)


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
    data.pack(tmp_path, demo.SIZES["reconstruction"], 3)
    index = demo.shard_index.build(demo.shard_set.resolve(tmp_path / "source"))[0]
    keys = index.table["key"].to_pylist()
    assert keys == [f"{i:05d}" for i in range(1400)]
    domains = data.domains_of(tmp_path, index.table["key"])
    assert (domains == "digit").sum() == (domains == "patch").sum() == 700
    assert len(index.shards) > 1
