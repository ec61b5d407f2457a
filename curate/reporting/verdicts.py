"""What `curate compare-baselines` found about a run, as the page shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

from msgspec import Meta

from curate.errors import CurateError
from curate.evaluation.output_dir import FOLDER
from curate.experiments.baselines import report
from curate.experiments.text_tables import Sheet
from shards.errors import Error
from shards.io.json_files import convert, parse_json
from shards.io.regular_files import read_regular

T = TypeVar("T")
#: An object with something in it.
Filled = Annotated[dict[str, T], Meta(min_length=1)]


class Interval(TypedDict):
    """A mean, and half the width of its interval, in per cent."""

    mean: float
    half_width: float | None
    images: int


class Difference(Interval):
    """Curated less another set."""

    verdict: str


@dataclass(frozen=True)
class Read:
    """What is shown of a reading: regime -> set -> numbers."""

    interval: Filled[Filled[Interval]]
    difference: Filled[dict[str, Difference]]


@dataclass(frozen=True)
class Record:
    """The part of against.json that is shown; `curate.experiments.baselines.against` says what it means."""

    seeds: int
    kept: int
    store: int
    readings: Filled[Read]
    steps: Filled[dict[str, int]]
    images: dict[str, dict[str, int]]
    seconds: dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True)
class Comparison:
    """One folder of a run's evaluations.

    Args:
        name: of the folder.
        seeds, images: of each set, and of the test.
        words: set -> what is said of the curated one against it, by the first reading at equal steps.
        sheets: all readings and regimes.
        record: what the file says, for programs.
        fault: what is wrong with the file; empty where nothing is.
    """

    name: str
    seeds: int = 0
    images: int = 0
    words: tuple[tuple[str, str, str], ...] = ()
    sheets: tuple[Sheet, ...] = ()
    record: dict[str, Any] | None = None
    fault: str = ""


def comparisons(run: Path) -> list[Comparison]:
    """All that lie in a run's evaluations, by name; one that cannot be read says so."""
    paths = sorted((run / FOLDER).glob("against*/against.json"))
    return [_comparison(path) for path in paths]


def _comparison(path: Path) -> Comparison:
    try:
        return _shown(path.parent.name, parse_json(read_regular(path)))
    except (ValueError, LookupError, Error, OSError) as error:
        wrong = CurateError(f"{path}: is damaged, or of an earlier release ({error}); compare again")
        return Comparison(path.parent.name, fault=" ".join(str(wrong).split()))


def _shown(name: str, document: Any) -> Comparison:
    record = convert(document, Record)
    plain = {key: document[key] for key in ("readings", "steps", "images", "seconds")}
    sheets = [report.sheet(plain, regime, reading) for regime in record.steps for reading in record.readings]
    regime, first = next(iter(record.steps)), next(iter(record.readings.values()))
    words = [(kind, less["verdict"], _interval(less)) for kind, less in first.difference[regime].items()]
    images = next(iter(first.interval[regime].values()))["images"]
    return Comparison(name, record.seeds, images, tuple(words), tuple(sheets), document)


def _interval(found: Interval) -> str:
    return report.shown({"mean": found["mean"], "half_width": found["half_width"]})
