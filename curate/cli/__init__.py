"""The command line: options -> configuration -> one call of the library -> its summary, printed.

Verbs are loaded when they are asked for, so that `curate --help` imports neither torch nor pyarrow.
Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 failed, 2 misuse.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback

import click

from curate import __version__
from shards.errors import Error
from shards.io.bus_error import install_handler

#: The verbs, in the order in which a newcomer meets them; each is a module here with a command of the same name, a dash
#: being an underscore there.
VERBS = (
    *("demo", "pack", "index", "features", "advise", "run", "ledger", "report", "prune", "rewrite", "verify", "export"),
    *("pretrain", "evaluate", "compare-baselines", "compare", "reproduce"),
)

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


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="curate")
def curate() -> None:
    """Learn how much each image of a store helps a target task, and keep what helps.

    \b
    The way of the data:
      curate demo --out demo                                   see it all on small real images, in minutes
      curate pack imagefolder PHOTOS --out store               image files -> shards
      curate run --store store --target target --out run       weigh, prune, rewrite: run/curated holds the shards
      curate pretrain --store run/curated --out net            plain pre-training on what was kept
      curate evaluate net --target target                      how good its features are for the target
    """


def main() -> None:
    """The entry point: our errors become one line and an exit code."""
    _read_names_as_utf8()
    install_handler(lambda error: _say(str(error), error.exit_code))
    sys.unraisablehook = _interrupt_again
    try:
        sys.exit(curate.main(standalone_mode=False) or 0)
    except click.exceptions.Abort:
        sys.exit(_say(STOPPED, 130))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except Error as error:
        sys.exit(_say(str(error), error.exit_code))
    except OSError as error:
        sys.exit(_say(_in_a_line(error), 1))
    except UnicodeEncodeError as error:
        sys.exit(_say(f"{error.object!a}: its name is not UTF-8; rename it, or a folder on the way to it", 2))
    except KeyboardInterrupt:
        sys.exit(_say(STOPPED, 130))
    except (MemoryError, RuntimeError) as error:
        if not _is_want_of_memory(error):
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


def _is_want_of_memory(error: Exception) -> bool:
    """Python's own error, or torch's on the CPU, which has no type of its own."""
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)


def _say(text: str, code: int) -> int:
    click.echo(f"Error: {' '.join(text.split())}", err=True)
    return code
