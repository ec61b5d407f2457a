"""A run as one HTML file that needs nothing else: what was kept and why, pictures, costs, verdicts, what to do next."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curate.errors import Misuse
from curate.reporting import page
from curate.reporting.content import Content, gather
from curate.reporting.copies import Copies
from curate.reporting.reading import read
from shards.io.atomic import write_bytes

FILE_NAME = "report.html"


@dataclass(frozen=True)
class Report:
    """Where a report was written, and its numbers.

    Args:
        path: of the page.
        numbers: of the run, as plain values.
    """

    path: Path
    numbers: dict[str, Any]


def report(run: Path, out: Path | None = None, target: str | None = None) -> Report:
    """Write the page. The same run, store and target give the same bytes.

    Args:
        run: a run directory, finished or not, or that of a plain pre-training.
        out: the HTML file; None for ``report.html`` in the run.
        target: to look for copies of its images, and to name in commands; None for the run's own.

    Raises:
        Misuse: ``out`` is a folder, or holds something else.
        CurateError: no run, a damaged file of it, or Jinja2 is missing. What is wrong with the store, the target or a
            comparison is said in the page.
    """
    place = run / FILE_NAME if out is None else out
    _refuse_taken(place)
    content = gather(read(run), target)
    numbers = _numbers(content)
    write_bytes(place, page.render(content, numbers).encode())
    return Report(place, numbers)


def _numbers(content: Content) -> dict[str, Any]:
    """What `--json` says."""
    reading, judged = content.reading, content.reading.judged
    record: dict[str, Any] = {
        "run_id": reading.record["run_id"],
        "method": reading.method,
        "finished": reading.finished,
        "epochs": [asdict(epoch) for epoch in reading.epochs],
        "seconds": reading.seconds,
        "cpu_seconds": round(sum(line.get("cpu_seconds", 0.0) for line in reading.metrics), 3),
        "comparisons": {one.name: one.record for one in content.comparisons if one.record is not None},
        "notes": content.notes,
    }
    if judged is None:
        return record
    n, kept = len(judged.kept), int(np.count_nonzero(judged.kept))
    return record | {
        "images": n,
        "kept": kept,
        "pruned": int(np.count_nonzero(judged.pruned)),
        "undecodable": int(np.count_nonzero(~judged.decodes)),
        "share_kept": round(kept / n, 6) if n else None,
        "rule": judged.rule,
        "lam": judged.stamp.lam,
        "rho": judged.stamp.rho,
        "facts": judged.facts,
        "galleries": {one.name: one.count for one in content.shown},
        "domains": {
            row.name: {"images": row.images, "kept": row.kept, "mean": round(row.mean, 6)} for row in content.domains
        },
        "copies": _copy_numbers(content.copies),
    }


def _copy_numbers(found: Copies | None) -> dict[str, Any] | None:
    if found is None:
        return None
    names = ("target", "found", "near", "kept", "read", "alike")
    return {name: getattr(found, name) for name in names}


def _refuse_taken(out: Path) -> None:
    if out.is_dir():
        raise Misuse(f"--out {out}: is a folder; name the file that the page becomes")
    # A pipe would wait for who writes into it.
    if out.exists() and (not out.is_file() or page.MARK.encode() not in _head(out)):
        raise Misuse(f"--out {out}: is there, and no report of curate's; name another file")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(512)
