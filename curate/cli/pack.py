"""curate pack imagefolder."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import json_option, out_option, print_result, seed_option, shard_size_option, talk
from curate.cli.pack_decathlon import decathlon
from curate.cli.pack_idx import idx
from curate.cli.pack_stl10 import stl10
from curate.errors import Misuse


@click.group()
def pack() -> None:
    """Make shards of image files."""


pack.add_command(idx)
pack.add_command(stl10)
pack.add_command(decathlon)


@pack.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@out_option("The folder of shards; must not hold anything yet.")
@click.option("--target", is_flag=True, help="Class folders -> a labelled target with train/, val/, test/.")
@click.option("--split", help="Shares of train, val, test of a target [default: 0.4,0.2,0.4].")
@shard_size_option
@seed_option
@json_option
def imagefolder(
    folder: Path, out: Path, target: bool, split: str | None, shard_size: int | None, seed: int, as_json: bool
) -> None:
    """Pack a folder of images: a store, or with --target a folder of class folders.

    \b
    Example:
      curate pack imagefolder photos --out store
      curate pack imagefolder flowers --out target --target --split 0.4,0.2,0.4
    """
    from shards.packing.imagefolder import pack_folder, pack_target
    from shards.tar.writer import SHARD_SIZE

    if split is not None and not target:
        raise Misuse("--split: only with --target; add it, or leave --split out")
    size = shard_size or SHARD_SIZE
    if target:
        report = pack_target(
            folder, out, split=shares("0.4,0.2,0.4" if split is None else split), seed=seed, shard_size=size
        )
    else:
        report = pack_folder(folder, out, shard_size=size)
    for fault in report.faults:
        talk(f"left out: {fault}")
    for name, key in report.renamed.items():
        talk(f"renamed: {name} has the key {key}; readers pass over its own")
    counts = ", ".join(f"{n:,} {name or 'images'}" for name, n in report.samples.items())
    classes = f" in {len(report.classes)} classes" if target else ""
    text = f"packed {counts}{classes}; left out {len(report.faults)}, ignored {report.ignored} other files"
    passed_over = report.passed_over.text()
    text += f"\npassed over: {passed_over}" if passed_over else ""
    print_result(report, as_json, text)


def shares(text: str) -> tuple[float, float, float]:
    """'0.4,0.2,0.4' -> three floats.

    Raises:
        Misuse: not three numbers; that they are shares is for `shards.packing.imagefolder` to see.
    """
    try:
        train, val, test = (float(part) for part in text.split(","))
    except ValueError as error:
        raise Misuse(f"--split {text!r}: expected three shares such as 0.4,0.2,0.4") from error
    return train, val, test
