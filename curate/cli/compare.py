"""curate compare."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import OutPath, Place, json_option, print_result, talk


@click.command()
@click.argument("results", type=Place(exists=True, dir_okay=False))
@click.option("--metric", metavar="NAME", help="Column of the scores, where a file of domain, method, ... has several.")
@click.option("--lower-is-better", is_flag=True, help="The lowest score is the best, as of losses and seconds.")
@click.option(
    "--alpha", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True, help="Level."
)
@click.option("--out", type=OutPath(), help="Folder for the diagram (PNG, SVG) and a markdown table.")
@json_option
def compare(
    results: Path | str, metric: str | None, lower_is_better: bool, alpha: float, out: Path | str | None, as_json: bool
) -> None:
    """Test whether methods differ over data sets: ranks, Friedman, Nemenyi, critical-difference diagram.

    RESULTS is a CSV file with a method a column after the data set's name, or with columns domain, method and scores.

    \b
    Example:
      curate compare accuracies.csv --out comparison
      curate compare trainings.csv --metric seconds --lower-is-better --json
    """
    from curate import api
    from curate.stats.comparison import in_words

    comparison = api.compare(results, metric=metric, lower_is_better=lower_is_better, alpha=alpha, out=out)
    for line in comparison.warnings:
        talk(f"warning: {line}")
    width = max(map(len, comparison.ranks))
    ranks = [f"  {method:{width}}  {rank:.2f}" for method, rank in comparison.ranks.items()]
    heading = f"mean ranks over {comparison.domains} data sets, 1 is best:"
    print_result(comparison, as_json, "\n".join([heading, *ranks, *in_words(comparison)]))
