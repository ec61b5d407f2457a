"""curate pack stl10."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import json_option, out_option, print_result, seed_option, shard_size_option, talk


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@out_option("Gets store and target; must not hold anything yet.")
@click.option(
    "--fold", type=click.IntRange(0, 999), default=None, help="Train and val of this predefined fold, from 0."
)
@click.option("--download", is_flag=True, help="Fetch STL-10 into FOLDER first where it lacks (2.6 GB, unpacked 5.5).")
@shard_size_option
@seed_option
@json_option
def stl10(
    folder: Path, out: Path, fold: int | None, download: bool, shard_size: int | None, seed: int, as_json: bool
) -> None:
    """Pack the binary files of STL-10: the unlabelled images as OUT/store, the labelled ones as OUT/target.

    Train and val are halves of the labelled train images, test is STL-10's. Every pixel is kept (PNG).

    \b
    Example:
      curate pack stl10 stl10_binary --out stl10
      curate pack stl10 data --download --out stl10
    """
    from shards.packing.stl10 import pack_stl10
    from shards.tar.writer import SHARD_SIZE

    if download:
        from curate.data import download as downloads

        downloads.stl10(folder)
    report = pack_stl10(folder, out, fold=fold, seed=seed, shard_size=shard_size or SHARD_SIZE)
    for note in report.notes:
        talk(f"note: {note}")
    counts = ", ".join(f"{n:,} {name}" for name, n in report.target.items())
    print_result(report, as_json, f"packed a store of {report.store:,} images; target: {counts}")
