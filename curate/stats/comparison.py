"""From a CSV file of scores to the comparison of its methods, and to a folder with its diagram and its table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curate.stats.friedman import Best, Comparison, compare
from curate.stats.score_table import ScoreTable, read_scores
from shards.io.atomic import write_bytes

DIAGRAM = "critical_difference"
TABLE = "comparison.md"
#: What Markdown would take for markup; an underscore between letters is none.
_MARKUP = re.compile(r"[\\`*<&|~\[\]]|(?<!\w)_|_(?!\w)")


@dataclass(frozen=True)
class ComparisonOptions:
    """How scores are read and tested.

    Args:
        metric: heading of the scores where a file with a score a line has several; None for its only one.
        best: whether the highest or the lowest score is the best.
        alpha: level of the test, in [1e-10, 1).
    """

    metric: str | None = None
    best: Best = "highest"
    alpha: float = 0.05


def compare_results(results: Path, out: Path | None = None, options: ComparisonOptions | None = None) -> Comparison:
    """Compare the methods of a CSV file.

    Args:
        results: as `curate.stats.score_table.read_scores` takes it.
        out: folder for ``critical_difference.png``, ``critical_difference.svg`` and ``comparison.md``; None for none.

    Raises:
        CurateError: the file is no complete table of two methods and two data sets at least; or matplotlib is missing.
        Misuse: an option that the file does not fit.
    """
    options = options or ComparisonOptions()
    table = read_scores(results, options.metric)
    comparison = compare(table, options.best, options.alpha)
    if out is not None:
        write_comparison(out, table, comparison, options.best)
    return comparison


def write_comparison(out: Path, table: ScoreTable, comparison: Comparison, best: Best = "highest") -> None:
    """Write diagram and table into ``out``, over older ones. The same scores give the same bytes."""
    from curate.stats.cd_diagram import critical_difference_diagram

    for suffix in (".png", ".svg"):
        critical_difference_diagram(out / f"{DIAGRAM}{suffix}", comparison)
    write_bytes(out / TABLE, as_markdown(table, comparison, best).encode("utf-8"))


def as_markdown(table: ScoreTable, comparison: Comparison, best: Best = "highest") -> str:
    """The scores with the best of each line in bold, means and mean ranks, and what the tests say."""
    top = table.values.max(axis=1) if best == "highest" else table.values.min(axis=1)
    lines = [
        _line("", [_escaped(method) for method in table.methods]),
        "|:--|" + "--:|" * len(table.methods),
        *(
            _line(_escaped(domain), [f"**{value:.10g}**" if value == winner else f"{value:.10g}" for value in row])
            for domain, row, winner in zip(table.domains, table.values, top)
        ),
        _line("mean", [f"{value:.4g}" for value in np.mean(table.values, axis=0)]),
        _line("mean rank", [f"{comparison.ranks[method]:.2f}" for method in table.methods]),
    ]
    record = [*in_words(comparison), *comparison.warnings]
    return "\n".join([*lines, "", *(f"- {_escaped(line)}" for line in record), ""])


def in_words(comparison: Comparison) -> list[str]:
    """Lines for people: the tests, the pairs that differ, the groups that do not."""
    k, n = len(comparison.ranks), comparison.domains
    f = comparison.iman_davenport.f
    different = [f"{pair.first} - {pair.second}" for pair in comparison.pairs if pair.significant]
    return [
        f"Friedman: chi2 = {comparison.friedman.chi2:.2f} (df {k - 1}), p = {comparison.friedman.p:.3g}",
        f"Iman-Davenport: F = {'infinite' if f is None else f'{f:.2f}'} (df {k - 1}, {(k - 1) * (n - 1)}), "
        f"p = {comparison.iman_davenport.p:.3g}",
        f"Nemenyi: critical difference {comparison.cd:.4f} at alpha {comparison.alpha:g}",
        f"different (the better first): {'; '.join(different) or 'no pair'}",
        f"not told apart: {'; '.join(', '.join(group) for group in comparison.cliques) or 'no group'}",
    ]


def _line(name: str, cells: Sequence[str]) -> str:
    return "| " + " | ".join([name, *cells]) + " |"


def _escaped(text: str) -> str:
    r"""A text that Markdown shows as it is.

    >>> print(_escaped("<b> a|b &amp; vgg_flowers"))
    \<b> a\|b \&amp; vgg_flowers
    """
    return _MARKUP.sub(r"\\\g<0>", text)
