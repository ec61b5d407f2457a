"""Tables of text, and how they are written down: markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: What stands where there is no number.
HOLE = "-"
_TEX = str.maketrans({c: rf"\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "\\": r"\textbackslash{}"})


@dataclass(frozen=True)
class Sheet:
    """A table of text and the notes below it.

    Args:
        title: one line.
        header: of the columns; the first holds names, the others numbers.
        rows: as long as the header.
        notes: lines below it.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def number(value: float | None, decimals: int = 2) -> str:
    """A number as it is shown, the hole where there is none.

    >>> number(69.4), number(None), number(1386.5, 0)
    ('69.40', '-', '1,386')
    """
    return HOLE if value is None else f"{value:,.{decimals}f}"


def markdown(title: str, opening: Sequence[str], sheets: Iterable[Sheet]) -> str:
    """A page: title, opening lines, and the sheets under headings of their own."""
    parts = [f"# {title}", *opening]
    for sheet in sheets:
        parts += [f"## {sheet.title}", grid(sheet.header, sheet.rows)]
        if sheet.notes:
            parts.append("\n".join(f"- {note}" for note in sheet.notes))
    return "\n\n".join(parts) + "\n"


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of markdown: names in the first column, numbers to the right in the others; no line feed at its end."""
    return "\n".join([_line(header), "|:--|" + "--:|" * (len(header) - 1), *map(_line, rows)])


def latex(sheets: Iterable[Sheet]) -> str:
    r"""A ``table`` with a ``tabular`` for each sheet, the notes in its caption; needs no package."""
    return "\n".join(_tabular(sheet) for sheet in sheets)


def as_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Numbers in full, None as an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _tabular(sheet: Sheet) -> str:
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * (len(sheet.header) - 1)}}}", r"\hline"]
    lines += [_tex_line(sheet.header), r"\hline", *map(_tex_line, sheet.rows), r"\hline", r"\end{tabular}"]
    record = " ".join(f"{_ended(text)}" for text in (sheet.title, *sheet.notes))
    return "\n".join([*lines, rf"\caption{{{record.translate(_TEX)}}}", r"\end{table}", ""])


def _tex_line(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(_TEX) for cell in cells) + r" \\"


def _ended(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
