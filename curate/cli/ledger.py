"""curate ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from curate.cli.options import json_option, remark, run_argument, talk


@click.command()
@run_argument
@click.option("--final", is_flag=True, help="Write weights.parquet: one row an example, its last state.")
@click.option(
    "--by", type=click.Choice(["epoch", "domain"]), default="epoch", show_default=True, help="A row for what."
)
@json_option
def ledger(run: Path | str, final: bool, by: Literal["epoch", "domain"], as_json: bool) -> None:
    """Show what a run has learnt, epoch by epoch.

    \b
    Example:
      curate ledger run
      curate ledger run --final
      curate ledger run --by domain
    """
    from curate import api

    lines = api.ledger_summary(run, by=by)
    if final:
        talk(f"wrote {api.write_weights(run)}")
    if as_json:
        click.echo(json.dumps(lines, indent=2))
        return
    remark("live: images that the epoch began with; share: of these; E[w]: mean of their expected weights, 0 to 1")
    head = f"{'epoch':>5} {'live':>10} {'kept':>10} {'share':>6} {'E[w]':>6} {'undecodable':>11}"
    click.echo(head + "  domain" * (by == "domain"))
    for line in lines:
        share = line["kept"] / max(1, line["live"])
        mean = "-" if line["mean"] is None else f"{line['mean']:.3f}"  # of no example
        click.echo(
            f"{line['epoch']:>5} {line['live']:>10,} {line['kept']:>10,} {share:>6.1%} {mean:>6}"
            f" {line['undecodable']:>11,}{'  ' * ('domain' in line)}{line.get('domain', '')}"
        )
