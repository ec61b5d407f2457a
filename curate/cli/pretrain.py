"""curate pretrain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from curate.cli.options import (
    COUNT,
    SectionedCommand,
    counted,
    given,
    json_option,
    options_of,
    out_option,
    print_result,
    seed_option,
    store_option,
    waited,
)
from curate.config.catalogue import PRETEXTS
from curate.config.schema import ImageConfig, MachineConfig, NetworkConfig, TrainConfig


@click.command(cls=SectionedCommand)
@store_option()
@out_option("Where the checkpoints go: new, or of a training that goes on.")
@click.option(
    "--pretext",
    type=click.Choice(list(PRETEXTS)),
    metavar="PRETEXT",
    help=f"Task: {', '.join(PRETEXTS)} [default: rotation].",
)
@click.option("--steps", type=COUNT, help="Train for so many steps, in place of --epochs.")
@options_of(TrainConfig, MachineConfig, ImageConfig, NetworkConfig, first=("epochs", "batch", "device"))
@seed_option
@json_option
def pretrain(store: str, out: Path | str, steps: int | None, as_json: bool, **options: Any) -> None:
    """Train a network plainly on any shards, every image alike.

    \b
    Example:
      curate pretrain --store run/curated --out net --epochs 35
      curate pretrain --store store --out raw --steps 4000 --crop 32 --size 36
      curate pretrain --store store --out net --pretext simclr --steps 4000
    """
    from curate import api
    from curate.progress import Bar

    summary = api.pretrain(store, out=out, steps=steps, progress=Bar("pretrain"), **given(options)).summary
    if summary is None:  # another process than the first of torchrun's, which prints
        return
    text = f"{counted(summary.images, 'image')}, {counted(summary.epochs, 'epoch')}, {counted(summary.steps, 'step')}"
    text += f", {summary.seconds:.0f} s of training; {waited():.0f} s in this call"
    print_result(summary, as_json, f"{text}\ncheckpoints {out}/checkpoints")
