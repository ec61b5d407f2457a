"""curate pack: a command for each row of `curate.config.packers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from curate.cli.options import (
    Place,
    Whole,
    json_option,
    n_workers,
    out_option,
    print_result,
    seed_option,
    shard_size_option,
    talk,
)
from curate.config.packers import PACKERS, PackerSpec, PackOption

#: From here on the end of a range is a guard against a slip of the finger.
_GUARD = 1000


@click.group()
def pack() -> None:
    """Make shards of image files."""


def command_of(name: str, spec: PackerSpec) -> click.Command:
    """The command of a packer: its source, its options and what all packers have."""

    def command(as_json: bool, out: Path | str, seed: int, shard_size: int | None, **given: Any) -> None:
        from curate import api
        from curate.progress import shard_bar

        source = given.pop(spec.source)
        options = {option.name: _value(option, given[option.name]) for option in spec.options}
        if "workers" in options:
            options["workers"] = n_workers(options["workers"])
        with shard_bar("packing", "part"):
            report = api.pack(name, source, out=out, seed=seed, shard_size=shard_size, **options)
        for line in report.remarks():
            talk(line)
        print_result(report, as_json, report.text())

    command.__doc__ = _help(name, spec)
    first = [_click_option(option) for option in spec.options if option.required]
    others = [_click_option(option) for option in spec.options if not option.required]
    for option in reversed([*first, out_option(spec.out), *others, shard_size_option, seed_option, json_option]):
        command = option(command)
    path = Place(exists=spec.exists, file_okay=spec.is_file or spec.or_file, dir_okay=not spec.is_file)
    argument = click.argument(spec.source, nargs=-1 if spec.several else 1, required=True, type=path)
    return click.command(name, short_help=f"{spec.layout} -> {spec.makes}")(argument(command))


def _help(name: str, spec: PackerSpec) -> str:
    examples = "".join(f"  curate pack {name} {arguments}\n" for arguments in spec.examples)
    parts = (f"Pack {spec.title}.", spec.details, f"\b\nExample:\n{examples}" if examples else "")
    return "\n\n".join(part for part in parts if part)


def _click_option(option: PackOption) -> Any:
    """An option that was not given comes as None, so that the packer's own default holds."""
    flag = f"--{option.name.replace('_', '-')}"
    if option.type is bool:
        return click.option(flag, is_flag=True, default=None, help=option.help)
    kind = _whole(*option.within) if option.within else option.type
    shown = {} if option.default is None else {"default": option.default, "show_default": True}
    return click.option(flag, type=kind, required=option.required, metavar=option.metavar, help=option.help, **shown)


def _whole(least: int, most: int) -> click.IntRange:
    """A range; one whose end is only a guard is not shown."""
    return Whole(least, most) if most >= _GUARD else click.IntRange(least, most)


def _value(option: PackOption, given: Any) -> Any:
    return option.parse(given) if option.parse is not None and given is not None else given


for _name in PACKERS:
    pack.add_command(command_of(_name, PACKERS.spec(_name)))
