"""curate ledger."""

from __future__ import annotations

import json
from pathlib import Path

import click

from curate.cli.options import json_option


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--final", is_flag=True, help="Write weights.parquet: one row an example, its last state.")
@json_option
def ledger(run: Path, final: bool, as_json: bool) -> None:
    """Show what a run has learnt, epoch by epoch.

    \b
    Example:
      curate ledger run
      curate ledger run --final
    """
    import pyarrow.compute as pc

    from curate.ledger import ledger as book
    from curate.runs import provenance

    provenance.read_run(run)
    lines = []
    for epoch in book.epochs(run):
        table = book.read_epoch(run, epoch, ["mean", "kept", "visits", "error"])
        kept, live = pc.sum(table["kept"]).as_py() or 0, len(table)
        errors = live - table["error"].null_count
        mean = pc.mean(table["mean"]).as_py()
        lines.append({"epoch": epoch, "live": live, "kept": kept, "mean": mean, "undecodable": errors})
    if final:
        click.echo(f"wrote {book.write_final(run)}", err=True)
    if as_json:
        click.echo(json.dumps(lines, indent=2))
        return
    click.echo(f"{'epoch':>5} {'live':>10} {'kept':>10} {'share':>6} {'E[w]':>6} {'undecodable':>11}")
    for line in lines:
        share = line["kept"] / max(1, line["live"])
        mean = "-" if line["mean"] is None else f"{line['mean']:.3f}"  # of no example
        click.echo(
            f"{line['epoch']:>5} {line['live']:>10,} {line['kept']:>10,} {share:>6.1%} {mean:>6}"
            f" {line['undecodable']:>11,}"
        )
