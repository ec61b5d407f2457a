"""curate compare-baselines."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.evaluate import LABELS_HELP, TAP_HELP, counts_of, words_of
from curate.cli.options import (
    COUNT,
    EPOCHS,
    PROCESSES,
    OutPath,
    allow_pipe_option,
    json_option,
    print_result,
    run_argument,
)


@click.command("compare-baselines")
@run_argument
@click.option("--target", required=True, metavar="FOLDER", help="A labelled target with train/, val/ and test/.")
@click.option(
    "--sets", default="raw,random", show_default=True, metavar="A,B", help="What to compare with: raw,random,nn,oracle."
)
@click.option("--seeds", type=PROCESSES, default=3, show_default=True, help="Trainings of each set.")
@click.option("--steps", type=COUNT, help="Of each training [default: the raw store's, in the run's epochs].")
@click.option("--labels-per-class", metavar="COUNTS", default="5,all", show_default=True, help=LABELS_HELP)
@click.option("--epochs", type=EPOCHS, help="Of each training at equal epochs [default: the run's].")
@click.option("--tap", metavar="TAPS", help=TAP_HELP.replace("pool]", "pool,layer2:4x4]"))
@click.option("--draws", type=PROCESSES, default=5, show_default=True, help="Draws of few labels, averaged.")
@click.option("--domain", help="Of oracle: the target's own domain in the store [default: as RUN was told].")
@click.option("--processes", type=PROCESSES, default=1, show_default=True, help="Trainings at a time.")
@click.option("--out", type=OutPath(), help="Its folder [default: in RUN/evaluations].")
@click.option("--device", default="auto", show_default=True, help="Device.")
@allow_pipe_option
@json_option
def compare_baselines(
    run: Path | str,
    target: str,
    sets: str,
    seeds: int,
    steps: int | None,
    epochs: int | None,
    tap: str | None,
    labels_per_class: str,
    draws: int,
    domain: str | None,
    processes: int,
    out: Path | str | None,
    device: str,
    allow_pipe: bool,
    as_json: bool,
) -> None:
    """Does curation pay? Train plainly on RUN's curated shards and on others, alike, and tell what is better.

    Equal steps come first: as much computing for each. Better and worse are said where the 95 % interval over seeds and
    test images leaves 0 out.

    \b
    Example:
      curate compare-baselines run --target target
      curate compare-baselines run --target target --sets raw,nn --steps 2000
    """
    from curate import api
    from curate.experiments.baselines.report import page

    found = api.compare_baselines(
        run,
        target,
        sets=words_of(sets),
        taps=words_of(tap),
        labels_per_class=counts_of(labels_per_class),
        out=out,
        device=device,
        seeds=seeds,
        steps=steps,
        epochs=epochs,
        draws=draws,
        domain=domain,
        processes=processes,
        allow_pipe=allow_pipe,
    )
    print_result(found, as_json, page(found).rstrip())
