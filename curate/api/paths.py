"""How the calls name files and runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curate.runs.opened import Run

PathLike = str | os.PathLike[str]


def path_of(run: Run | PathLike) -> Path:
    """The run directory of a run, or the path that stands for it."""
    return Path(run) if isinstance(run, str | os.PathLike) else run.path
