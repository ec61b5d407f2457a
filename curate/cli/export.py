"""curate export."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import Place, json_option, print_result


@click.command()
@click.argument("folder", type=Place(exists=True, file_okay=False))
@click.option("--dali", is_flag=True, help="A .idx file beside each tar, for NVIDIA DALI's reader.")
@click.option("--datacomp", is_flag=True, help="uids.npy: sorted uids of the samples' .json, for DataComp's resharder.")
@click.option("--metadata", is_flag=True, help="The store's own Parquet files, cut to what was kept, with weights.")
@click.option("--run", type=Place(exists=True, file_okay=False), help="Whose weights [default: DIR's run].")
@json_option
def export(
    folder: Path | str, dali: bool, datacomp: bool, metadata: bool, run: Path | str | None, as_json: bool
) -> None:
    """Write what other readers want beside curated shards (what open_clip, wids and datasets read is there already).

    With --metadata, of the Parquet file that img2dataset left beside each shard of the store the rows of what was kept,
    joined with weight, a, b and kept: metadata/000000.parquet for 000000.tar, and so on.

    \b
    Example:
      curate export run/curated --dali
      curate export run/curated --metadata
    """
    from curate import api
    from curate.errors import Misuse

    if not (dali or datacomp or metadata):
        raise Misuse("nothing to export; give --dali, --datacomp, --metadata or several")
    written = api.export(folder, dali=dali, datacomp=datacomp, metadata=metadata, run=run)
    print_result({"written": [str(path) for path in written]}, as_json, "\n".join(map(str, written)))
