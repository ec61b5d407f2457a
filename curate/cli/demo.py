"""curate demo."""

from __future__ import annotations

import json
from pathlib import Path

import click

from curate.cli.options import json_option, out_option, seed_option


@click.command()
@out_option("Where everything goes; a new folder, or the one of an unfinished demo.")
@click.option(
    "--pretext",
    type=click.Choice(["reconstruction", "rotation"]),
    default="reconstruction",
    show_default=True,
    metavar="PRETEXT",
    help="Task by which the store is weighed: reconstruction, or rotation, which takes minutes more.",
)
@seed_option
@json_option
def demo(out: Path, pretext: str, seed: int, as_json: bool) -> None:
    """See it all on small real images, without a download: pack, choose, rewrite, verify, pre-train, score.

    \b
    Example:
      curate demo --out demo
      curate demo --out demo-rotation --pretext rotation
    """
    from curate import api
    from curate.experiments.demo.demo import table

    results = api.demo(out=out, pretext="rotation" if pretext == "rotation" else "reconstruction", seed=seed)
    click.echo(json.dumps(results, indent=2) if as_json else table(results, out))
