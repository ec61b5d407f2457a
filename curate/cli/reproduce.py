"""curate reproduce."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from curate.cli.options import EPOCHS, PROCESSES, Command, json_option, out_option, print_result, seed_option

SCALES = ("smoke", "mini", "paper")


def experiment_options(data: str, *more: str) -> Callable[[Command], Command]:
    """What every table is asked with; ``data`` says what its folder holds, ``more`` are scales of its own."""

    def decorate(command: Command) -> Command:
        for option in reversed(
            [
                click.option(
                    "--data", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True, help=data
                ),
                out_option("Gets the table, and all that it comes from; the same command goes on in it."),
                click.option(
                    "--scale", type=click.Choice((*SCALES, *more)), default="mini", show_default=True, help="How large."
                ),
                click.option("--processes", type=PROCESSES, default=1, show_default=True, help="Runs at a time."),
                seed_option,
                json_option,
            ]
        ):
            command = option(command)
        return command

    return decorate


device_option = click.option(
    "--device", default="auto", show_default=True, metavar="D,...", help="Devices, taken in turn by the runs."
)


@click.group()
def reproduce() -> None:
    """Repeat a table of the paper on the same data, or on less of it."""


@reproduce.command()
@experiment_options("A folder of folders of MNIST-layout files.", "signals")
@click.option("--sets", metavar="A,B,C", default=None, help="The sets [default: the three with the most images].")
@click.option("--epochs", type=EPOCHS, default=None, help="Of every method [default: the scale's].")
@click.option("--seeds", type=PROCESSES, default=None, help="Runs of each target [default: the scale's].")
def table1(sets: str | None, as_json: bool, **options: Any) -> None:
    """A VAE on a mix of MNIST-like sets, weighed for one of them (Table 1 and Figure 1).

    The scale "signals" sets BDW's other signals beside the paper's rule.

    \b
    Example:
      curate reproduce table1 --data idx --out table1 --scale smoke
    """
    from curate import api

    out: Path = options["out"]
    print_result(api.reproduce_table1(sets=names(sets), **options), as_json, read(out / "table1.md"))


@reproduce.command()
@experiment_options("A folder with decathlon-1.0/, folders of STL-10's binary files, or both.")
@click.option("--domains", metavar="A,B", default=None, help="The targets [default: all there are; smoke: two].")
@device_option
def table2(domains: str | None, device: str, as_json: bool, **options: Any) -> None:
    """Rotation features under four weightings, scored on many targets (Table 2 and Figure 2).

    A folder in STL-10's layout gives a data set of the folder's name, which is weighed from its own unlabelled images;
    the decathlon's domains are weighed from imagenet12. Uniform weights are trained once for all targets of a source.

    \b
    Example:
      curate reproduce table2 --data data --out table2 --scale smoke
      curate reproduce table2 --data data --out table2 --domains gtsrb,dtd
    """
    from curate import api

    out: Path = options["out"]
    result = api.reproduce_table2(domains=names(domains), devices=names(device) or ["auto"], **options)
    print_result(result, as_json, read(out / "table2.md"))


@reproduce.command()
@experiment_options("A folder with a folder of STL-10's binary files.")
@click.option("--domains", metavar="NAME", default=None, help="Which of several such folders.")
@device_option
def table3(domains: str | None, device: str, as_json: bool, **options: Any) -> None:
    """What eta, rho and lambda do on STL-10: accuracy, share pruned, training time (Table 3).

    An origin.csv beside the binary files (columns archive and in_the_10_classes, a line an image in their order) tells
    which unlabelled images are of the target's classes; then the table shows what was pruned of these and of the rest.

    \b
    Example:
      curate reproduce table3 --data data --out table3 --scale smoke
    """
    from curate import api

    out: Path = options["out"]
    result = api.reproduce_table3(domain=domains, devices=names(device) or ["auto"], **options)
    print_result(result, as_json, read(out / "table3.md"))


@reproduce.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="A folder with decathlon-1.0/, imagenette96/ and idx/.",
)
@out_option("Gets tables, figures, and all that they come from; the same command goes on in it.")
@click.option(
    "--scale",
    type=click.Choice(["smoke", "mini", "shares", "full"]),
    default="mini",
    show_default=True,
    help="How large.",
)
@click.option("--targets", metavar="A,B", default=None, help="Some of the targets [default: the scale's].")
@click.option("--pretexts", metavar="A,B", default=None, help="Some of the pretexts [default: the scale's].")
@click.option("--selectors", metavar="A,B", default=None, help="Some of the selectors [default: the scale's].")
@click.option("--processes", type=PROCESSES, default=1, show_default=True, help="Cells at a time.")
@json_option
def pays(targets: str | None, pretexts: str | None, selectors: str | None, as_json: bool, **options: Any) -> None:
    """When does curation pay? Seven targets in a store of 18,000 images, every way to choose, at equal budgets.

    Calls for other targets, pretexts and selectors add to the same folder.

    \b
    Example:
      curate reproduce pays --data data --out pays --scale smoke
      curate reproduce pays --data data --out pays --targets gtsrb,omniglot
    """
    from curate import api

    out: Path = options["out"]
    some: dict[str, Any] = {"targets": names(targets), "pretexts": names(pretexts), "selectors": names(selectors)}
    record = api.reproduce_pays(**some, **options)
    print_result(record, as_json, read(out / "pays.md"))


def names(text: str | None) -> list[str] | None:
    """'gtsrb, dtd' -> ["gtsrb", "dtd"]; None stays."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def read(page: Path) -> str:
    """What a table's page says."""
    return page.read_text(encoding="utf-8").rstrip()
