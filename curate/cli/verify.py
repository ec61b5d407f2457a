"""curate verify."""

from __future__ import annotations

import json
from pathlib import Path

import click

from curate.cli.options import Place, allow_pipe_option, engine_options, json_option, n_workers, workers_option
from curate.errors import CurateError


@click.command()
@click.argument("folder", type=Place(exists=True, file_okay=False))
@click.option("--against", metavar="SHARDS", help="The store: also prove that the bytes are its bytes.")
@click.option("--index", "index_file", type=Place(), help="The store's index, if not in its folder.")
@allow_pipe_option
@workers_option
@engine_options
@json_option
def verify(
    folder: Path | str,
    against: str | None,
    index_file: Path | str | None,
    allow_pipe: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Prove a folder of curated shards: checksums, every kept sample once, nothing else.

    \b
    Example:
      curate verify run/curated --against store
      curate verify s3://bucket/curated --against s3://bucket/store/
    """
    from curate.progress import shard_bar
    from shards import api

    processes = max(1, n_workers(workers))
    store = api.open_index(against, index=index_file, workers=processes, allow_pipe=allow_pipe) if against else None
    with shard_bar("verifying"):
        faults = api.verify(folder, store, workers=processes)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "faults": faults}, indent=2))
    else:
        click.echo("\n".join(faults) or f"{folder}: as it should be")
    if faults:
        raise CurateError(f"{folder}: {len(faults)} faults; rewrite it from the store into a new folder")
