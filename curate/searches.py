"""Which fine-tuning a folder holds: search.json says what was asked for, so that no two searches mix.

The cells and the result beside it are the part of `curate.downstream.search`.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from curate.errors import CurateError, RunMismatch
from shards.publish import as_json, from_json, publish_json

SEARCH, FORMAT = "search.json", 1


@dataclass(frozen=True)
class Asked:
    """All that the result of a search depends on, but the machine.

    Args:
        run: its id.
        target: its fingerprint.
        grid: cells, epochs, batch, halving.
        seed: of what is drawn.
        epoch: the one asked for, or how it is to be chosen and among which.
    """

    run: str
    target: str
    grid: dict[str, Any]
    seed: int
    epoch: Any

    @property
    def plain(self) -> dict[str, Any]:
        """As it reads back from JSON."""
        said: dict[str, Any] = from_json(as_json(asdict(self)))
        return said

    @property
    def digest(self) -> str:
        """Twelve hex digits that tell one search from another."""
        return hashlib.sha256(as_json(self.plain)).hexdigest()[:12]


def record(folder: Path, asked: Asked, epoch: int) -> None:
    """Write what was asked for, and the epoch whose network is fine-tuned."""
    publish_json(folder / SEARCH, {"format": FORMAT, "asked": asked.plain, "epoch": epoch})


def chosen(folder: Path, asked: Asked) -> int | None:
    """The epoch that an earlier call chose; None where there was none.

    Raises:
        RunMismatch: the folder holds another search; both values are shown.
        CurateError: its record is damaged.
    """
    path = folder / SEARCH
    if not path.exists():
        return None
    try:
        said = from_json(path.read_bytes())
        before, epoch, version = dict(said["asked"]), said["epoch"], said["format"]
        if type(epoch) is not int or epoch < 0:
            raise ValueError(f"epoch: expected a whole number from 0, found {epoch!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise CurateError(f"{path}: is damaged ({type(error).__name__}: {error}); name a new --out") from error
    if version != FORMAT:
        raise CurateError(f"{path}: format {version}, this release reads {FORMAT}; name a new --out")
    now = asked.plain
    different = [f"{name} was {before.get(name)}, is {now[name]}" for name in now if before.get(name) != now[name]]
    if different:
        raise RunMismatch(f"{folder}: holds another search: {'; '.join(different)}; name a new --out")
    return epoch
