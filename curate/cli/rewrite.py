"""curate rewrite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from curate.cli.options import (
    COUNT,
    Command,
    Place,
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

if TYPE_CHECKING:
    from shards import Forecast


class _Price(click.FloatRange):
    """A range, in which nan does not lie."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """'0.01' -> 0.01."""
        found = super().convert(value, param, context)
        return self.fail(f"{value} is no number", param, context) if found != found else found


def _price(name: str, default: float, of: str) -> Callable[[Command], Command]:
    """--price-NAME; the defaults are those of S3's standard class, in US dollars."""
    kind = _Price(0, 1e6)
    return click.option(f"--price-{name}", type=kind, default=default, show_default=True, help=f"Of {of}.")


@click.command()
@store_option()
@click.option(
    "--manifest", type=Place(), required=True, help="Parquet with shard and key; or a run, or what dedup made."
)
@out_option("The folder of curated shards.")
@click.option("--index", "index_file", type=Place(), help="The store's index, if not in its folder.")
@click.option("--shard-size", type=COUNT, default=None, help="Bytes [default: the store's median].")
@workers_option
@click.option(
    "--rename", type=click.Choice(["none", "prefix"]), default="none", help="prefix: put the shard before each key."
)
@click.option(
    "--undecodable", type=click.Choice(["drop", "keep"]), default="drop", show_default=True, help="Such images."
)
@click.option("--dry-run", is_flag=True, help="Count bytes, requests and their cost; write nothing.")
@_price("get", 0.0004, "1,000 requests that read")
@_price("put", 0.005, "1,000 requests that write, copy or list")
@_price("transfer", 0.0, "a gigabyte read; nothing within one region")
@allow_pipe_option
@engine_options
@json_option
def rewrite(
    store: str,
    manifest: Path | str,
    out: Path | str,
    index_file: Path | str | None,
    shard_size: int | None,
    rename: str,
    undecodable: str,
    dry_run: bool,
    price_get: float,
    price_put: float,
    price_transfer: float,
    allow_pipe: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Copy the samples that a manifest names into new shards, byte for byte.

    \b
    Example:
      curate rewrite --store store --manifest run --out curated
      curate rewrite --store store --manifest copies --out unique
      curate rewrite --store s3://b/store/ --manifest run --out s3://b/curated
    """
    from curate.api import manifest_of
    from curate.progress import shard_bar
    from shards import api

    processes, chosen = max(1, n_workers(workers)), manifest_of(manifest)
    index = api.open_index(store, index=index_file, workers=processes, allow_pipe=allow_pipe)
    how: dict[str, Any] = {"shard_size": shard_size, "rename": rename == "prefix", "undecodable": undecodable}
    if dry_run:
        _print_forecast(api.forecast(index, chosen, out, **how), (price_get, price_put, price_transfer), as_json)
        return
    with shard_bar("rewriting"):
        summary = api.rewrite(index, chosen, out, workers=processes, **how)
    counts = ", ".join(f"{n:,} {name}" for name, n in summary.counts.items() if n)
    print_result(
        summary, as_json, f"{counted(summary.shards, 'shard')}, {summary.bytes:,} bytes ({counts})\nshards {out}"
    )


def _print_forecast(told: Forecast, prices: tuple[float, float, float], as_json: bool) -> None:
    cost = told.cost(*prices)
    print_result(
        {**asdict(told), "cost": cost},
        as_json,
        f"reads {told.bytes_read:,} bytes by {counted(told.reads, 'request')}\n"
        f"writes {told.bytes_written:,} bytes and copies {told.bytes_copied:,} at the server, "
        f"by {counted(told.writes, 'request')}\n"
        f"cost {cost:.4f} at the prices given",
    )
