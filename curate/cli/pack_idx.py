"""curate pack idx."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import COUNT, json_option, out_option, print_result, seed_option, shard_size_option


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--own", required=True, metavar="NAME", help="The set that is the target, by its folder's name.")
@out_option("Gets store and target; must not hold anything yet.")
@click.option("--store-images", type=COUNT, help="Images of each set in the store, at most [default: all].")
@click.option("--train-images", type=COUNT, help="Target images that drive the weights, at most [default: all].")
@click.option("--val-images", type=COUNT, help="Target images that select the epoch, at most [default: all].")
@click.option("--test-images", type=COUNT, help="Target images that give the result, at most [default: all].")
@shard_size_option
@seed_option
@json_option
def idx(
    folders: tuple[Path, ...], own: str, out: Path, shard_size: int | None, seed: int, as_json: bool, **limits: int
) -> None:
    """Pack sets in MNIST's layout: the training images of all as OUT/store, one set's own as OUT/target.

    The target has 10,000 of its set's training images (a sixth where there are fewer than 60,000), a tenth of these as
    val, and its t10k images as test; all others are the store. OUT/store/domains.parquet records each image's set.

    \b
    Example:
      curate pack idx idx/mnist idx/fashion-mnist --own mnist --out mnist-task
    """
    from shards.packing.idx import Limits, pack_idx
    from shards.tar.writer import SHARD_SIZE

    take = Limits(**{name.removesuffix("_images"): limit for name, limit in limits.items()})
    report = pack_idx(folders, own, out, take=take, seed=seed, shard_size=shard_size or SHARD_SIZE)
    store = ", ".join(f"{n:,} {name}" for name, n in report.store.items())
    target = ", ".join(f"{n:,} {name}" for name, n in report.target.items())
    print_result(report, as_json, f"packed a store of {store}; target {own}: {target} in {report.classes} classes")
