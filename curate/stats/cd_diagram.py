"""The critical-difference diagram: mean ranks on an axis, methods that are not told apart joined by a bar.

Owns its geometry, in inches; the figure itself is `curate.stats.plots`, the numbers are `curate.stats.friedman`.

Reference: Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006, figure 1: the axis is
turned so that the best rank is on the right; methods branch off downwards, the worse half to the left.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.stats.friedman import Comparison
from curate.stats.plots import canvas

MARGIN = 0.15
GAP = 0.1  # between text and line
LINE = 0.24  # from one label to the next
BAR = 0.13  # from one clique's bar to the next
OVERHANG = 0.05  # of a clique's bar beyond its outer methods
ABOVE_AXIS = 0.85  # room for the numbers of the axis and the critical difference
FONT_SIZE = 10
LONGEST = 100  # letters of a name; of a longer one the end is not drawn
#: What matplotlib warns of where its font lacks a letter: a box is drawn in its place.
_NO_LETTER = r"Glyph .* missing from|Matplotlib currently does not support"


@dataclass(frozen=True)
class Label:
    """A method's text beside the axis, and the place of its mean rank on it; inches from the left and the bottom."""

    text: str
    rank_x: float
    y: float
    is_left: bool


@dataclass(frozen=True)
class Bar:
    """The bar of a group of methods that are not told apart: its ends and height, in inches."""

    left: float
    right: float
    y: float


@dataclass(frozen=True)
class Layout:
    """Where everything goes, in inches from the lower left corner of the figure.

    Args:
        worst_x, best_x: places of the ranks k and 1 on the axis.
        axis_y: height of the axis.
    """

    width: float
    height: float
    worst_x: float
    best_x: float
    axis_y: float
    labels: tuple[Label, ...]
    bars: tuple[Bar, ...]


def critical_difference_diagram(path: Path, comparison: Comparison) -> None:
    """Draw the mean ranks of a comparison, its critical difference, and its cliques.

    Args:
        path: ``.png`` or ``.svg``; the same comparison gives the same bytes.

    Raises:
        Misuse: another suffix. CurateError: matplotlib is missing.
    """
    k = len(comparison.ranks)
    with warnings.catch_warnings(), canvas(path, 1, 1) as figure:
        warnings.filterwarnings("ignore", _NO_LETTER, UserWarning)
        placed = layout(comparison, {name: _inches(_shortened(name), figure) for name in _texts(comparison)})
        figure.set_layout_engine("none")
        figure.set_size_inches(placed.width, placed.height)
        panel = figure.add_axes((0, 0, 1, 1), xlim=(0, placed.width), ylim=(0, placed.height))
        panel.set_axis_off()
        _draw_axis(panel, placed, k)
        _draw_critical_difference(panel, placed, comparison, (placed.best_x - placed.worst_x) / (k - 1))
        for label in placed.labels:
            _draw_label(panel, placed, label)
        for bar in placed.bars:
            panel.plot([bar.left, bar.right], [bar.y] * 2, color="black", linewidth=4, solid_capstyle="butt")


def layout(comparison: Comparison, widths: Mapping[str, float]) -> Layout:
    """Place the labels in two columns without overlap, the outermost method of each side on top, bars above them.

    Args:
        widths: inches of the text of every method and of the critical difference (`_texts`).
    """
    names = [*comparison.ranks][::-1]  # worst first: from left to right
    k, half = len(names), len(names) // 2
    inches_a_rank = max(4.5, 0.4 * k) / (k - 1)
    left, right = (max(widths[name] for name in side) + GAP + 2 * GAP for side in (names[:half], names[half:]))
    worst_x = MARGIN + left
    best_x = worst_x + inches_a_rank * (k - 1)
    beside = max(comparison.cd * inches_a_rank, widths[_critical_difference_text(comparison)])
    x = {name: best_x - inches_a_rank * (rank - 1) for name, rank in comparison.ranks.items()}
    spans = [(x[group[-1]] - OVERHANG, x[group[0]] + OVERHANG) for group in comparison.cliques]
    rows = _rows(spans)
    below_axis = BAR * (max(rows, default=-1) + 1) + LINE
    height = ABOVE_AXIS + below_axis + LINE * (k - half - 1) + LINE / 2 + MARGIN
    axis_y = height - ABOVE_AXIS

    def label(place: int) -> Label:
        depth = min(place, k - 1 - place)  # lines from the top of its column
        return Label(names[place], x[names[place]], axis_y - below_axis - LINE * depth, place < half)

    bars = [Bar(start, end, axis_y - BAR * (row + 1)) for (start, end), row in zip(spans, rows)]
    width = max(best_x + right, worst_x + beside) + MARGIN
    return Layout(width, height, worst_x, best_x, axis_y, tuple(map(label, range(k))), tuple(bars))


def _rows(spans: Sequence[tuple[float, float]]) -> list[int]:
    """The first row in which each span, from right to left, keeps clear of those before it."""
    reached: list[float] = []
    rows = []
    for start, end in spans:
        row = next((row for row, left in enumerate(reached) if end + GAP / 2 < left), len(reached))
        reached[row : row + 1] = [start]
        rows.append(row)
    return rows


def _texts(comparison: Comparison) -> list[str]:
    return [*comparison.ranks, _critical_difference_text(comparison)]


def _critical_difference_text(comparison: Comparison) -> str:
    return f"CD = {comparison.cd:.3f} (α = {comparison.alpha:g})"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _inches(text: str, figure: Any) -> float:
    """Width of a text as it will be drawn."""
    drawn = figure.text(0, 0, text, fontsize=FONT_SIZE)
    width = drawn.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi
    drawn.remove()
    return float(width)


def _draw_axis(panel: Any, placed: Layout, k: int) -> None:
    panel.plot([placed.worst_x, placed.best_x], [placed.axis_y] * 2, color="black", linewidth=1, solid_capstyle="butt")
    step = (placed.best_x - placed.worst_x) / (k - 1)
    for halves in range(2 * k - 1):
        x, length = placed.best_x - step * halves / 2, 0.05 if halves % 2 else 0.1
        panel.plot([x, x], [placed.axis_y, placed.axis_y + length], color="black", linewidth=1)
        if halves % 2 == 0:
            panel.text(x, placed.axis_y + 0.13, f"{1 + halves // 2}", ha="center", va="bottom", fontsize=FONT_SIZE)


def _draw_critical_difference(panel: Any, placed: Layout, comparison: Comparison, inches_a_rank: float) -> None:
    y, length = placed.axis_y + 0.45, comparison.cd * inches_a_rank
    panel.plot([placed.worst_x, placed.worst_x + length], [y, y], color="black", linewidth=1)
    for x in (placed.worst_x, placed.worst_x + length):
        panel.plot([x, x], [y - 0.05, y + 0.05], color="black", linewidth=1)
    panel.text(placed.worst_x, y + 0.1, _critical_difference_text(comparison), va="bottom", fontsize=FONT_SIZE)


def _draw_label(panel: Any, placed: Layout, label: Label) -> None:
    end = placed.worst_x - 2 * GAP if label.is_left else placed.best_x + 2 * GAP
    xs, ys = [label.rank_x, label.rank_x, end], [placed.axis_y, label.y, label.y]
    panel.plot(xs, ys, color="0.35", linewidth=0.8, solid_joinstyle="miter")
    side, shift = ("right", -GAP / 2) if label.is_left else ("left", GAP / 2)
    panel.text(end + shift, label.y, _shortened(label.text), ha=side, va="center", fontsize=FONT_SIZE)
