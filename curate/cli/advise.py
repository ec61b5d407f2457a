"""curate advise."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.evaluate import words_of
from curate.cli.options import COUNT, PROCESSES, given, json_option, out_option, print_result, seed_option, store_option


@click.command()
@store_option()
@click.option(
    "--target", required=True, metavar="FOLDER", help="The target; with labels in train/ and val/ it is tried."
)
@out_option("Its folder: new, or of the same advice, which then goes on.")
@click.option("--budget", default="1h", show_default=True, help="Of the real training: steps (20000) or hours (12h).")
@click.option(
    "--pretext",
    default="rotation,simclr",
    show_default=True,
    metavar="A,B",
    help="What the real training may learn by.",
)
@click.option("--seeds", type=PROCESSES, default=5, show_default=True, help="Trainings of each set in the pilot.")
@click.option("--steps", type=COUNT, help="Of each of them [default: what fits in about two minutes].")
@click.option(
    "--encoder", default="untrained", show_default=True, help="Features; `curate features --help` lists them."
)
@click.option("--features", metavar="FOLDER", help="Folder that `curate features --out` wrote.")
@click.option("--index", type=click.Path(path_type=Path), help="Index, where it is not in the store's folder.")
@click.option("--processes", type=PROCESSES, help="Trainings at a time [default: two, where there are two cores].")
@click.option("--device", default="auto", show_default=True, help="Device: auto, cpu, cuda or cuda:N.")
@seed_option
@json_option
def advise(
    store: str,
    target: str,
    out: Path,
    budget: str,
    pretext: str,
    seeds: int,
    steps: int | None,
    encoder: str,
    features: str | None,
    index: Path | None,
    processes: int | None,
    device: str,
    seed: int,
    as_json: bool,
) -> None:
    """Is curating worth it? A classifier and a small pilot, minutes in all; hours of each plan; one plain sentence.

    \b
    Example:
      curate advise --store store --target target --out advice --budget 12h
      curate advise --store store --target target --out longer --steps 600
    """
    from curate import api
    from curate.experiments.advice.page import text
    from curate.progress import Bar

    found = api.advise(
        store,
        target,
        out=out,
        budget=budget,
        pretexts=words_of(pretext),
        seeds=seeds,
        steps=steps,
        seed=seed,
        processes=processes,
        progress=Bar("advise"),
        **given({"features": features, "index": None if index is None else str(index)}),
        encoder=encoder,
        device=device,
    )
    print_result(found, as_json, text(found).rstrip())
