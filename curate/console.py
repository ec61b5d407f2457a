"""What is told to people while something runs: on stderr, and in a log file where one is asked for.

Four kinds of lines, by the levels of `logging`: errors and warnings; notes; progress, once in a while; details. A
terminal has bars in place of lines of progress. A path in the local copy of what is behind a URL is told as the URL.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from curate.errors import CurateError
from shards.errors import without_secrets

LOGGER = logging.getLogger("curate.console")
#: The level of a line of progress: below a note, above a detail.
PROGRESS = 15
#: Seconds between two lines of progress of one job.
EVERY_S = 30.0


class _OnStderr(logging.Handler):
    """Lines on what is stderr now; above the bars of a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == PROGRESS and on_terminal():
            return
        text = record.getMessage()
        if on_terminal() and "tqdm" in sys.modules:
            from tqdm import tqdm

            tqdm.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


class _InFile(logging.FileHandler):
    """Lines with their time, at the end of a file."""

    def handleError(self, record: logging.LogRecord) -> None:
        """A log that cannot be written is an error, not a traceback on stderr."""
        raise


_on_stderr = _OnStderr(PROGRESS)
LOGGER.addHandler(_on_stderr)
LOGGER.setLevel(logging.DEBUG)
LOGGER.propagate = False


def on_terminal() -> bool:
    """Whether stderr is a terminal, where a line can be drawn over."""
    return sys.stderr is not None and sys.stderr.isatty()


def draws_bars() -> bool:
    """Whether bars are drawn: on a terminal, and unless `set_up` was told to be quiet."""
    return on_terminal() and _on_stderr.level <= logging.INFO


def set_up(*, quiet: bool = False, verbose: bool = False, log_file: Path | None = None) -> None:
    """Say how much is told, from now on in this process.

    Args:
        quiet: warnings and errors only.
        verbose: details, too.
        log_file: also written to, at its end, with times: all that stderr would have without ``quiet``.

    Raises:
        CurateError: the log file cannot be opened.
    """
    least = logging.DEBUG if verbose else PROGRESS
    _on_stderr.setLevel(logging.WARNING if quiet else least)
    for handler in [each for each in LOGGER.handlers if isinstance(each, _InFile)]:
        LOGGER.removeHandler(handler)
        with suppress(OSError):  # on a full disk it was told at the line that did not fit
            handler.close()
    if log_file is None:
        return
    try:
        file = _InFile(log_file, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise CurateError(f"--log-file {log_file}: {error.strerror}; name a file that can be written") from error
    file.setLevel(least)
    file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    LOGGER.addHandler(file)


def settings() -> dict[str, Any]:
    """What `set_up` is to be given in another process, so that it tells as much as this one."""
    files = [Path(each.baseFilename) for each in LOGGER.handlers if isinstance(each, _InFile)]
    quiet, verbose = _on_stderr.level > logging.INFO, _on_stderr.level <= logging.DEBUG
    return {"quiet": quiet, "verbose": verbose, "log_file": files[0] if files else None}


def error(text: str) -> None:
    """A line on what failed."""
    _tell(logging.ERROR, text)


def warning(text: str) -> None:
    """A line that is told even to those who asked for quiet."""
    _tell(logging.WARNING, text)


def note(text: str) -> None:
    """A line worth knowing."""
    _tell(logging.INFO, text)


def progress(text: str) -> None:
    """How far a job is; on a terminal its bar says so."""
    _tell(PROGRESS, text)


def detail(text: str) -> None:
    """A line for those who asked for all of them."""
    _tell(logging.DEBUG, text)


def _tell(level: int, text: str) -> None:
    from shards.io.mirror.copy import in_urls  # not for `--help`, which says nothing of it

    LOGGER.log(level, "%s", without_secrets(in_urls(text)))
