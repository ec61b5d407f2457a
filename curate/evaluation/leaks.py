"""Whether a network was trained on images that it is to be scored on."""

from __future__ import annotations

from pathlib import Path

from curate.data.target import open_target
from curate.duplicates.leak_notes import leak_notes
from curate.errors import Error
from curate.runs.run_store import store_of


def trained_on(run: Path, target: str) -> list[str]:
    """A line for each split of the target that the store of a run holds images of; none where either cannot be read."""
    try:
        return leak_notes(store_of(run), open_target(target).splits)
    except Error:
        return []
