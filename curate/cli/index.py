"""curate index."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from curate.cli.options import (
    Place,
    allow_pipe_option,
    counted,
    engine_options,
    json_option,
    n_workers,
    part_option,
    print_result,
    talk,
    workers_option,
)
from curate.errors import CurateError, Misuse

#: Faults printed one by one; the report file has them all.
SHOWN = 20


@click.command()
@click.argument("shards", metavar="SHARDS")
@click.option(
    "--index",
    "index_file",
    type=Place(),
    help="Where it goes, a path or URL [default: .curate in the shards' folder].",
)
@click.option("--check", is_flag=True, help="Also decode every image and parse every .json and .cls.")
@click.option("--image", help="Extension of the image to use where samples hold several.")
@click.option("--skip-bad-shards", is_flag=True, help="Leave out files that are no tar, instead of refusing all.")
@click.option("--strict", is_flag=True, help="Exit 1 when anything is at fault.")
@part_option
@click.option("--join", is_flag=True, help="Make the index of all the parts that --part has written.")
@allow_pipe_option
@workers_option
@engine_options
@json_option
def index(
    shards: str,
    index_file: Path | str | None,
    check: bool,
    image: str | None,
    skip_bad_shards: bool,
    strict: bool,
    part: str | None,
    join: bool,
    allow_pipe: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Index a shard set: one row a sample, and a report of everything odd.

    \b
    Example:
      curate index store --check
      curate index s3://bucket/store/
      curate index 'https://server/{000..099}.tar' --index store.parquet
      curate index store --part 3/16      any order, any machines; then
      curate index store --join
    """
    from curate.progress import shard_bar
    from shards import api

    _refuse_idle(part=part, join=join, check=check, image=image, skip_bad_shards=skip_bad_shards, strict=strict)
    scanned: dict[str, Any] = {"check": check, "image": image, "allow_pipe": allow_pipe}
    scanned["workers"] = max(1, n_workers(workers))
    if part is not None:
        with shard_bar("indexing"):
            made = api.index_part(shards, part, index_file, **scanned)
        held = f"{counted(made.shards, 'shard')}, {counted(made.samples, 'sample')}, {counted(made.faults, 'fault')}"
        print_result(made, as_json, f"part {made.part}: {held}\npart: {made.file}")
        return
    if join:
        found, report = api.join_index(shards, index_file, skip_bad=skip_bad_shards, allow_pipe=allow_pipe)
    else:
        with shard_bar("indexing"):
            found, report = api.index(shards, index_file, skip_bad=skip_bad_shards, **scanned)
    index_file = index_file or api.index_path(found.root)
    for fault in report.faults[:SHOWN]:
        talk(str(fault))
    kinds = Counter(fault.kind for fault in report.faults)
    if as_json:
        click.echo(json.dumps(report.record(), indent=2))
    else:
        images = ", ".join(f"{n:,} {extension}" for extension, n in report.images.items()) or "none"
        held = f"{counted(report.shards, 'shard')}, {counted(report.samples, 'sample')}"
        click.echo(f"{held}, {report.bytes:,} bytes; images: {images}")
        click.echo(f"faults: {', '.join(f'{n} {kind}' for kind, n in kinds.items()) or 'none'}")
        if report.passed_over.text():
            click.echo(f"passed over: {report.passed_over.text()}")
        click.echo(f"index: {index_file}")
    if strict and report.faults:
        raise CurateError(f"{len(report.faults)} faults; they are listed in {Path(index_file).stem}.report.json")


def _refuse_idle(*, part: str | None, join: bool, **options: bool | str | None) -> None:
    """Refuse options that a part, or the joining of parts, would not look at.

    Raises:
        Misuse: one is given.
    """
    if part is not None and join:
        raise Misuse("--part and --join: the parts come first, then they are joined; give one of the two")
    of_parts, of_all = ("check", "image"), ("skip_bad_shards", "strict")
    idle = of_all if part is not None else of_parts if join else ()
    for name in idle:
        if options[name]:
            when = "when the parts are joined" if part is not None else "when each part is made"
            raise Misuse(f"--{name.replace('_', '-')}: is decided {when}; leave it out")
