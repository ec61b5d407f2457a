"""curate export."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import json_option, print_result


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--dali", is_flag=True, help="A .idx file beside each tar, for NVIDIA DALI's reader.")
@click.option("--datacomp", is_flag=True, help="uids.npy: sorted uids of the samples' .json, for DataComp's resharder.")
@json_option
def export(folder: Path, dali: bool, datacomp: bool, as_json: bool) -> None:
    """Write what other readers want beside curated shards (sizes.json, __len__ and shards.json are there already).

    \b
    Example:
      curate export run/curated --dali
    """
    from curate.errors import Misuse
    from shards import api

    if not dali and not datacomp:
        raise Misuse("nothing to export; give --dali, --datacomp or both")
    written = api.export(folder, dali=dali, datacomp=datacomp)
    print_result({"written": [str(path) for path in written]}, as_json, "\n".join(map(str, written)))
