"""Each verb is one call of the API: what a command's callback imports and calls, read from its source."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import curate.api
import shards.api
from curate.cli import VERBS
from curate.cli import curate as command

API = ("curate.api", "shards.api")
#: What a verb may import besides: the errors, the tables that options are made of, the bars on stderr.
MODULES = (*("curate.errors", "shards.errors"), "curate.progress")
OPTIONS = ("curate.config.catalogue", "curate.config.packers", "curate.config.schema")
#: Functions that put what a call returned in words.
WORDS = {
    ("curate.experiments.advice.page", "text"),
    ("curate.experiments.baselines.report", "page"),
    ("curate.experiments.demo.demo", "table"),
    ("curate.ledger.facts", "in_words"),
    ("curate.ledger.manifest", "footer_in"),
    ("curate.stats.comparison", "in_words"),
}
#: Commands with more than one call, and why.
SEVERAL = {
    "run": "--dry-run times steps where the other call runs",
    "prune": "--grid prints a grid where the other call judges",
    "ledger": "--final also writes the weights of a run that was stopped",
    "evaluate": "--against compares, as compare-baselines does, where the other call scores",
    "rewrite": "the store is opened beforehand, so that its own errors come before the work; --dry-run counts",
    "verify": "the store is opened beforehand, so that its own errors come before the work",
    "clean": "--dry-run lists where the other call removes",
    "index": "a part, or the joining of parts; the line about the file says where it lies",
    "dedup": "--part hashes some shards where the other call compares all",
}
#: Commands without one, and why.
NONE = {"completion": "click writes the script"}


def commands(group: click.Group = command, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command by what is typed for it, those of groups included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        typed = f"{above} {name}".strip()
        if isinstance(found, click.Group):
            yield from commands(found, typed)
        else:
            yield typed, found


COMMANDS = dict(commands())


def module_of(found: click.Command) -> ast.Module:
    """The source of the module that a command's callback stands in."""
    assert found.callback is not None
    return ast.parse(Path(inspect.getfile(inspect.unwrap(found.callback))).read_text(encoding="utf-8"))


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Every function of a module by its name, those inside others too."""
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def reached(tree: ast.Module, name: str) -> list[ast.FunctionDef]:
    """A function, and those of its module that it names, and that these name."""
    known, found = functions(tree), {}
    todo = [name]
    while todo:
        one = todo.pop()
        if one in known and one not in found:
            found[one] = known[one]
            todo += [node.id for node in ast.walk(known[one]) if isinstance(node, ast.Name)]
    return list(found.values())


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of every import that is run; of `import x` the name is empty."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.Import):
        yield from ((name.name, "") for name in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        assert not tree.level, "relative"
        for name in tree.names:
            whole = f"{tree.module}.{name.name}"
            yield (whole, "") if whole in API else (tree.module or "", name.name)
    for child in ast.iter_child_nodes(tree):
        yield from imports(child)


def foreign(tree: ast.Module) -> list[tuple[str, str]]:
    """What a verb's module imports of the library that it may not."""
    ours = [(module, name) for module, name in imports(tree) if module.partition(".")[0] in ("curate", "shards")]
    return [
        (module, name)
        for module, name in ours
        if not (module.startswith("curate.cli") or module in (*API, *MODULES, *OPTIONS) or (module, name) in WORDS)
    ]


def calls(tree: ast.Module, name: str) -> list[str]:
    """The calls of the API in a function and in those of its module that it names."""
    nodes = (node for function in reached(tree, name) for node in own_nodes(function))
    return [
        node.func.attr
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "api"
    ]


def own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it, which are reached by their own names."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.FunctionDef):
            yield node
            todo += ast.iter_child_nodes(node)


@pytest.mark.parametrize("typed", COMMANDS)
def test_a_verb_imports_nothing_but_the_api(typed: str) -> None:
    """Policy, statistics and files belong to the library; a verb has options, a call and words."""
    wrong = foreign(module_of(COMMANDS[typed]))
    assert not wrong, f"curate {typed} imports {wrong}: give curate.api or shards.api a call that does it"


@pytest.mark.parametrize("typed", COMMANDS)
def test_a_verb_makes_one_call_of_the_api(typed: str) -> None:
    """More than one only where the table above says why."""
    found = COMMANDS[typed]
    assert found.callback is not None
    made = calls(module_of(found), inspect.unwrap(found.callback).__name__)
    assert all(hasattr(curate.api, name) or hasattr(shards.api, name) for name in made)
    if typed in SEVERAL:
        assert len(made) >= 2, f"{made}: take {typed} out of SEVERAL, or make fewer calls"
    else:
        assert len(made) == (typed not in NONE), made


def test_the_calls_of_the_api_are_public() -> None:
    """Whatever a verb calls, a script can call under a name that the packages list; where an index lies is told."""
    made = {call for found in COMMANDS.values() for call in calls(module_of(found), found.callback.__name__)}
    assert made - {"index_path"} <= {*curate.__all__, *shards.__all__}


def test_every_verb_is_looked_at() -> None:
    """Groups come as their commands."""
    assert {typed.partition(" ")[0] for typed in COMMANDS} == set(VERBS)
    assert {"pack idx", "reproduce table2"} <= set(COMMANDS)


@pytest.mark.parametrize(
    ("source", "wrong", "made"),
    [
        ("def verb():\n    from curate import api\n    api.run()", [], ["run"]),
        ("def verb():\n    from curate.runs.run import run\n    run()", [("curate.runs.run", "run")], []),
        ("def verb():\n    from shards import api\n    return other()\ndef other():\n    api.index()", [], ["index"]),
        ("from curate.stats.comparison import compare_results", [("curate.stats.comparison", "compare_results")], []),
        ("if TYPE_CHECKING:\n    from curate.runs.run import Run\ndef verb(): ...", [], []),
        ("def verb():\n    import curate.runs.run", [("curate.runs.run", "")], []),
        ("def unused():\n    api.run()\ndef verb():\n    api.dry_run()", [], ["dry_run"]),
    ],
)
def test_the_reading_of_a_verb(source: str, wrong: list[tuple[str, str]], made: list[str]) -> None:
    """The rule itself, on verbs that keep it and verbs that do not."""
    tree = ast.parse(source)
    assert foreign(tree) == wrong
    assert calls(tree, "verb") == made


def test_reading_help_of_every_verb_loads_no_torch() -> None:
    """Reading the table of packers and of verbs is no reason to load it; each verb's own help has a test of its own."""
    import subprocess

    code = (
        "import sys, curate.cli.pack, curate.config.packers; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
