"""The command line: options -> configuration -> one call of the library -> its summary, printed.

Verbs are loaded when they are asked for, so that `curate --help` imports neither torch nor pyarrow.
Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 failed, 2 misuse, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

import click

from curate import __version__, console
from curate.errors import LostRank, is_want_of_memory, nearest
from shards.errors import Error
from shards.io.bus_error import install_handler
from shards.io.storage import clients

#: The verbs, in the order in which a newcomer meets them, each with its line in `curate --help`, so that this loads
#: none of them; each is a module here with a command of the same name, a dash being an underscore there.
VERBS = {
    "demo": "See it all on small real images, in minutes.",
    "pack": "Make shards of image files.",
    "index": "Index a shard set, and report everything odd.",
    "features": "Compute features of every image, once.",
    "dedup": "Find images that show the same; keep one of each.",
    "audit": "Does a store hold images of a target's test?",
    "advise": "Is curating worth it? A verdict in minutes.",
    "run": "Weigh every image by a target, prune, rewrite.",
    "config": "Print every option of a run, defaults filled in.",
    "ledger": "Show what a run has learnt, epoch by epoch.",
    "report": "Show a run on one page: what was kept, and why.",
    "prune": "Judge a run again by other thresholds, or a budget.",
    "rewrite": "Copy the samples of a manifest into new shards.",
    "verify": "Prove that curated shards are what they should be.",
    "export": "Write what other readers want beside the shards.",
    "clean": "Remove what a kill has left in an object store.",
    "pretrain": "Train a network plainly on any shards.",
    "evaluate": "Score a network's features on a labelled target.",
    "compare-baselines": "Does curation pay? A run against raw and random.",
    "compare": "Test whether methods differ over data sets.",
    "reproduce": "Repeat a table of the paper.",
    "completion": "Print what makes a shell complete these commands.",
}

#: When the command began, but for what Python itself took.
_BEGUN = time.monotonic()
STOPPED = "stopped; the same command goes on where it can, and starts again where it cannot"


class LazyGroup(click.Group):
    """A group whose commands are modules of this package, imported on use."""

    def list_commands(self, context: click.Context) -> list[str]:
        """In the order of `VERBS`, not of the alphabet."""
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of that name, None for an unknown one."""
        if name not in VERBS:
            return None
        module = name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"curate.cli.{module}"), module)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The lines of `VERBS`; no command is loaded."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is asked for; for an unknown one, the known one that may be meant."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"No such command '{args[0]}'{nearest(args[0], VERBS)}.", context)
        return super().resolve_command(context, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "CURATE"})
@click.version_option(__version__, prog_name="curate")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but warnings and errors.")
@click.option("-v", "--verbose", is_flag=True, help="More on stderr: every epoch's numbers, what was chosen.")
@click.option("--log-file", type=click.Path(path_type=Path), help="Also write stderr's lines there, with times.")
@click.option(
    "--storage-option",
    "storage",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of object stores, such as region=eu-west-1; beside those of the environment. May be repeated.",
)
def curate(quiet: bool, verbose: bool, log_file: Path | None, storage: tuple[str, ...]) -> None:
    """Learn how much each image of a store helps a target task, and keep what helps.

    \b
    The way of the data:
      curate demo --out demo                                see it all, in minutes
      curate pack imagefolder PHOTOS --out store            image files -> shards
      curate run --store store --target target --out run    -> run/curated
      curate pretrain --store run/curated --out net         train on what was kept
      curate evaluate net --target target                   how good is it there?

    `curate VERB --help` has its options; CURATE_VERB_OPTION in the environment gives one, such as CURATE_RUN_DEVICE.
    """
    click.get_current_context().meta["curate.begun"] = _BEGUN
    console.set_up(quiet=quiet, verbose=verbose, log_file=log_file)
    clients.configure(dict(map(_setting, storage)))


def _setting(text: str) -> tuple[str, str]:
    """``KEY=VALUE``; the value may be a secret, and so is in no message."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.BadParameter("expected KEY=VALUE", param_hint="--storage-option")
    return key, value


def main() -> None:
    """The entry point: our errors become one line and an exit code."""
    _read_names_as_utf8()
    # Straight to stderr: the system's signal may have come while a log was written.
    install_handler(lambda error: click.echo(f"Error: {error}", err=True))
    sys.unraisablehook = _interrupt_again
    try:
        sys.exit(curate.main(prog_name="curate", standalone_mode=False) or 0)
    except click.exceptions.Abort as error:
        sys.exit(_say(str(error.__cause__ or "") or STOPPED, 130))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except Error as error:
        sys.exit(error.exit_code if _is_for_another(error) else _say(str(error), error.exit_code))
    except OSError as error:
        sys.exit(_say(_in_a_line(error), 1))
    except UnicodeEncodeError as error:
        sys.exit(_say(f"{error.object!a}: its name is not UTF-8; rename it, or a folder on the way to it", 2))
    except KeyboardInterrupt as error:
        sys.exit(_say(str(error) or STOPPED, 130))
    except (MemoryError, RuntimeError) as error:
        if not is_want_of_memory(error):
            raise
        sys.exit(_say("out of memory; give a smaller --batch, --size, --width or --hidden, or --cache-bytes 0", 1))


def _read_names_as_utf8() -> None:
    """Start again in Python's UTF-8 mode where the locale has another encoding: it would change the keys of images."""
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _in_a_line(error: OSError) -> str:
    """An error of the system's, and what it is about: every file of ours is named by who reads or writes it."""
    if error.strerror is None:  # a library's own words
        return str(error)
    printing = traceback.extract_tb(error.__traceback__)[-1].name == click.echo.__name__
    return f"{error.filename or ('standard output' if printing else 'input or output')}: {error.strerror}"


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Ctrl-C that falls into a callback (of a fork, of an object that goes), where Python drops it, comes once more.

    What else goes wrong there is no traceback for a user: the error that led to it has its line.
    """
    if lost.exc_type is KeyboardInterrupt:
        main = threading.main_thread().ident or 0
        threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGINT)).start()
    elif sys.flags.dev_mode:
        sys.__unraisablehook__(lost)


def _is_for_another(error: Error) -> bool:
    """Whether this is one of torchrun's processes that has only lost another: the first of them says so."""
    return isinstance(error, LostRank) and os.environ.get("RANK", "0") != "0"


def _say(text: str, code: int) -> int:
    with suppress(OSError):  # a log on a full disk: stderr has the line by then
        console.error(f"Error: {' '.join(text.split())}")
    return code
