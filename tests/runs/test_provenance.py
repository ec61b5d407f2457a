"""Who a run is: what its id depends on, what is refused when it goes on, and what is only warned of."""

from __future__ import annotations

import json
import re

import pytest

from curate.config.defaults import resolve
from curate.config.schema import from_options
from curate.errors import CurateError, RunMismatch
from curate.runs import provenance

STORE, TARGET = "a" * 64, "b" * 64


def who(store=STORE, target=TARGET, **changes):
    config = resolve(from_options({"store": "s", "target": "t", **changes}), labelled=True)
    return provenance.identity(config, store, target), config


def written(run, **changes):
    identity, config = who(**changes)
    return provenance.write_run(run / "run.json", config, identity, {"device": "cpu"})


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 3},
        {"device": "cpu"},
        {"precision": "tf32"},
        {"cache_bytes": 0},
        {"rewrite": "end"},
        {"keep_generations": True},
        {"index": "elsewhere"},
    ],
)
def test_the_id_does_not_depend_on_the_machine_or_on_paths(changes):
    """The same run elsewhere is the same run."""
    assert provenance.run_id(who(**changes)[0]) == provenance.run_id(who()[0])
    elsewhere = from_options({"store": "/x", "target": "/y"})
    moved = provenance.identity(resolve(elsewhere, labelled=True), STORE, TARGET)
    assert provenance.run_id(moved) == provenance.run_id(who()[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"lam": 0.3},
        {"batch": 32},
        {"mean": (0.5, 0.5, 0.5)},
        {"image": "png"},
        {"undecodable": "keep"},
        {"rename": "prefix"},
        {"store": "c" * 64},
        {"target": "c" * 64},
    ],
)
def test_the_id_depends_on_everything_that_may_change_a_byte(changes):
    """Options, and the fingerprints of store and target."""
    assert provenance.run_id(who(**changes)[0]) != provenance.run_id(who()[0])


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({"meta_loss": "prototypical"}, "a655fc1af85d56f9"),
        ({"meta_loss": "prototypical", "pretext": "reconstruction"}, "4a0988e119f3e36e"),
        ({"method": "nn", "crop": 32}, "e611e2843e4d7977"),
        ({"meta_loss": "prototypical", "network": "small", "norm": "group"}, "af20b4934a0f623c"),
    ],
)
def test_an_option_that_came_later_leaves_old_ids_alone(changes, known):
    """Ids of revision 05fc9fd, which had none of them; a value of its own makes another run of it."""
    assert provenance.run_id(who(**changes)[0]) == known
    if changes.get("network") == "small":
        assert provenance.run_id(who(**changes, stem_stride=2)[0]) != known


def test_what_is_written_reads_back(tmp_path):
    """With the whole configuration, the fingerprints, the machine and the versions."""
    record = written(tmp_path)
    assert provenance.read_run(tmp_path) == json.loads(json.dumps(record))
    assert re.fullmatch("[0-9a-f]{16}", record["run_id"])
    assert (record["store"], record["target"]) == (STORE, TARGET)
    assert record["machine"]["device"] == "cpu"
    assert set(record["machine"]["versions"]) >= {"python", "torch", "numpy", "pyarrow"}


def test_the_same_run_may_go_on(tmp_path):
    """Tuples have become lists in between; other machine options are no matter."""
    written(tmp_path, mean=(0.1, 0.2, 0.3))
    record = provenance.read_run(tmp_path)
    assert provenance.compare(tmp_path, record, who(mean=(0.1, 0.2, 0.3), workers=7)[0]) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 5}, "--seed was 0, is 5"),
        ({"lam": 0.3}, r"--lam was 0\.25, is 0\.3"),
        ({"meta_momentum": 0.9}, r"--meta-momentum was 0\.0, is 0\.9"),
    ],
)
def test_another_configuration_is_refused_with_both_values(tmp_path, changes, message):
    """The option as it is typed, what it was, what it is, and what to do."""
    written(tmp_path)
    with pytest.raises(RunMismatch, match=rf"belongs to another run: {message}; start in a new --out"):
        provenance.compare(tmp_path, provenance.read_run(tmp_path), who(**changes)[0])


def test_another_store_or_target_is_refused_with_both_fingerprints(tmp_path):
    """All differences stand in one line."""
    written(tmp_path)
    other = who("c" * 64, "d" * 64, seed=2)[0]
    message = (
        r"--seed was 0, is 2; the store holds other images or names than it did \(fingerprint a{12}, now c{12}\); "
        r"the target holds other images or names than it did \(fingerprint b{12}, now d{12}\); start"
    )
    with pytest.raises(RunMismatch, match=message):
        provenance.compare(tmp_path, provenance.read_run(tmp_path), other)


def test_another_version_is_a_warning(tmp_path):
    """Package, then and now."""
    record = written(tmp_path)
    record["machine"]["versions"]["torch"] = "1.0"
    now = provenance.versions("pil")["torch"]
    assert provenance.compare(tmp_path, record, who()[0]) == [f"torch was 1.0, is {now}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"no run\.json in it; name the --out folder"),
        ("{", r"run\.json: does not parse"),
        ("[]", "version None, this release reads 1"),
        ('{"format": 9}', "version 9, this release reads 1"),
    ],
)
def test_a_folder_that_is_no_run_is_an_error(tmp_path, text, message):
    """Missing, damaged, or of another release."""
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(CurateError, match=message):
        provenance.read_run(tmp_path)
