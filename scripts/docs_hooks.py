"""What mkdocs.yml's `hooks` adds to the site: every verb's own help, and the measured results beside the pages.

mkdocs-click knows neither the headings of `curate run`'s options nor click 8.5's unset defaults; the help itself has
both. Results stay where the scripts write them: links to them hold in the repository, and here they are turned to the
copies in the site.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from curate.cli import curate

ROOT = Path(__file__).resolve().parents[1]
#: Where the scripts keep what they measured, and the line of a page that is replaced by the help of all verbs.
RESULTS, HELP = "scripts/results", "<!-- help of every verb -->"


def on_files(files: Files, config: Any) -> Files:
    """Add the results, under the path that they have in the repository."""
    for path in sorted((ROOT / RESULTS).rglob("*")):
        if path.is_file():
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links out of docs/ to the copies in the site, and fill in the help."""
    up = posixpath.relpath(".", posixpath.dirname(page.file.src_uri) or ".")
    markdown = re.sub(rf"\]\((?:\.\./)+{RESULTS}/", f"]({up}/{RESULTS}/", markdown)
    return markdown.replace(HELP, "\n".join(help_of(curate, "curate"))) if HELP in markdown else markdown


def help_of(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    """A heading and the text of ``--help`` for a command and all below it, as Markdown."""
    context = click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100)
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from help_of(found, part, context)
