"""curate features."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import (
    OutPath,
    Place,
    engine_options,
    json_option,
    part_option,
    print_result,
    workers_option,
)
from curate.config.catalogue import ENCODERS


def _encoders() -> str:
    """The encoders, each with what it needs, for the help."""
    specs = ((name, ENCODERS.spec(name)) for name in ENCODERS)
    lines = (f"  {name}{':' * bool(spec.needs)}{spec.needs}  {spec.title}" for name, spec in specs)
    return "\b\nEncoders:\n" + "\n".join(lines)


@click.command(epilog=_encoders())
@click.argument("shards", metavar="SHARDS")
@click.option("--encoder", default="untrained", show_default=True, help="What computes them; see below.")
@click.option("--out", type=OutPath(), help="Folder [default: `features` beside the shards].")
@click.option(
    "--nets", type=click.IntRange(1, 3), default=3, show_default=True, help="Networks of the untrained encoder."
)
@click.option(
    "--calibrate", metavar="STORE", help="For a target: the store that the untrained networks are measured on."
)
@click.option("--index", type=Place(), help="Index, where it is not in the shards' folder.")
@part_option
@workers_option
@engine_options
@click.option("--device", default="auto", show_default=True, help="Device: auto, cpu, cuda or cuda:N.")
@json_option
def features(
    shards: str,
    encoder: str,
    nets: int,
    calibrate: str | None,
    index: Path | str | None,
    out: Path | str | None,
    part: str | None,
    workers: int | None,
    device: str,
    as_json: bool,
) -> None:
    """Compute features of every image once; selectors use them again and again.

    \b
    Example:
      curate features store
      curate features store --encoder lite0 --out features
      curate features photos --calibrate store --out features
      curate features store --engine ray --ray-address auto
    """
    from curate import api
    from curate.progress import Bar

    summary = api.features(
        shards,
        encoder=encoder,
        nets=nets,
        calibrate=calibrate,
        index=index,
        out=out,
        part=part,
        workers=workers,
        device=device,
        progress=Bar("features"),
    )
    print_result(
        summary,
        as_json,
        f"{summary.images:,} images, {summary.numbers:,} numbers each, {summary.left_out:,} do not decode\n"
        f"computed {summary.computed:,} in {summary.seconds:.1f} s, {summary.images_per_second:,.0f} images a second\n"
        f"features {summary.folder}",
    )
