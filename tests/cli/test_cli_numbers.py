"""Every number that any verb takes: one that cannot be meant is one line and exit code 2, before any work."""

from __future__ import annotations

import click
import pytest
import toyset
from click.testing import CliRunner
from test_cli import _main

from curate.cli import curate as command
from curate.cli.options import Numbers
from curate.config.defaults import refuse_impossible
from curate.config.schema import from_options
from curate.errors import Misuse

NUMBERS = (click.types.IntParamType, click.types.FloatParamType, click.types.IntRange, click.types.FloatRange, Numbers)
#: What every command needs besides, by its path; places are made by the fixture.
REQUIRED = {
    "advise": ["--store", "folder", "--target", "folder", "--out", "out"],
    "audit": ["--target", "folder"],
    "compare": ["scores.csv"],
    "compare-baselines": ["folder", "--target", "folder"],
    "config": ["--store", "folder", "--target", "folder"],
    "dedup": ["folder", "--out", "out"],
    "demo": ["--out", "out"],
    "evaluate": ["folder", "--target", "folder"],
    "index": ["folder"],
    "pack decathlon": ["folder", "--out", "out"],
    "pack idx": ["folder", "--own", "x", "--out", "out"],
    "pack imagefolder": ["folder", "--out", "out"],
    "pack stl10": ["folder", "--out", "out"],
    "pretrain": ["--store", "folder", "--out", "out"],
    "prune": ["folder", "--out", "out"],
    "reproduce pays": ["--data", "folder", "--out", "out"],
    "reproduce table1": ["--data", "folder", "--out", "out"],
    "features": ["folder"],
    "reproduce table2": ["--data", "folder", "--out", "out"],
    "reproduce table3": ["--data", "folder", "--out", "out"],
    "rewrite": ["--store", "folder", "--manifest", "m", "--out", "out"],
    "run": ["--store", "folder", "--target", "folder", "--out", "out"],
    "verify": ["folder"],
}


def leaves(group, path=()):
    """Every command that is no group, with its path."""
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        if isinstance(found, click.Group):
            yield from leaves(found, (*path, name))
        else:
            yield " ".join((*path, name)), found


NUMERIC = [
    (path, option.opts[-1])
    for path, leaf in leaves(command)
    for option in leaf.params
    if isinstance(option, click.Option) and isinstance(option.type, NUMBERS)
]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An empty folder and a file of scores, in the folder at hand."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "scores.csv").write_text("data,a,b\n1,1,2\n2,2,1\n3,4,3\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e400", str(10**40), "x", " ", "1,nan"])
def test_a_number_that_cannot_be_meant_is_one_line(places, value):
    """All of them: that an option of a number is missed here would be the fault."""
    assert len(NUMERIC) > 80
    for path, option in NUMERIC:
        if (option, value) == ("--lr-drops", " "):
            continue  # none is an answer
        arguments = [*path.split(), *REQUIRED[path], f"{option}={value}"]
        result = CliRunner().invoke(_main, arguments, catch_exceptions=False)
        assert result.exit_code == 2, (arguments, result.output)
        assert option in result.stderr.replace("alpha", "--alpha"), (arguments, result.output)
        assert sum(line.startswith("Error: ") for line in result.stderr.splitlines()) == 1, (arguments, result.output)
        assert sorted(path.name for path in places.iterdir()) == ["folder", "scores.csv"], arguments


@pytest.mark.parametrize("name", ["ways", "shots", "queries", "target_batch", "warmup", "epochs"])
@pytest.mark.parametrize("value", [10**30, 10**400])
def test_counts_beyond_what_tensors_count(name, value):
    """From a configuration file, where whole numbers have no end."""
    with pytest.raises(Misuse, match=f"--{name.replace('_', '-')} .*must be in"):
        refuse_impossible(from_options({"store": "s", "target": "t", **toyset.FAST, name: value}))


@pytest.mark.parametrize("arguments", [["--grid", "--out", "m.parquet"], ["--grid", "--lam", "0.2"], ["--by", "lower"]])
def test_options_of_prune_that_would_do_nothing(places, arguments):
    """A grid writes nothing, and --by ranks for a budget alone."""
    result = CliRunner().invoke(_main, ["prune", "folder", *arguments], catch_exceptions=False)
    assert result.exit_code == 2
    assert "leave" in result.stderr
