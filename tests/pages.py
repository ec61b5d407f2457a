"""The code blocks of the pages: found, and executed as a reader would, top to bottom, in one folder a page.

Functions only. ``sh`` blocks hold calls of `curate`, ``python`` blocks share their names, ``sql`` goes to DuckDB,
``json`` and ``toml`` must parse; ``text`` is no code. A block whose first line is a comment ``not run: WHY`` is left
out.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.cli import curate as command
from curate.config.defaults import applicable
from curate.config.schema import read_options

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LANGUAGES = ("sh", "python", "sql", "json", "toml", "text")
#: What a page's runs and pre-trainings have where the page says nothing else, so that they take a second.
SMALL = {"size": 16, "crop": 16, "width": 2, "hidden": 8, "epochs": 2, "batch": 16, "workers": 0, "device": "cpu"}
SMALL_META = {"ways": 3, "shots": 2, "target_batch": 8}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Args:
        language: "" where it says none.
        skipped: why it is not run; None where it is.
    """

    page: str
    line: int
    language: str
    text: str
    skipped: str | None


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, or those of a language, in order."""
    text, found = read(page), []
    for match in re.finditer(r"^ *```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        skipped = re.match(r"(?:#|--) not run: (.+)", match[2])
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, match[1], match[2], skipped and skipped[1]))
    return [block for block in found if language in (None, block.language)]


def execute(page: str) -> None:
    """Every block of a page in the working directory."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.skipped is None and block.language in RUNNERS:
            RUNNERS[block.language](block, names)


def run_python(block: Block, names: dict[str, Any]) -> None:
    """In the page's names; a block that is a file of examples, as the program that it is."""
    snippet = re.fullmatch(r'--8<-- "(.+)"\n', block.text)
    if snippet:
        runpy.run_path(str(ROOT / snippet[1]), run_name="__main__")
        return
    # As many empty lines before it as in the page, for the line numbers of an error.
    exec(compile("\n" * block.line + block.text, block.page, "exec"), names)


def run_shell(block: Block, names: dict[str, Any]) -> None:
    """Each line a call of the command line, in this process; an exit code that is not 0 fails."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "curate", f"{block.page}:{block.line}: {line}"
            assert not command.main(words[1:], prog_name="curate", standalone_mode=False), line


def run_sql(block: Block, names: dict[str, Any]) -> None:
    """A query finds something."""
    import duckdb

    found = duckdb.sql(block.text)
    assert found is None or found.fetchall(), f"{block.page}:{block.line}: finds nothing"


def run_toml(block: Block, names: dict[str, Any]) -> None:
    """It parses, and becomes the file that its first line names."""
    tomllib.loads(block.text)
    named = re.match(r"# (\w+\.toml)", block.text)
    if named:
        Path(named[1]).write_text(block.text)


def run_json(block: Block, names: dict[str, Any]) -> None:
    """One object, or one a line."""
    try:
        json.loads(block.text)
    except ValueError:
        for line in block.text.splitlines():
            json.loads(line)


RUNNERS: dict[str, Callable[[Block, dict[str, Any]], None]] = {
    "python": run_python,
    "sh": run_shell,
    "sql": run_sql,
    "toml": run_toml,
    "json": run_json,
}


def small(call: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    """A call of the public API whose defaults are `SMALL`."""

    def called(*arguments: Any, **options: Any) -> Any:
        given = {name: value for name, value in options.items() if value is not None}
        held = _said_by_file(given)
        defaults = applicable(str(given.get("method", "bdw")), SMALL | more)
        return call(*arguments, **{name: value for name, value in defaults.items() if name not in held}, **given)

    return called


def _said_by_file(given: dict[str, Any]) -> set[str]:
    """The options that are given, by a file, too."""
    config = given.get("config")
    return set(given) | (set(read_options(Path(config))) if config else set())
