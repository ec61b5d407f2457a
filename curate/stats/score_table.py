"""Scores of methods on data sets: the table, and the CSV files that hold one.

Owns the two layouts of such files (methods in columns; one score a line) and every way in which one can be wrong. What
follows from the scores is `curate.stats.friedman`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from curate.errors import CurateError, Misuse
from shards.io.regular_files import read_regular

Reals = npt.NDArray[np.float64]

#: Headings, in small letters, that make a file one with a score a line when it has one of both kinds.
DOMAIN_HEADINGS = ("domain", "dataset", "data set", "data_set", "target", "task")
METHOD_HEADINGS = ("method", "model", "algorithm", "classifier")
#: The largest size of a score: sums and means of larger ones would overflow.
LARGEST = 1e100
#: Lines that summarise the others.
SUMMARIES = ("mean", "average")


@dataclass(frozen=True)
class ScoreTable:
    """One finite score for every method on every data set.

    Args:
        domains: N names, each once.
        methods: k names, each once.
        values: shape (N, k), float64, within +-1e100, in any unit; one direction of better for all.

    Raises:
        CurateError: a name twice, another shape, or a score that is no number or too large (the message says where).
    """

    domains: tuple[str, ...]
    methods: tuple[str, ...]
    values: Reals

    def __post_init__(self) -> None:
        for kind, names in (("data set", self.domains), ("method", self.methods)):
            if twice := [name for name in names if names.count(name) > 1]:
                raise CurateError(f"scores: {kind} {twice[0]!r} is there twice; give each a name of its own")
        expected = len(self.domains), len(self.methods)
        if self.values.shape != expected:
            raise CurateError(f"scores: expected shape {expected}, found {self.values.shape}; give one score a pair")
        for place in np.argwhere(~np.isfinite(self.values))[:1]:
            where = f"{self.domains[place[0]]}, {self.methods[place[1]]}"
            raise CurateError(f"{where}: expected a number, found {self.values[tuple(place)]}; complete or leave out")
        for place in np.argwhere(np.abs(self.values) > LARGEST)[:1]:
            where = f"{self.domains[place[0]]}, {self.methods[place[1]]}"
            raise CurateError(f"{where}: a score of {self.values[tuple(place)]:g}, expected {LARGEST:g} at most")


def table_of(scores: Mapping[str, Mapping[str, float]]) -> ScoreTable:
    """The table of ``scores[method][domain]``, domains in the order of the first method.

    Raises:
        CurateError: as `ScoreTable`; a method lacks a data set that another has.

    >>> table_of({"A": {"svhn": 1.0, "dtd": 2.0}, "B": {"dtd": 3.0, "svhn": 4.0}}).values
    array([[1., 4.],
           [2., 3.]])
    """
    domains = tuple(dict.fromkeys(domain for column in scores.values() for domain in column))
    for method, column in scores.items():
        if lacking := [domain for domain in domains if domain not in column]:
            raise CurateError(f"{lacking[0]}, {method}: no score; every method needs one on every data set")
    values = np.array([[column[domain] for column in scores.values()] for domain in domains], np.float64)
    return ScoreTable(domains, tuple(scores), values.reshape(len(domains), len(scores)))


def read_scores(path: Path, metric: str | None = None) -> ScoreTable:
    """The scores of a CSV file: UTF-8, separated by commas, tabs or semicolons (then a decimal comma is one too).

    Methods in columns: a heading of each, data sets in the first column. Or a score a line, when the heading names a
    column of data sets (`DOMAIN_HEADINGS`) and one of methods (`METHOD_HEADINGS`); every other column is a metric.

    Args:
        metric: heading of the scores where several columns are metrics.

    Raises:
        CurateError: the file is no such table; the message names the line, and what was found there.
        Misuse: a metric that is not there, or several and none chosen.
    """
    sheet = _sheet(path)
    found = [name.lower() for name in sheet.header]
    domain = next((place for place, name in enumerate(found) if name in DOMAIN_HEADINGS), None)
    method = next((place for place, name in enumerate(found) if name in METHOD_HEADINGS), None)
    if domain is None or method is None:
        if metric is not None:
            raise Misuse(f"{path}: methods stand in its columns, so there is no metric {metric!r} to choose; leave it")
        return table_of(_by_method(sheet, _cells(sheet)))
    score = _metric(sheet, {domain, method}, metric)
    return table_of(_by_method(sheet, [(line, row[domain], row[method], row[score]) for line, row in sheet.lines]))


@dataclass(frozen=True)
class _Sheet:
    """A heading, the lines that are not empty with their numbers, all of the heading's length, and the decimal mark."""

    path: Path
    header: list[str]
    lines: list[tuple[int, list[str]]]
    decimal: str


#: Number of the line, data set, method, and what stands there as the score.
_Cell = tuple[int, str, str, str]


def _sheet(path: Path) -> _Sheet:
    try:
        text = read_regular(path).decode("utf-8-sig")
        mark = _separator(text)
        rows = list(_rows(text, mark))
    except (UnicodeDecodeError, csv.Error) as error:
        raise CurateError(f"{path}: expected a CSV file in UTF-8, found {error}; export the table again") from error
    (_, header), *lines = rows or [(0, [])]
    if not lines:
        raise CurateError(f"{path}: expected a heading and a line for each data set, found fewer than 2 lines")
    while not header[-1]:
        header.pop()
    for line, row in lines:
        if len(row) < len(header) or any(row[len(header) :]):
            found = f"{len(row)} cells under {len(header)} headings"
            raise CurateError(f"{path} line {line}: {found}; give one cell each (quote a cell that holds {mark!r})")
    return _Sheet(path, header, lines, "," if mark == ";" else ".")


def _rows(text: str, mark: str) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line that is not empty, blanks in a cell reduced to one space."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True, strict=True)
    for row in reader:
        cells = [" ".join(cell.split()) for cell in row]
        if any(cells):
            yield reader.line_num, cells


def _separator(text: str) -> str:
    """The mark that divides the heading into most cells."""

    def n_cells(mark: str) -> int:
        try:
            return len(next(_rows(text, mark), (0, []))[1])
        except csv.Error:
            return 0  # quotes that fit another mark

    return max(",;\t", key=n_cells)


def _metric(sheet: _Sheet, others: set[int], chosen: str | None) -> int:
    """Index of the column of scores."""
    metrics = [name for place, name in enumerate(sheet.header) if place not in others]
    known = ", ".join(metrics) or "none"
    if chosen is None and len(metrics) != 1:
        raise Misuse(f"{sheet.path}: expected one column of scores, found {known}; choose one with --metric")
    if chosen is not None and metrics.count(chosen) != 1:
        raise Misuse(f"{sheet.path}: expected one column {chosen!r}, found {known}; give --metric one of these")
    return sheet.header.index(metrics[0] if chosen is None else chosen)


def _cells(sheet: _Sheet) -> list[_Cell]:
    """The scores of a file with methods in columns."""
    methods = sheet.header[1:]
    if "" in methods or len(set(methods)) < len(methods):
        found = ", ".join(methods)
        raise CurateError(f"{sheet.path}: expected a heading of its own for each method, found {found!r}; name them")
    return [(line, row[0], method, cell) for line, row in sheet.lines for method, cell in zip(methods, row[1:])]


def _by_method(sheet: _Sheet, cells: Sequence[_Cell]) -> dict[str, dict[str, float]]:
    """scores[method][domain], each once."""
    scores: dict[str, dict[str, float]] = {}
    first: dict[tuple[str, str], int] = {}
    for line, domain, method, cell in cells:
        where = f"{sheet.path} line {line}"
        if not domain or not method:
            raise CurateError(f"{where}: a score without a data set or method; name both")
        if domain.lower() in SUMMARIES:
            raise CurateError(f"{where}: {domain!r} sums up the data sets and is none itself; remove the line")
        if (domain, method) in first:
            before = first[domain, method]
            raise CurateError(f"{where}: {domain}, {method} was on line {before} too; average them, or keep one")
        first[domain, method] = line
        scores.setdefault(method, {})[domain] = _number(cell, sheet.decimal, f"{where}, {domain}, {method}")
    return scores


def _number(cell: str, decimal: str, where: str) -> float:
    try:
        value = float(cell.replace("_", " ").replace(decimal, "."))  # 1_000 is a number to Python alone
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise CurateError(f"{where}: expected a number, found {cell or 'nothing'!r}; complete it, or leave it out")
    return value
