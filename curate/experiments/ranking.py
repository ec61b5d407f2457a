"""From accuracies to where the methods stand: means, mean ranks, their tests, and the decathlon's points.

Pure. A method without a number on a data set (its training left nothing) has no rank there, so nor has any other: that
data set is left out of everything here, and `complete` says which are not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from curate.experiments.tables.paper_numbers import DECATHLON_BASELINE
from curate.stats import friedman
from curate.stats.friedman import Comparison
from curate.stats.score_table import ScoreTable, table_of

#: scores[method][data set], per cent.
Scores = Mapping[str, Mapping[str, float | None]]


def complete(scores: Scores) -> list[str]:
    """The data sets on which every method has a number, in the order of the first method."""
    names = dict.fromkeys(name for row in scores.values() for name in row)
    return [name for name in names if all(row.get(name) is not None for row in scores.values())]


def score_table(scores: Scores) -> ScoreTable:
    """The complete data sets as a table."""
    over = complete(scores)
    return table_of({method: {name: float(row[name] or 0.0) for name in over} for method, row in scores.items()})


def averages(scores: Scores) -> dict[str, float | None]:
    """Mean accuracy of each method, per cent; None where no data set is complete."""
    table = score_table(scores)
    means = np.mean(table.values, axis=0) if len(table.domains) else []
    return dict.fromkeys(scores, None) | {method: float(mean) for method, mean in zip(table.methods, means)}


def mean_ranks(scores: Scores) -> dict[str, float | None]:
    """Mean rank of each method, 1 the best; None where no data set is complete."""
    table = score_table(scores)
    means = friedman.rank(table.values).mean(axis=0) if len(table.domains) else []
    return dict.fromkeys(scores, None) | {method: float(rank) for method, rank in zip(table.methods, means)}


def compared(scores: Scores) -> Comparison | None:
    """The tests of Friedman and Nemenyi; None with fewer than two methods or complete data sets."""
    table = score_table(scores)
    return friedman.compare(table) if len(table.domains) > 1 and len(table.methods) > 1 else None


def decathlon(scores: Scores) -> dict[str, float | None]:
    """Unofficial points of each method over the complete data sets that the contest has; None for none."""
    over = [name for name in complete(scores) if name in DECATHLON_BASELINE]
    if not over:
        return dict.fromkeys(scores, None)
    rows = {method: {name: float(row[name] or 0.0) for name in over} for method, row in scores.items()}
    return {m: friedman.unofficial_decathlon_score(row, DECATHLON_BASELINE) for m, row in rows.items()}
