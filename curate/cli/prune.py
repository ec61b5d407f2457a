"""curate prune."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import OutPath, Real, json_option, print_result, run_argument
from curate.errors import Misuse


@click.command()
@run_argument
@click.option("--lam", type=float, help="Weight below which an image is no help [default: the run's].")
@click.option(
    "--rho", type=float, help="Prune when more than this share of the belief lies below [default: the run's]."
)
@click.option(
    "--keep",
    "share",
    type=Real(),
    help="Keep so many of the decodable images instead, best first: a count (500), or a share (0.2 or 20%; 1 is all).",
)
@click.option("--by", type=click.Choice(["mean", "lower"]), default="mean", show_default=True, help="Best by what.")
@click.option("--grid", is_flag=True, help="Print the share kept over a grid of lam and rho; writes nothing.")
@click.option("--out", type=OutPath(dir_okay=False), help="The manifest, a Parquet file.")
@json_option
def prune(
    run: Path | str,
    lam: float | None,
    rho: float | None,
    share: float | None,
    by: str,
    grid: bool,
    out: Path | str | None,
    as_json: bool,
) -> None:
    """Judge a finished run again by other thresholds, without training.

    \b
    Example:
      curate prune run --grid
      curate prune run --lam 0.3 --rho 0.5 --out stricter.parquet
      curate prune run --keep 25% --by lower --out quarter.parquet
      curate prune run --keep 500 --out best.parquet
    """
    from curate import api
    from curate.ledger.manifest import footer_in

    idle = {"--lam": lam, "--rho": rho, "--keep": share, "--out": out}
    if grid and (named := [flag for flag, value in idle.items() if value is not None]):
        raise Misuse(f"{', '.join(named)}: not with --grid, which writes nothing; leave out one or the other")
    if by != "mean" and share is None:
        raise Misuse(f"--by {by}: only with --keep; add it, or leave --by out")
    if grid:
        table = api.prune_grid(run)
        print_result(table.record(), as_json, table.text())
        return
    if out is None:
        raise Misuse("say where the manifest goes: --out FILE.parquet")
    record = footer_in(api.prune(run, lam=lam, rho=rho, keep=share, by="lower" if by == "lower" else "mean", out=out))
    summary = {"judged": record["in"], "kept": record["out"], "rule": record["rule"]}
    print_result(summary, as_json, f"kept {record['out']:,} of {record['in']:,}: {record['rule']}\nmanifest {out}")
