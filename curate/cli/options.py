"""Options that several verbs share, and the one option a field that a configuration's dataclasses become."""

from __future__ import annotations

import functools
import json
import time
import types
import typing
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from curate import console
from curate.config.catalogue import PRETEXTS
from shards.io import remote
from shards.io.mirror.copy import in_urls
from shards.member_names import is_utf8

Command = TypeVar("Command", bound=Callable[..., Any])

#: Under which a command's context has the moment when it began.
BEGUN = "curate.begun"


class Whole(click.IntRange):
    """A whole number whose upper end guards against a slip of the finger: the help has no use for it."""

    name = "integer"

    def _describe_range(self) -> str:  # what click puts behind an option's help
        return ""


#: What a seed may be in a run (`curate.config.defaults`), and so everywhere.
SEED = Whole(0, 2**63 - 1)
#: Passes over a store: a ledger counts them in 16 bits.
EPOCHS = Whole(1, 2**15 - 1)
#: Processes, and repetitions of a training: more is a slip of the finger.
PROCESSES = Whole(1, 1024)
#: Images, steps: what 64 bits count with room to spare.
COUNT = Whole(1, 2**60)

#: Letters of an option's choices beyond which they stand in its help's text, which leaves room for all others.
LONGEST_CHOICE = 24
JSON_HELP = "Print the result as JSON, for programs."
json_option = click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
seed_option = click.option("--seed", type=SEED, default=0, show_default=True, help="Seed.")
workers_option = click.option(
    "--workers", type=Whole(0, 1024), default=None, help="Processes [default: one a core, at most 8]."
)
part_option = click.option(
    "--part",
    is_flag=False,
    flag_value="slurm",
    metavar="[I/N]",
    help="Only part I of N of the shards; without I/N this task's place in its Slurm array.",
)
shard_size_option = click.option("--shard-size", type=COUNT, default=None, help="Bytes of a shard [default: 256 MiB].")


class Place(click.Path):
    """A path, or the URL of what lies in an object store; whether something is there is asked of paths alone."""

    def __init__(self, **kinds: bool) -> None:
        super().__init__(path_type=Path, **kinds)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """What `--help` says of an option's; an argument has its own name, and in messages it is a path."""
        return None if isinstance(param, click.Argument) else "PATH|URL"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """A `Path`, or the URL as it is."""
        return value if remote.is_url(str(value)) else super().convert(value, param, context)


#: Of verbs that read a run.
run_argument = click.argument("run", metavar="RUN", type=Place(exists=True, file_okay=False))


class OutPath(Place):
    """A place that is written to: one that is not UTF-8 would be found out after the work, by what reads it back."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """A `Path`, or the URL as it is."""
        path = super().convert(value, param, context)
        if not is_utf8(str(path)):
            self.fail("its name is not UTF-8; choose another", param, context)
        return path


allow_pipe_option = click.option(
    "--allow-pipe", is_flag=True, help="Let the shards, or a list of them on this machine, name pipe:COMMAND; it runs."
)


def out_option(text: str) -> Callable[[Command], Command]:
    """--out, required, with what it is."""
    return click.option("--out", type=OutPath(), required=True, help=text)


def engine_options(command: Command) -> Command:
    """--engine and --ray-address: by what the tasks over shards of a command are run."""

    @click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="What works at the shards: --workers processes, or a Ray cluster.",
    )
    @click.option("--ray-address", help="The cluster [default: RAY_ADDRESS, else one of this machine alone].")
    @functools.wraps(command)
    def with_engine(*args: Any, engine: Literal["local", "ray"], ray_address: str | None, **options: Any) -> Any:
        from shards import api

        with api.engine(engine, ray_address=ray_address):
            return command(*args, **options)

    return typing.cast("Command", with_engine)


def store_option(text: str = "Shards: folder, tar, brace pattern, list file or URL.") -> Callable[[Command], Command]:
    """--store, required, a shard set."""
    return click.option("--store", required=True, metavar="SHARDS", help=text)


class SectionOption(click.Option):
    """An option that belongs under a heading of its own."""

    section = ""


def in_section(title: str) -> type[SectionOption]:
    """The class of the options under a heading."""
    return type("Option", (SectionOption,), {"section": title})


class SectionedCommand(click.Command):
    """A command whose help shows its many options under headings."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Options without a section first, then each section in the order of its first option."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


#: Of `curate run` and `curate config`: where their options come from, and what form the result has.
ELSEWHERE = in_section("Options from elsewhere, and the result as data")
config_option = click.option(
    "--config",
    type=Place(),
    cls=ELSEWHERE,
    help="Options from a TOML or JSON file, or a run.json.",
)
paper_option = click.option(
    "--paper",
    is_flag=True,
    cls=ELSEWHERE,
    help="The paper's constants: raw eta 10, lam 0.25, rho 0.5, no option of ours.",
)
data_option = click.option("--json", "as_json", is_flag=True, cls=ELSEWHERE, help=JSON_HELP)


def options_of(*kinds: type, first: Collection[str] = (), usual: bool = False) -> Callable[[Command], Command]:
    """One option for every field of the dataclasses; what is not given comes as None.

    Args:
        kinds: the dataclasses, in the order of the help; each is a section of it.
        first: options that stand in the help's first section.
        usual: the verb takes the usual options (`curate.config.defaults.usual`); the paper's defaults stand behind.
    """

    def decorate(command: Command) -> Command:
        for kind in reversed(kinds):
            hints = typing.get_type_hints(kind)
            for item in reversed(fields(kind)):
                if "help" in item.metadata:
                    heading = (kind.__doc__ or "").partition(". ")[0].splitlines()[0].rstrip(".")
                    section = "Options" if item.name in first else heading
                    command = _option(item, hints[item.name], section, usual)(command)
        return command

    return decorate


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def print_result(result: Any, as_json: bool, text: str) -> None:
    """The result on stdout: as JSON (a dataclass or a dict), or as a text for people."""
    if as_json:
        value = asdict(result) if is_dataclass(result) and not isinstance(result, type) else result
        text = json.dumps(value, indent=2, default=str)
    click.echo(in_urls(text))


def counted(count: int, what: str) -> str:
    """A number of things, of which one is no plural.

    >>> counted(1, "shard"), counted(2000, "epoch")
    ('1 shard', '2,000 epochs')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def waited() -> float:
    """Seconds since the command began: what somebody waited for it, the loading of libraries included."""
    begun: float = click.get_current_context().find_root().meta.get(BEGUN, time.monotonic())
    return time.monotonic() - begun


def remark(text: str) -> None:
    """A line on stderr that explains, for people who have not asked for quiet."""
    console.note(f"note: {text}")


def talk(text: str) -> None:
    """A line for people on stderr; what a name may hold besides letters, line ends among it, is escaped."""
    console.warning("".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text))


def n_workers(workers: int | None) -> int:
    """What --workers says, else `shards.io.parallel.default_workers`."""
    from shards.io import parallel

    return parallel.default_workers() if workers is None else workers


def _option(item: Field[Any], hint: Any, section: str, usual: bool) -> Callable[[Command], Command]:
    from curate.config.defaults import by_pretext, usual_by_pretext  # only the verbs that have such options pay for it
    from curate.config.schema import flag

    name = flag(item.name)
    text = item.metadata["help"].rstrip(".")
    default = item.default if item.default is not MISSING else None
    kind, is_flag = _kind(item, hint)
    otherwise = item.metadata.get("otherwise", "")
    papers = in_words(by_pretext(item.name) if default in (None, "") else dict.fromkeys(PRETEXTS, default), otherwise)
    taken = in_words(usual_by_pretext(item.name, default), otherwise) if usual else papers
    metavar = None
    if isinstance(kind, click.Choice) and len("|".join(kind.choices)) > LONGEST_CHOICE:
        metavar = item.name.upper()
        text += f": {', '.join(kind.choices)}"
    if taken:
        text += f" [default: {taken}" + (f"; --paper: {papers}" if papers not in ("", taken) else "") + "]"
    of_section = in_section(section)
    if is_flag:
        return click.option(f"{name}/--no-{name[2:]}", item.name, cls=of_section, default=None, help=f"{text}.")
    return click.option(name, item.name, cls=of_section, type=kind, default=None, metavar=metavar, help=f"{text}.")


def in_words(by_pretext: dict[str, Any], otherwise: str = "") -> str:
    """The value of an option for each pretext; the one value, where all have it.

    Args:
        otherwise: what holds for the other pretexts, in words.

    >>> in_words({"rotation": 35, "reconstruction": 100, "simclr": 35}), in_words({"rotation": 0, "simclr": False})
    ('35 for rotation and simclr, 100 for reconstruction', '0 for rotation, off for simclr')
    >>> in_words({"reconstruction": "vae"}, "by the crop"), in_words({}, "by the crop")
    ('vae for reconstruction, else by the crop', 'by the crop')
    """
    whose: dict[str, list[str]] = {}
    for pretext, value in by_pretext.items():
        word = {True: "on", False: "off"}[value] if isinstance(value, bool) else "none" if value == () else str(value)
        whose.setdefault(word, []).append(pretext)
    if len(whose) == 1 and len(by_pretext) == len(PRETEXTS):
        return next(iter(whose))
    told = ", ".join(f"{word} for {' and '.join(pretexts)}" for word, pretexts in whose.items())
    if not otherwise or len(by_pretext) == len(PRETEXTS):
        return told
    return f"{told}, else {otherwise}" if told else otherwise


def _kind(item: Field[Any], hint: Any) -> tuple[Any, bool]:
    """click's type of a field, and whether it is a flag."""
    if item.metadata.get("choices"):
        return click.Choice(item.metadata["choices"]), False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is tuple:
        return Numbers(typing.get_args(hint)[0]), False
    return Real() if hint is float else hint, hint is bool


class Real(click.types.FloatParamType):
    """A number, or a percentage below 100: ``20%`` is 0.2."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """'0.2' or '20%' -> 0.2; 100% is refused, because 1 may be a count."""
        if not isinstance(value, str) or not value.endswith("%"):
            return super().convert(value, param, context)
        share = float(click.FLOAT(value[:-1], param, context)) / 100
        if not 0 <= share < 1:
            self.fail(f"{value!r}: expected a percentage from 0 to less than 100", param, context)
        return share


class Numbers(click.ParamType[Any]):
    """Numbers separated by commas; nothing for none."""

    name = "numbers"

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> tuple[Any, ...]:
        """'0.5,0.25' -> (0.5, 0.25)."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(self.kind(part) for part in str(value).split(",") if part.strip())
        except ValueError:
            self.fail(f"{value!r}: expected numbers separated by commas, such as 0.5,0.25", param, context)
