"""curate config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from curate.cli.options import SectionedCommand, config_option, data_option, options_of, paper_option
from curate.cli.run import FIRST, TOPICS
from curate.config.schema import GROUPS, RunConfig


@click.command(cls=SectionedCommand)
@click.option("--store", metavar="SHARDS", help="The store, as `curate run` would be told.")
@click.option("--target", metavar="FOLDER", help="The target; where it is there, it is looked at for labels.")
@config_option
@paper_option
@data_option
@options_of(RunConfig, *(GROUPS[topic] for topic in TOPICS), first=FIRST, usual=True)
def config(config: Path | None, paper: bool, as_json: bool, **options: Any) -> None:
    """Print every option of a run as TOML that --config takes, with the defaults filled in.

    \b
    Example:
      curate config --store store --target target --epochs 5 > run.toml
      curate config --store store --target target --paper --json
    """
    from curate import api

    found = api.configuration(**options, config=config, paper=paper)
    click.echo(json.dumps(found.pop("") | found, indent=2) if as_json else toml(found).rstrip())


def toml(groups: dict[str, dict[str, Any]]) -> str:
    """Options by group as TOML: strings, numbers, truth values and lists of numbers are written there as in JSON."""
    lines = []
    for group, options in groups.items():
        if options:
            lines += [f"[{group}]"] if group else []
            lines += [f"{name} = {_value(value)}" for name, value in options.items()]
            lines.append("")
    return "\n".join(lines)


def _value(value: Any) -> str:
    """A value in TOML, which knows no surrogates and no bare DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
