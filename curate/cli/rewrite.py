"""curate rewrite."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import (
    COUNT,
    allow_pipe_option,
    counted,
    engine_options,
    json_option,
    n_workers,
    out_option,
    print_result,
    store_option,
    workers_option,
)


@click.command()
@store_option()
@click.option(
    "--manifest", type=click.Path(path_type=Path), required=True, help="Parquet with shard and key; or a run: its last."
)
@out_option("The folder of curated shards.")
@click.option("--index", "index_file", type=click.Path(path_type=Path), help="The store's index, if not in its folder.")
@click.option("--shard-size", type=COUNT, default=None, help="Bytes [default: the store's median].")
@click.option(
    "--rename", type=click.Choice(["none", "prefix"]), default="none", help="prefix: put the shard before each key."
)
@click.option(
    "--undecodable", type=click.Choice(["drop", "keep"]), default="drop", show_default=True, help="Such images."
)
@allow_pipe_option
@workers_option
@engine_options
@json_option
def rewrite(
    store: str,
    manifest: Path,
    out: Path,
    index_file: Path | None,
    shard_size: int | None,
    rename: str,
    undecodable: str,
    allow_pipe: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Copy the samples that a manifest names into new shards, byte for byte.

    \b
    Example:
      curate rewrite --store store --manifest run --out curated
      curate rewrite --store store --manifest mine.parquet --out curated
      curate rewrite --store store --manifest copies/manifest.parquet --out unique
    """
    from curate.api import manifest_of
    from curate.progress import shard_bar
    from shards import api

    processes, chosen = max(1, n_workers(workers)), manifest_of(manifest)
    index = api.open_index(store, index=index_file, workers=processes, allow_pipe=allow_pipe)
    with shard_bar("rewriting"):
        summary = api.rewrite(
            index,
            chosen,
            out,
            shard_size=shard_size,
            rename=rename == "prefix",
            undecodable="keep" if undecodable == "keep" else "drop",
            workers=processes,
        )
    counts = ", ".join(f"{n:,} {name}" for name, n in summary.counts.items() if n)
    print_result(
        summary, as_json, f"{counted(summary.shards, 'shard')}, {summary.bytes:,} bytes ({counts})\nshards {out}"
    )
