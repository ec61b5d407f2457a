"""curate run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from curate.cli.options import (
    SectionedCommand,
    config_option,
    counted,
    data_option,
    options_of,
    out_option,
    paper_option,
    print_result,
    waited,
)
from curate.config.schema import GROUPS, RunConfig

if TYPE_CHECKING:
    from curate.runs.run import RunSummary


#: Options that stand in the help's first section, beside those of the verb itself.
FIRST = ("method", "pretext", "epochs", "device")
#: The topics of the help, what is asked for most often first.
TOPICS = ("train", "prune", "output", "machine", "belief", "meta", "selection", "images", "network", "neighbours")


@click.command(cls=SectionedCommand)
@click.option("--store", metavar="SHARDS", help="The store: folder, tar, brace pattern, list file or URL.")
@click.option("--target", metavar="FOLDER|URL", help="The target: train/, val/ and test/ shards; or image files.")
@out_option("Run directory: new, or of a run that goes on.")
@click.option("--dry-run", is_flag=True, help="Say what it will cost, what is cheaper, what will not work.")
@config_option
@paper_option
@data_option
@options_of(RunConfig, *(GROUPS[topic] for topic in TOPICS), first=FIRST, usual=True)
def run(out: Path | str, config: Path | str | None, paper: bool, dry_run: bool, as_json: bool, **options: Any) -> int:
    """Weigh every image of a store by a target, prune, and rewrite what is kept.

    The defaults are what two cores do in minutes; `curate config --store STORE --target TARGET` prints them all.

    \b
    Example:
      curate run --store store --target target --out run
      curate run --store 'shards/{00..99}.tar' --target target --out run --dry-run
      curate run --config run/run.json --out again
    """
    from curate import api

    asked = {"out": out, "config": config, "paper": paper, **options}
    if dry_run:
        forecast = api.dry_run(**asked)
        print_result(forecast, as_json, forecast.text())
        return 1 if forecast.problems else 0
    from curate.progress import Bar

    summary = api.run(**asked, progress=Bar("weigh")).summary
    if summary is None:  # another process than the first of torchrun's, which prints
        return 0
    print_result(
        summary,
        as_json,
        f"kept {summary.kept:,} of {summary.examples:,} images {_by(summary)}, {waited():.0f} s\n"
        f"weights   {summary.run}/weights.parquet\n"
        f"ledger    {summary.run}/ledger\n"
        f"manifest  {summary.manifest}\n"
        f"shards    {summary.curated}",
    )
    return 0


def _by(summary: RunSummary) -> str:
    """What the choice rests on."""
    from curate.ledger.facts import in_words as facts_in_words

    if summary.epochs:
        first = f", {int(summary.facts['kept']):,} before the first" if summary.facts else ""
        return f"after {counted(summary.epochs, 'epoch')}{first}"
    facts = facts_in_words(summary.facts)
    return f"without training{f' ({facts})' if facts else ''}"
