"""curate pack decathlon."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import json_option, out_option, print_result, seed_option, shard_size_option, talk
from curate.errors import Misuse


@click.command()
@click.argument("root", type=click.Path(path_type=Path, exists=True, file_okay=False))
@out_option("Gets store and targets/DOMAIN; must not hold anything yet.")
@click.option("--domains", metavar="A,B", default=None, help="The targets [default: all with annotations and images].")
@click.option("--source", default="imagenet12", show_default=True, help="The domain whose train images are the store.")
@click.option("--mix", metavar="A,B", default="", help="Domains whose unused train images go into the store too.")
@shard_size_option
@seed_option
@json_option
def decathlon(
    root: Path,
    out: Path,
    domains: str | None,
    source: str,
    mix: str,
    shard_size: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Pack the Visual Decathlon from ROOT/annotations and ROOT/data, whose images are folders or a tar a domain.

    A target's train and val are halves of as many train images as the paper takes, its test is the official val split.
    Image bytes stay as they are.

    \b
    Example:
      curate pack decathlon decathlon-1.0 --out decathlon
      curate pack decathlon decathlon-1.0 --domains gtsrb,omniglot --mix gtsrb,omniglot --out mixed
    """
    from curate.experiments.tables import protocols
    from shards.packing.decathlon.pack import pack_decathlon
    from shards.tar.writer import SHARD_SIZE

    report = pack_decathlon(
        root,
        out,
        targets=None if domains is None else chosen(domains),
        source=source,
        mix=names(mix),
        labelled=protocols.labelled,
        seed=seed,
        shard_size=shard_size or SHARD_SIZE,
    )
    for line in (*(f"left out: {fault}" for fault in report.faults), *(f"note: {note}" for note in report.notes)):
        talk(line)
    lines = [f"store: {', '.join(f'{n:,} {domain}' for domain, n in report.store.items())}"]
    lines += [
        f"targets/{domain}: " + ", ".join(f"{n:,} {split}" for split, n in counts.items())
        for domain, counts in report.targets.items()
    ]
    print_result(report, as_json, "\n".join(lines))


def chosen(text: str) -> tuple[str, ...]:
    """As `names`.

    Raises:
        Misuse: there is none.
    """
    if not names(text):
        raise Misuse(f"--domains {text!r}: names no domain; name some, or leave it out for all")
    return names(text)


def names(text: str) -> tuple[str, ...]:
    """'gtsrb, dtd' -> ("gtsrb", "dtd")."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
