"""curate evaluate."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import json_option, print_result


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--target", required=True, metavar="FOLDER", help="A labelled target with train/, val/ and test/.")
@click.option("--protocol", type=click.Choice(["logistic"]), default="logistic", show_default=True, help="Protocol.")
@click.option("--tap", default="pool", show_default=True, help="Stage whose output is the feature: layer2, ..., pool.")
@click.option("--epoch", type=click.IntRange(min=1), help="Only this epoch [default: the best by val accuracy].")
@click.option("--standardise", is_flag=True, help="Scale each feature to mean 0 and deviation 1 over train.")
@click.option("--device", default="auto", show_default=True, help="Device.")
@json_option
def evaluate(
    run: Path, target: str, protocol: str, tap: str, epoch: int | None, standardise: bool, device: str, as_json: bool
) -> None:
    """Score the features of a run or a pre-training on a labelled target.

    \b
    Example:
      curate evaluate net --target target
      curate evaluate net --target target --tap layer2 --json
    """
    from curate.evaluate import Protocol
    from curate.evaluate import evaluate as score

    summary = score(run, target, Protocol(tap, epoch, standardise, device))
    text = f"test {summary.test_accuracy:.2%}, val {summary.val_accuracy:.2%} at epoch {summary.epoch}"
    print_result(summary, as_json, f"{text} ({summary.features} features at {summary.tap}, {summary.classes} classes)")
