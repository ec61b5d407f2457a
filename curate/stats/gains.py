"""Figures of a study of selectors: where curation pays, and what is reached after how many seconds.

Owns how they look, as `curate.stats.plots`; the numbers come from the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curate.errors import CurateError
from curate.stats.plots import COLOURS, canvas


@dataclass(frozen=True)
class Gain:
    """A difference of accuracies in points of per cent, and whether its interval leaves 0 out."""

    mean: float
    told: bool


@dataclass(frozen=True)
class Curve:
    """What one selector reaches: seconds, choosing included, accuracies in per cent, and their standard errors."""

    name: str
    seconds: Sequence[float]
    accuracy: Sequence[float]
    error: Sequence[float]


def gain_map(path: Path, gains: Mapping[tuple[str, str], Gain], title: str) -> None:
    """Draw gains as a coloured table; bold where the interval leaves 0 out, grey where nothing was measured.

    Args:
        path: ``.png`` or ``.svg``.
        gains: (row, column) -> gain.

    Raises:
        Misuse: another suffix. CurateError: no gain, or matplotlib is missing.
    """
    if not gains:
        raise CurateError("gain map: no gain to draw; run more of the study")
    rows, columns = (list(dict.fromkeys(key[side] for key in gains)) for side in (0, 1))
    means = np.full((len(rows), len(columns)), np.nan)
    for (row, column), gain in gains.items():
        means[rows.index(row), columns.index(column)] = gain.mean
    limit = max(1.0, float(np.nanmax(np.abs(means))))
    with canvas(path, 2.6 + 0.95 * len(columns), 1.5 + 0.34 * len(rows)) as figure:
        panel = figure.subplots()
        panel.imshow(np.ma.masked_invalid(means), cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
        panel.set_xticks(range(len(columns)), columns, rotation=30, ha="right")
        panel.set_yticks(range(len(rows)), rows)
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
        for (row, column), gain in gains.items():
            panel.text(
                columns.index(column),
                rows.index(row),
                f"{gain.mean:+.1f}",
                ha="center",
                va="center",
                fontsize=8,
                fontweight="bold" if gain.told else "normal",
                color="white" if abs(gain.mean) > 0.6 * limit else "black" if gain.told else "#666666",
            )
        panel.set_title(title)


def accuracy_over_seconds(path: Path, panels: Mapping[str, Sequence[Curve]], measure: str) -> None:
    """Draw a panel a target: each selector's accuracy over the seconds spent, on a logarithmic axis.

    Args:
        path: ``.png`` or ``.svg``.
        panels: title -> curves; the same name has the same colour everywhere.
        measure: what the accuracy is of.

    Raises:
        As `gain_map`.
    """
    if not panels:
        raise CurateError("curves: nothing to draw; run more of the study")
    names = list(dict.fromkeys(curve.name for curves in panels.values() for curve in curves))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    with canvas(path, 1.2 + 3.1 * columns, 1.2 + 2.5 * rows) as figure:
        drawn = figure.subplots(rows, columns, sharex=True, squeeze=False).ravel()
        for panel, (title, curves) in zip(drawn, panels.items()):
            for curve in curves:
                place = names.index(curve.name)
                panel.errorbar(
                    curve.seconds,
                    curve.accuracy,
                    curve.error,
                    color=COLOURS[place % len(COLOURS)],
                    marker="os^Dv<>"[place % 7],
                    markersize=4,
                    linewidth=1.2,
                    capsize=2,
                    label=curve.name,
                )
            panel.set_title(title)
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.tick_params(labelbottom=True)
        for panel in drawn[len(panels) :]:
            panel.set_axis_off()
        figure.legend(*drawn[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(names))
        figure.supxlabel("seconds of one core, the choosing included", fontsize=10)
        figure.supylabel(measure, fontsize=10)
