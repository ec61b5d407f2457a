"""The command line: what it prints and where, its exit codes, its help; every verb on a tiny store."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset
from click.testing import CliRunner

from curate import cli
from curate.cli import VERBS
from curate.cli import curate as command
from shards.indexing import domains


def curate(*arguments, code=0):
    """Run the real entry point in this process; returns stdout and stderr."""
    result = CliRunner().invoke(_main, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


class _Main:
    """`cli.main` under click's test runner, which hands arguments over by `main(args=...)`."""

    name = "curate"

    def main(self, args, prog_name, **_):
        before, sys.argv = sys.argv, [prog_name, *args]
        try:
            cli.main()
        finally:
            sys.argv = before


_main = _Main()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A store, a target and a finished run of the command line."""
    folder = tmp_path_factory.mktemp("cli")
    toyset.make_store(folder / "store", 48)
    toyset.make_target(folder / "target", 30)
    fast = {**toyset.FAST, "epochs": 2}
    options = [part for k, v in fast.items() for part in (f"--{k.replace('_', '-')}", str(v))]
    out, err = curate(
        "run", "--store", folder / "store", "--target", folder / "target", "--out", folder / "run", *options
    )
    return folder, options, out, err


def python(code):
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_loads_no_torch_and_shows_an_example(verb):
    """--help answers at once: neither torch, pyarrow, scipy nor webdataset is imported for it."""
    code = f"""
import sys
from click.testing import CliRunner
from curate.cli import curate
result = CliRunner().invoke(curate, [{verb!r}, '--help'] if {verb!r} else ['--help'])
heavy = [m for m in ('torch', 'pyarrow', 'scipy', 'sklearn', 'webdataset', 'numpy') if m in sys.modules]
assert result.exit_code == 0 and not heavy, (heavy, result.output)
print(result.output)
"""
    text = python(code).stdout
    assert "curate" in text
    if verb and not hasattr(loaded(verb), "commands"):
        assert f"curate {verb}" in text.split("Example:")[1]


def loaded(verb):
    """A verb's command."""
    return command.get_command(command.make_context("curate", ["--help"], resilient_parsing=True), verb)


def commands():
    """Every command by what is typed for it, those of groups included."""
    for verb in VERBS:
        found = loaded(verb)
        parts = getattr(found, "commands", None)
        yield from (
            {verb: found}.items() if parts is None else ((f"{verb} {name}", part) for name, part in parts.items())
        )


@pytest.mark.parametrize(("typed", "found"), list(commands()), ids=lambda each: each if isinstance(each, str) else "")
def test_examples_in_help_parse(typed, found):
    """Each command shows an example of itself, and every option that one uses exists."""
    lines = (found.help or "").split("Example:")[1].splitlines()
    examples = [line.split() for line in lines if line.strip().startswith(f"curate {typed}")]
    assert examples
    known = {flag for p in found.params for flag in (*p.opts, *p.secondary_opts)}
    for example in examples:
        used = {word for word in example if word.startswith("--")}
        assert used <= known, used - known


def test_run_prints_the_summary_on_stdout_and_talks_on_stderr(world):
    """stdout is for data; the bar is on stderr."""
    folder, _, out, err = world
    assert out.startswith("kept ")
    assert str(folder / "run" / "curated") in out
    assert "img/s" in err
    assert "img/s" not in out


def test_run_says_where_its_manifest_is_and_how_long_it_took(world):
    folder, _, out, _ = world
    assert f"manifest  {folder / 'run' / 'manifests' / 'epoch=0002.parquet'}\n" in out
    waited = float(re.search(r"after 2 epochs, (\d+) s", out)[1])
    assert waited >= 0


def test_rewrite_takes_a_run(world, tmp_path):
    """Its last manifest; of a folder that holds one, as dedup makes it, that one; of what is neither, an error."""
    folder = world[0]
    store = ("--store", folder / "store", "--out", tmp_path / "out")
    _, _ = curate("rewrite", *store, "--manifest", folder / "run")
    kept = len(pq.read_table(folder / "run" / "manifests" / "epoch=0002.parquet"))
    assert len(pq.read_table(tmp_path / "out" / "manifest.parquet")) == kept
    again = ("--store", folder / "store", "--out", tmp_path / "again")
    curate("rewrite", *again, "--manifest", tmp_path / "out")
    assert pq.read_table(tmp_path / "again" / "manifest.parquet").num_rows == kept
    _, err = curate("rewrite", *store, "--manifest", folder / "store", code=1)
    assert "no run.json in it" in err
    _, err = curate("rewrite", *store, "--manifest", folder / "run" / "ledger", code=1)
    assert "ledger: a part of a run, and no manifest; name the run, " in err
    (tmp_path / "begun").mkdir()
    shutil.copy(folder / "run" / "run.json", tmp_path / "begun")
    _, err = curate("rewrite", *store, "--manifest", tmp_path / "begun", code=1)
    assert "no epoch of it is done" in err


def test_one_is_no_plural(tmp_path):
    toyset.make_store(tmp_path / "store", 3)
    out, _ = curate("index", tmp_path / "store")
    assert out.startswith("1 shard, 3 samples, ")


def test_help_of_run_has_the_defaults_of_a_run():
    """The usual ones first, as `curate config` prints them; a pre-training takes those of its pretext."""
    helped = " ".join(curate("run", "--help")[0].split())
    assert (
        "Passes over what is kept [default: 10 for rotation and simclr, 100 for reconstruction; --paper: 35 for"
        in helped
    )
    assert "Learning rate [default: 0.01 for rotation and simclr, 0.0001 for reconstruction; --paper: 0.1" in helped
    assert "[default: classifier; --paper: uniform]" in helped
    assert "SGD momentum [default: 0.9 for rotation and simclr, 0.0 for reconstruction]" in helped
    assert "[default: 35 for rotation and simclr, 100 for" in " ".join(curate("pretrain", "--help")[0].split())


def test_the_same_command_again_goes_on_and_another_is_refused(world):
    """A finished run answers again; changed options are exit 1, both values shown."""
    folder, options, *_ = world
    again = ["run", "--store", folder / "store", "--target", folder / "target", "--out", folder / "run", *options]
    out, _ = curate(*again, "--json")
    assert json.loads(out)["epochs"] == 2
    _, err = curate(*again, "--lam", "0.3", code=1)
    assert "--lam was 0.45, is 0.3" in err
    assert err.count("\n") == err.strip().count("\n") + 1


def test_run_from_its_own_run_json(world, tmp_path):
    """--config RUN/run.json repeats the run: the same id."""
    folder, *_ = world
    out, _ = curate("run", "--config", folder / "run" / "run.json", "--out", tmp_path / "again", "--json")
    assert json.loads(out)["run_id"] == json.loads((folder / "run" / "run.json").read_text())["run_id"]


def test_config_file_in_toml_and_options_over_it(world, tmp_path):
    """Options of the command line win over the file."""
    folder, *_ = world
    lines = [f"{k} = {json.dumps(v)}" for k, v in {**toyset.FAST, "epochs": 9}.items()]
    (tmp_path / "c.toml").write_text("\n".join([*lines, f"store = '{folder}/store'", f"target = '{folder}/target'"]))
    out, _ = curate("run", "--config", tmp_path / "c.toml", "--epochs", 1, "--out", tmp_path / "r", "--json")
    assert json.loads(out)["epochs"] == 1


def test_ledger_table_and_json(world):
    """A line an epoch, for people and for programs."""
    folder, *_ = world
    out, err = curate("ledger", folder / "run")
    assert len(out.splitlines()) == 3
    assert "E[w]: mean of their expected weights" in err
    assert [line["epoch"] for line in json.loads(curate("ledger", folder / "run", "--json")[0])] == [1, 2]


def test_ledger_by_domain(world):
    """Held against the partitions, and the domains that were given."""
    folder, *_ = world
    _, err = curate("ledger", folder / "run", "--by", "domain", code=1)
    assert "no domains are on record for this store" in err
    place = folder / "store" / ".curate" / "domains.parquet"
    codes = np.arange(48, dtype=np.int32) % 2
    domains.save(toyset.indexed(folder / "store"), domains.Domains(("odd", "even"), 1 - codes), place)
    lines = json.loads(curate("ledger", folder / "run", "--by", "domain", "--json")[0])
    assert [(line["epoch"], line["domain"]) for line in lines] == [(1, "even"), (1, "odd"), (2, "even"), (2, "odd")]
    for line in lines:
        rows = pq.read_table(folder / "run" / "ledger" / f"epoch={line['epoch']:04d}").to_pylist()
        mine = [row for row in rows if (row["row"] % 2 == 0) == (line["domain"] == "even")]
        assert (line["live"], line["kept"]) == (len(mine), sum(row["kept"] for row in mine))
        assert line["mean"] == pytest.approx(np.mean([row["mean"] for row in mine]), rel=1e-6)
    assert curate("ledger", folder / "run", "--by", "domain")[0].splitlines()[1].endswith("0  even")
    place.unlink()


def test_prune_by_threshold_budget_and_grid(world, tmp_path):
    """Thresholds, a budget, or a table of both; a manifest that rewrite takes."""
    folder, *_ = world
    out, _ = curate("prune", folder / "run", "--lam", 0.3, "--rho", 0.4, "--out", tmp_path / "a.parquet", "--json")
    assert json.loads(out)["rule"] == "prune when CDF(0.3; a, b) > 0.4"
    curate("prune", folder / "run", "--keep", 0.25, "--by", "lower", "--out", tmp_path / "b.parquet")
    assert len(pq.read_table(tmp_path / "b.parquet")) == 12  # a quarter of 48
    again = tmp_path / "d.parquet"
    for budget, count, words in (
        ("25%", 12, "the share 0.25"),
        ("7", 7, "7"),
        ("48", 48, "48"),
        ("1", 48, "the share 1.0"),
    ):
        for _ in range(2):  # the same again is no harm
            out, _ = curate("prune", folder / "run", "--keep", budget, "--out", again, "--json")
        assert len(pq.read_table(again)) == count
        assert json.loads(out)["rule"] == f"keep {words} of the decodable with the largest mean"
        _, err = curate("prune", folder / "run", "--keep", "3", "--out", again, code=2)
        assert f"d.parquet: holds a manifest by another rule (keep {words} of" in err
        assert len(pq.read_table(again)) == count
        again.unlink()
    for budget, said in (
        ("1e-9", "the rule keeps none of 48 images"),
        ("49", "--keep 49: expected a share from 0 to 1, or a count up to 48"),
        ("2.5", "or a count up to 48"),
        ("-1", "expected a share from 0 to 1, or a count"),
        ("nan", "expected a share from 0 to 1, or a count"),
        ("inf", "expected a share from 0 to 1, or a count"),
        ("100%", "a percentage from 0 to less than 100"),
        ("x%", "not a valid float"),
    ):
        _, err = curate("prune", folder / "run", f"--keep={budget}", "--out", tmp_path / "d.parquet", code=2)
        assert said in err
        assert not (tmp_path / "d.parquet").exists()
    assert "rho 0.5" in curate("prune", folder / "run", "--grid")[0]
    curate("rewrite", "--store", folder / "store", "--manifest", tmp_path / "b.parquet", "--out", tmp_path / "quarter")
    assert "as it should be" in curate("verify", tmp_path / "quarter", "--against", folder / "store")[0]
    _, err = curate("prune", folder / "run", "--keep", 0.2, "--lam", 0.1, "--out", tmp_path / "c.parquet", code=2)
    assert "one or the other" in err
    _, err = curate("prune", folder / "run", "--lam", 0.2, code=2)
    assert "--out" in err


def test_verify_names_a_fault_and_exits_1(world, tmp_path):
    """One flipped byte in a curated tar."""
    folder, *_ = world
    pq.write_table(pa.table({"shard": ["000000.tar"], "key": ["000003"]}), tmp_path / "m.parquet")
    curate("rewrite", "--store", folder / "store", "--manifest", tmp_path / "m.parquet", "--out", tmp_path / "one")
    tar = tmp_path / "one" / "000000.tar"
    data = bytearray(tar.read_bytes())
    data[600] ^= 1
    tar.write_bytes(data)
    out, err = curate("verify", tmp_path / "one", code=1)
    assert "000000.tar" in out
    assert err.startswith("Error: ")


def test_index_reports_and_strict_fails(tmp_path):
    """--json is the report of index.report.json; --strict turns faults into exit 1; a second call is the same."""
    toyset.make_store(tmp_path / "s", 8, broken={3: b"no picture"})
    out, _ = curate("index", tmp_path / "s", "--check", "--json")
    report = json.loads(out)
    assert report["samples"] == 8
    assert [fault["kind"] for fault in report["faults"]] == ["not-an-image"]
    assert json.loads((tmp_path / "s" / ".curate" / "index.report.json").read_text()) == report
    _, err = curate("index", tmp_path / "s", "--check", "--strict", code=1)
    assert "1 faults" in err


def test_what_was_passed_over_is_printed(tmp_path):
    """By both verbs that walk a folder, for people and as JSON."""
    (tmp_path / "in" / "__m__").mkdir(parents=True)
    for name in ("a.png", "__m__/b.png"):
        (tmp_path / "in" / name).write_bytes(toyset.png(toyset.digits()[0][0]))
    (tmp_path / "in" / "link").symlink_to(tmp_path)
    out, err = curate("pack", "imagefolder", tmp_path / "in", "--out", tmp_path / "s")
    assert out.splitlines()[1] == "passed over: 1 linked folder (link)"
    assert err == "renamed: __m__/b.png has the key _m__/b; readers pass over its own\n"
    (tmp_path / "s" / "1.tar.zst").write_bytes(b"")
    (tmp_path / "s" / "notes.txt").write_bytes(b"")
    out, err = curate("index", tmp_path / "s")
    assert "faults: 1 unread-shard\npassed over: 1 unread shard (1.tar.zst), 1 .txt\n" in out
    out, _ = curate("index", tmp_path / "s", "--json")
    assert json.loads(out)["passed_over"]["unread"] == ["1.tar.zst"]
    assert json.loads(out)["samples"] == 2


def test_export_beside_curated_shards(world):
    """DALI's index files; nothing asked for is misuse; a set without uids is one line."""
    folder, *_ = world
    out, _ = curate("export", folder / "run" / "curated", "--dali")
    assert out.splitlines()[0].endswith("000000.idx")
    curate("export", folder / "run" / "curated", code=2)
    _, err = curate("export", folder / "run" / "curated", "--datacomp", code=1)
    assert "uid" in err
    for path in (folder / "run" / "curated").glob("*.idx"):
        path.unlink()


def test_pack_pretrain_evaluate(world, tmp_path):
    """Image files -> shards -> a trained network -> its score."""
    folder, *_ = world
    for digit in range(3):
        (tmp_path / "classes" / str(digit)).mkdir(parents=True)
        for i in range(9):
            picture = toyset.digits()[0][(toyset.digits()[1] == digit).nonzero()[0][i]]
            (tmp_path / "classes" / str(digit) / f"{i}.png").write_bytes(toyset.png(picture))
    out, _ = curate("pack", "imagefolder", tmp_path / "classes", "--out", tmp_path / "t", "--target", "--json")
    assert json.loads(out)["samples"] == {"train": 18, "val": 3, "test": 6}
    small = ["--size", 12, "--crop", 12, "--width", 4, "--batch", 8, "--workers", 0, "--device", "cpu"]
    out, _ = curate("pretrain", "--store", folder / "store", "--out", tmp_path / "net", "--steps", 8, *small, "--json")
    assert json.loads(out)["steps"] == 8
    assert json.loads(out)["epochs"] == 2  # 6 steps of 8 of the 48 images, then 2 more
    out, _ = curate("evaluate", tmp_path / "net", "--target", tmp_path / "t", "--device", "cpu", "--json")
    found = json.loads(out)
    assert found["classes"] == 3
    assert 0 <= found["test_accuracy"] <= 1
    out, err = curate("evaluate", tmp_path / "net", "--target", tmp_path / "t", "--device", "cpu")
    assert "note: each of 2 epochs is scored by val, for the best; --epoch N scores one alone" in err
    assert ", the best of 2 by val (" in out
    out, err = curate("evaluate", tmp_path / "net", "--target", tmp_path / "t", "--device", "cpu", "--epoch", 2)
    assert "at epoch 2 (" in out
    assert "is scored by val" not in err
    _, err = curate("evaluate", tmp_path / "net", "--target", tmp_path / "t", "--tap", "layer9", code=2)
    assert "stem, layer1, layer2, layer3, pool" in err


def test_dry_run_forecasts_and_writes_nothing(world, tmp_path):
    """Hours, memory, disk, the episode; no run directory."""
    folder, options, *_ = world
    place = ["--store", folder / "store", "--target", folder / "target", "--out", tmp_path / "dry"]
    out, _ = curate("run", *place, *options, "--dry-run", "--json")
    forecast = json.loads(out)
    assert forecast["steps"] == 6  # 48 images in batches of 16, two epochs
    assert forecast["seconds_per_step"] > 0
    assert forecast["problems"] == []
    assert not (tmp_path / "dry").exists()
    out, _ = curate("run", *place, *options, "--dry-run", "--batch", 64, code=1)
    assert "PROBLEM --batch 64: the store has 48 images" in out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["run", "--out", "x"], 2, "--store is missing"),
        (["run", "--store", "nowhere", "--target", "t", "--out", "x"], 1, "nowhere"),
        (
            ["run", "--store", "s", "--target", "t", "--out", "x", "--paper", "--eta", "3"],
            2,
            "--paper fixes --eta at 10.0",
        ),
        (["run", "--store", "s", "--target", "t", "--out", "x", "--mean", "a,b"], 2, "numbers separated by commas"),
        (["run", "--nonsense"], 2, "--nonsense"),
        (["nonsense"], 2, "nonsense"),
        (["prune", "."], 2, "--out"),
        (["index", "."], 1, "tar"),
        (["pack", "imagefolder", ".", "--out", "x"], 2, "lie in one another"),
        *(
            (["pack", "imagefolder", ".", "--out", "../x", "--target", "--split", split], 2, "hares")
            for split in (
                "1,2",
                "",
                "nan,0.5,0.5",
                "0.5,nan,0.5",
                "inf,0,0",
                "-1,1,1",
                "0.5,0.5,0.5",
                "1,0,0,0",
                "a,b,c",
            )
        ),
        (["pack", "imagefolder", ".", "--out", "../x", "--split", "1,0,0"], 2, "only with --target"),
    ],
)
def test_mistakes_are_one_line_and_a_code(arguments, code, text, tmp_path, monkeypatch):
    """2 for what cannot be meant, 1 for what cannot be done; no traceback."""
    monkeypatch.chdir(tmp_path)
    out, err = curate(*arguments, code=code)
    assert text in err
    assert "Traceback" not in out + err
    assert len([line for line in err.splitlines() if line.startswith("Error")]) == 1


def test_the_installed_command_runs():
    """The console script and its version."""
    script = os.path.join(os.path.dirname(sys.executable), "curate")
    found = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("curate, version ")
