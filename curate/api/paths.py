"""How the calls name files and runs: local paths, or URLs of an object store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from curate.errors import Misuse
from shards.io import remote
from shards.io.mirror.place import local

if TYPE_CHECKING:
    from curate.runs.opened import Run

PathLike = str | os.PathLike[str]

#: Files of a run behind a URL that stay there: shards, which nothing reads from its folder; and, where only tables are
#: read, networks.
SHARDS = ("curated/*.tar",)
BUT_TABLES = (*SHARDS, "shards/*/*.tar", "*.safetensors")


def here(out: PathLike) -> Path:
    """A folder that only a local one will do for.

    Raises:
        Misuse: it is behind a URL.
    """
    if remote.is_url(os.fspath(out)):
        raise Misuse(f"--out {out}: this fills a folder of this machine alone; name one, and copy it when it is done")
    return Path(out)


def place_of(run: Run | PathLike) -> PathLike:
    """Where a run is: its path or its URL."""
    return run if isinstance(run, str | os.PathLike) else run.path


def path_of(run: Run | PathLike) -> Path:
    """The run directory of a run, or the path that stands for it; of a URL a local copy without its networks."""
    return local(place_of(run), without=BUT_TABLES)
