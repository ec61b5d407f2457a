"""curate audit."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.dedup import distance_option
from curate.cli.options import OutPath, Place, engine_options, json_option, print_result, workers_option


@click.command()
@click.option("--target", required=True, metavar="FOLDER|URL", help="The target, with train/, val/ and test/.")
@click.option("--store", metavar="SHARDS", help="The store; without it only the target's own splits are compared.")
@click.option("--out", type=OutPath(file_okay=False), help="Gets tables, and pictures side by side.")
@click.option("--drop", is_flag=True, help="Also write the manifest of the store without these images.")
@click.option(
    "--fail-on",
    type=click.Choice(["exact", "perceptual"]),
    metavar="LEVEL",
    help="Exit with 1 where the store (without it: two splits) has a copy that is exact, or perceptual.",
)
@distance_option
@click.option("--index", type=Place(), help="Index, where it is not in the shards' folder.")
@workers_option
@engine_options
@json_option
def audit(
    target: str,
    store: str | None,
    out: Path | str | None,
    distance: int,
    fail_on: str | None,
    drop: bool,
    index: Path | str | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Does a store hold images of a target's val or test, the same, saved again, scaled, cropped a little or mirrored?

    Also says which copies stand on two sides of the target itself.

    \b
    Example:
      curate audit --store store --target target --out leaks
      curate audit --store store --target target --out leaks --drop
      curate audit --store store --target target --fail-on exact
    """
    from curate import api
    from curate.progress import Bar

    found = api.audit(
        target,
        store=store,
        out=out,
        distance=distance,
        drop=drop,
        index=index,
        workers=workers,
        progress=Bar("audit"),
    )
    print_result(found, as_json, found.text() + (f"\nwritten to {found.out}" if found.out else ""))
    if fail_on is not None and found.fails(fail_on):
        click.get_current_context().exit(1)
