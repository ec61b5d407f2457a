"""curate dedup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from curate.cli.options import (
    Place,
    engine_options,
    json_option,
    out_option,
    part_option,
    print_result,
    workers_option,
)

distance_option = click.option(
    "--distance",
    type=click.IntRange(0, 12),
    default=8,
    show_default=True,
    help="Bits of 64 in which hashes of the look may differ.",
)


@click.command()
@click.argument("store", metavar="SHARDS")
@out_option("Gets a table, pictures, and a manifest for `curate rewrite`.")
@click.option(
    "--level",
    type=click.Choice(["exact", "perceptual", "semantic"]),
    default="perceptual",
    show_default=True,
    metavar="LEVEL",
    help="exact (the same bytes or pixels), perceptual (or the same look), semantic (features alike, by these alone).",
)
@click.option("--against", metavar="OTHER", help="Another store, or a target: what is like an image of it goes.")
@click.option(
    "--keep",
    type=click.Choice(["largest", "first", "highest-weight"]),
    default="largest",
    show_default=True,
    metavar="WHICH",
    help="Which of a group stays, ties by key: largest, first, highest-weight (of --run).",
)
@click.option("--soft", is_flag=True, help="Write weights of 1 / images of the group in place of a manifest.")
@distance_option
@click.option(
    "--within/--no-within",
    default=None,
    help="Compare images of the store with each other, too [default: only without --against].",
)
@click.option(
    "--run",
    type=Place(exists=True, file_okay=False),
    help="Whose weights, for --keep highest-weight.",
)
@click.option(
    "--encoder", help="Features of --level semantic; `curate features --help` lists them [default: untrained]."
)
@click.option("--cosine", type=float, help="1 - cosine up to which features are alike [default: 0.04].")
@click.option("--index", type=Place(), help="Index, where it is not in the shards' folder.")
@part_option
@workers_option
@engine_options
@json_option
def dedup(store: str, out: Path | str, part: str | None, as_json: bool, **options: Any) -> None:
    """Find images that show the same, in one store or against another; keep one of each group.

    \b
    Example:
      curate dedup store --out copies
      curate rewrite --store store --manifest copies/manifest.parquet --out unique
      curate dedup store --against target --out unseen
      curate dedup store --level semantic --encoder lite0 --out meaning
      curate dedup store --part 3/16 --out copies         hashes only
    """
    from curate import api
    from curate.errors import Misuse
    from curate.progress import Bar

    if part is not None:
        if options["level"] == "semantic":
            raise Misuse("--part: hashes, which --level semantic has no use for; give `curate features --part`")
        given = {name: options[name] for name in ("index", "workers")}
        hashed = api.hash_part(store, part, out=out, progress=Bar("dedup"), **given)
        print_result(hashed, as_json, f"part {hashed.part}: {hashed.images:,} images hashed\nhashes: {hashed.folder}")
        return
    found = api.dedup(store, out=out, progress=Bar("dedup"), **options)
    print_result(found, as_json, f"{found.text()}\nwritten to {found.out}")
