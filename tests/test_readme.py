"""The README says what is so: its verbs, options, links, queries, and the files it sends a reader to."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import toyset

from curate.cli import VERBS
from curate.cli import curate as command
from shards.indexing import domains, index
from shards.io import shard_set as shard_names

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Verbs with parts of their own.
GROUPS = ("pack", "reproduce")
PAGES = [
    *("README.md", "CHANGELOG.md", "docs/method.md", "docs/formats/ledger.md", "docs/formats/shards.md"),
]


def blocks(language):
    """The code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_every_verb_has_its_row_in_order():
    """The table of the verbs is the command line's own list; a verb with parts has a row for each."""
    rows = re.findall(r"^\| `curate ([\w-]+)", README, re.MULTILINE)
    assert list(dict.fromkeys(rows)) == list(VERBS)


def test_every_option_that_is_named_exists():
    """`--name` in a `curate VERB` example or row is an option of that verb."""
    context = command.make_context("curate", ["--help"], resilient_parsing=True)
    for verb, rest in re.findall(r"`curate ([\w-]+)([^`]*)`", README):
        found = command.get_command(context, verb)
        if verb in GROUPS and rest.split():
            part = rest.split()[0]
            assert part in found.commands, (verb, part)
            found = found.commands[part]
        known = {flag for parameter in found.params for flag in parameter.opts}
        used = {word for word in shlex.split(rest) if word.startswith("--")}
        assert used <= known, (verb, used - known)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """Every relative link and picture is a file of the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in target or ((ROOT / page).parent / target).exists(), target


def test_the_demos_output_is_the_recorded_one():
    """What the README shows is what `curate demo` prints for scripts/results/demo/results.json."""
    from curate.experiments.demo.demo import table

    results = json.loads((ROOT / "scripts" / "results" / "demo" / "results.json").read_text())
    shown = README.split("<!-- demo:begin -->")[1].split("<!-- demo:end -->")[0]
    assert shown.strip() == f"```\n{table(results, Path('demo'))}\n```"


def test_files_of_the_reading_order_exist():
    """Names ending in .py or .md in the reading order are files, alone or in the package last named."""
    part = README.split("## Reading the code")[1]
    for name in re.findall(r"`([\w/]+\.(?:py|md))`", part):
        assert (ROOT / name).exists() or any(ROOT.glob(f"[cs]*/**/{name}")), name


def record_domains(folder):
    """The store and the run under the names of the README's digits, with two domains beside the shards."""
    (folder / "task").mkdir()
    (folder / "task" / "store").symlink_to(folder / "shards")
    (folder / "by-bdw").symlink_to(folder / "run")
    made, _ = index.build(shard_names.resolve(folder / "shards"))
    recorded = domains.Domains(("mnist", "others"), np.arange(48, dtype=np.int32) % 2)
    domains.save(made, recorded, folder / "shards" / domains.FILE_NAME)


def test_the_queries_and_the_library_call_run(tmp_path, monkeypatch):
    """DuckDB, Polars and pandas on a real run, made by the README's own call with small options."""
    import duckdb

    toyset.make_store(tmp_path / "shards", 48)
    toyset.make_target(tmp_path / "target", 30)
    monkeypatch.chdir(tmp_path)
    call, *queries = blocks("python")
    call = call.replace("shards/{000..099}.tar", "shards").replace(
        '"pretext": "rotation"', f"**{ {**toyset.FAST, 'epochs': 2}!r}"
    )
    exec(compile(call, "README.md", "exec"), {})
    by_domain, beliefs = blocks("sql")
    record_domains(tmp_path)
    found = duckdb.sql(by_domain).fetchall()
    assert sorted(name for name, *_ in found) == ["mnist", "others"]
    assert all(0 <= mean <= 1 and 0 <= kept <= 1 for _, mean, kept in found)
    assert len(duckdb.sql(beliefs).fetchall()) >= 10
    for query in queries:
        lines = query.strip().splitlines()
        names: dict[str, object] = {}
        exec(compile("\n".join(lines[:-1]), "README.md", "exec"), names)
        assert len(eval(lines[-1], names)) > 0
