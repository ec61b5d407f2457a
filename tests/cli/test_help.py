"""The help of every verb, as somebody reads it who has not met the verb: what is asked for every day is on a screen."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from test_one_call import COMMANDS

from curate.cli import curate as command

#: Lines and columns of a terminal.
LINES, COLUMNS = 24, 80
#: Of each command the options that most calls need, about five; of one that is not here, those that it must have.
EVERYDAY = {
    "demo": ["--out", "--pretext", "--seed"],
    "pack imagefolder": ["--out", "--target", "--labels", "--split", "--workers"],
    "pack idx": ["--own", "--out", "--store-images", "--train-images", "--test-images"],
    "pack stl10": ["--out", "--fold", "--download", "--workers", "--seed"],
    "pack decathlon": ["--out", "--domains", "--mix", "--groups", "--workers"],
    "index": ["--index", "--check", "--image", "--strict", "--workers"],
    "features": ["--encoder", "--out", "--calibrate", "--workers", "--device"],
    "dedup": ["--out", "--level", "--against", "--keep", "--distance"],
    "audit": ["--target", "--store", "--out", "--drop", "--fail-on"],
    "advise": ["--store", "--target", "--out", "--budget", "--pretext"],
    "run": ["--store", "--target", "--out", "--dry-run", "--method", "--pretext", "--epochs"],
    "config": ["--store", "--target", "--method", "--pretext", "--epochs"],
    "ledger": ["--final", "--by", "--json"],
    "report": ["--out", "--target", "--json"],
    "prune": ["--lam", "--rho", "--keep", "--grid", "--out"],
    "rewrite": ["--store", "--manifest", "--out", "--shard-size", "--workers"],
    "verify": ["--against", "--index", "--workers", "--json"],
    "export": ["--dali", "--datacomp", "--metadata", "--run"],
    "pretrain": ["--store", "--out", "--pretext", "--steps", "--epochs"],
    "evaluate": ["--target", "--protocol", "--tap", "--labels-per-class", "--epoch"],
    "compare-baselines": ["--target", "--sets", "--seeds", "--steps", "--labels-per-class"],
    "compare": ["--metric", "--lower-is-better", "--alpha", "--out"],
    "reproduce pays": ["--data", "--out", "--scale", "--targets", "--processes"],
    "reproduce table1": ["--data", "--out", "--scale", "--sets", "--processes"],
    "reproduce table2": ["--data", "--out", "--scale", "--domains", "--processes"],
    "reproduce table3": ["--data", "--out", "--scale", "--processes", "--seed"],
    "clean": ["--dry-run", "--json"],
    "completion": [],
}


def read(typed: str) -> list[str]:
    """The help of a command, on a terminal of 80 columns, from the line after its usage."""
    shown = CliRunner(env={"COLUMNS": str(COLUMNS)}).invoke(command, [*typed.split(), "--help"], catch_exceptions=False)
    assert shown.output.startswith("Usage: curate ")
    return shown.output.split("\n\n", 1)[1].splitlines()


def on_the_first_screen(lines: list[str]) -> list[str]:
    """The options whose line, and not only a word about them, is among the first."""
    return [match[1] for line in lines[:LINES] if (match := re.match(r"  (--[a-z0-9-]+)", line))]


@pytest.mark.parametrize("typed", COMMANDS)
def test_what_is_asked_for_every_day_is_on_the_first_screen(typed: str) -> None:
    must = [option.opts[0] for option in COMMANDS[typed].params if option.required and option.opts[0].startswith("-")]
    lacking = set(EVERYDAY.get(typed, must)) - set(on_the_first_screen(read(typed)))
    assert not lacking, f"curate {typed} --help: {lacking} not in its first {LINES} lines"


@pytest.mark.parametrize("typed", ["", "pack", "reproduce", *COMMANDS])
def test_no_line_is_wider_than_a_terminal(typed: str) -> None:
    """Examples and lists are not wrapped, and are as they are written."""
    wide = [line for line in read(typed) if len(line) > COLUMNS]
    assert not wide


def test_a_default_stands_in_one_place() -> None:
    """Once behind the option, never in its text as well; a guard against slips of the finger is no news."""
    for typed in COMMANDS:
        text = " ".join(" ".join(read(typed)).split())
        assert "(default" not in text, typed
        assert "INTEGER RANGE" not in text or re.search(r"<=?x<=?\d{1,3}\]", text), typed
        for option in re.split(r" (?=--[a-z0-9-]+ )", text):
            assert option.count("[default: ") <= 1, (typed, option)


def test_an_option_below_the_first_screen_is_found() -> None:
    """The rule itself."""
    lines = [""] * (LINES - 1) + ["  --in  Here.", "  --out PATH  There."]
    assert on_the_first_screen(lines) == ["--in"]
    assert on_the_first_screen(["    curate x --out", "  --out=X", "  words --out"]) == ["--out"]
