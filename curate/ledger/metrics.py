"""metrics.jsonl: one line an epoch, what the engine measured and the seconds of each stage."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from curate.errors import CurateError
from curate.types import EpochReport
from shards.io.atomic import write_bytes
from shards.io.json_files import convert, parse_json
from shards.io.regular_files import read_regular

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class _Line:
    """The fields of a line that are read again; a selector, which trains nothing, has none of the last three."""

    epoch: int
    images: int
    seconds: dict[str, float]
    cpu_seconds: float = 0.0
    pretext_loss: float | None = None
    meta_loss: float | None = None


def read_metrics(out: Path) -> list[bytes]:
    """The whole lines of metrics.jsonl; none where there is no such file.

    Raises:
        CurateError: line n is not that of epoch n, or lacks a field that is read again.
    """
    path = out / METRICS
    lines = read_regular(path).splitlines(keepends=True) if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            holds = convert(parse_json(line), _Line).epoch == number
        except ValueError:
            holds = False
        if not holds:
            raise CurateError(f"{path}: line {number} is damaged; restore it or start in a new --out")
    return lines


def append_metrics(path: Path, report: EpochReport) -> None:
    """Add a line: the whole file is published again, so that no reader ever sees half a line."""
    line = asdict(report)
    line |= line.pop("numbers")
    line["seconds"] = {stage: round(value, 4) for stage, value in line.pop("seconds").items()}
    before = path.read_bytes() if path.exists() else b""
    write_bytes(path, before + (json.dumps(line, allow_nan=False) + "\n").encode())


def seconds_spent(out: Path) -> float:
    """Wall-clock seconds of all finished epochs, whichever call trained them."""
    return round(sum(sum(parse_json(line)["seconds"].values()) for line in read_metrics(out)), 3)
