"""Are these methods different? Average ranks over data sets, Friedman's test, and Nemenyi's for every pair.

Owns the numbers. Where scores come from is `curate.stats.score_table`; how the result is drawn is
`curate.stats.cd_diagram`.

Reference: Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006, section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import stats

from curate.errors import CurateError, Misuse
from curate.stats.score_table import Reals, ScoreTable

Best = Literal["highest", "lowest"]

#: From more data sets and more methods than these on, chi2 has the distribution that its p assumes (Demšar, 3.2.2).
FEW_DOMAINS, FEW_METHODS = 10, 5
#: Below this level the tail of the studentized range is lost in the rounding of its integral.
LEAST_ALPHA = 1e-10


@dataclass(frozen=True)
class Friedman:
    """Friedman's statistic, corrected for ties, and its p by chi-squared with k - 1 degrees of freedom."""

    chi2: float
    p: float


@dataclass(frozen=True)
class ImanDavenport:
    """Iman and Davenport's F (1980) and its p; F is None where infinite: every data set ranks the methods alike."""

    f: float | None
    p: float


@dataclass(frozen=True)
class Pair:
    """Two methods, the one with the better mean rank first.

    Args:
        difference: of the mean ranks, >= 0.
        p: Nemenyi's, over all pairs together.
        significant: whether the difference is at least the critical one.
    """

    first: str
    second: str
    difference: float
    p: float
    significant: bool


@dataclass(frozen=True)
class Comparison:
    """What the scores say of k methods on N data sets.

    Args:
        ranks: mean rank of each method, 1 the best, in the order of the rank.
        domains: N.
        alpha: the level of `cd` and of all pairs together.
        cd: the critical difference of two mean ranks.
        pairs: all k (k - 1) / 2, by rank.
        cliques: the largest groups of two or more methods within which no pair is significant, best first.
        warnings: lines for people: where the approximations are poor, and what not to read out of the numbers.
    """

    ranks: dict[str, float]
    domains: int
    alpha: float
    friedman: Friedman
    iman_davenport: ImanDavenport
    cd: float
    pairs: tuple[Pair, ...]
    cliques: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]


def compare(table: ScoreTable, best: Best = "highest", alpha: float = 0.05) -> Comparison:
    """Rank the methods on every data set and test the differences.

    Args:
        best: whether the highest or the lowest score is the best.
        alpha: in [1e-10, 1).

    Raises:
        CurateError: fewer than two methods or data sets. Misuse: an alpha out of range.
    """
    n, k = table.values.shape
    if k < 2 or n < 2:
        raise CurateError(
            f"comparison: expected at least 2 methods on 2 data sets, found {k} on {n}; add what is missing"
        )
    each = rank(table.values, best)
    mean = each.mean(axis=0)
    order = np.argsort(mean, kind="stable")
    ranks = {table.methods[place]: float(mean[place]) for place in order}
    cd = critical_difference(n, k, alpha)
    overall = iman_davenport(each)
    return Comparison(
        ranks=ranks,
        domains=n,
        alpha=alpha,
        friedman=friedman(each),
        iman_davenport=overall,
        cd=cd,
        pairs=_pairs(ranks, n, cd),
        cliques=cliques(ranks, cd),
        warnings=tuple(_cautions(each, overall.p, alpha)),
    )


def rank(values: Reals, best: Best = "highest") -> Reals:
    """Ranks within each row, 1 the best; equal values share the mean of their ranks.

    Args:
        values: shape (N, k), finite.

    Returns:
        Shape (N, k), float64, multiples of 0.5 in [1, k].

    >>> rank(np.array([[0.9, 0.7, 0.7], [0.1, 0.2, 0.3]]))
    array([[1. , 2.5, 2.5],
           [3. , 2. , 1. ]])
    """
    return np.asarray(stats.rankdata(-values if best == "highest" else values, axis=1), np.float64)


def friedman(ranks: Reals) -> Friedman:
    """Whether the methods differ at all: the spread of their mean ranks over the spread within rows (0: all tied).

    Args:
        ranks: shape (N, k), from `rank`.
    """
    n, k = ranks.shape
    spread = float(np.sum((ranks - (k + 1) / 2) ** 2))  # n k (k^2 - 1) / 12 without ties
    between = n * float(np.sum((ranks.mean(axis=0) - (k + 1) / 2) ** 2))
    chi2 = n * (k - 1) * between / spread if spread else 0.0
    return Friedman(chi2, float(stats.chi2.sf(chi2, k - 1)))


def iman_davenport(ranks: Reals) -> ImanDavenport:
    """Friedman's test by F, which is less conservative: (N - 1) chi2 / (N (k - 1) - chi2).

    Where all N rows are equal, F is infinite; p is then exact: the share of arrangements of the other rows' ranks that
    equal the first row's.

    Args:
        ranks: shape (N, k), from `rank`.
    """
    n, k = ranks.shape
    if np.all(ranks == ranks[0]) and np.ptp(ranks[0]):
        ties = np.unique(ranks[0], return_counts=True)[1]
        arrangements = math.factorial(k) // math.prod(math.factorial(int(tied)) for tied in ties)
        return ImanDavenport(None, math.exp(-(n - 1) * math.log(arrangements)))
    chi2 = friedman(ranks).chi2
    f = (n - 1) * chi2 / (n * (k - 1) - chi2)
    return ImanDavenport(f, float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))))


def critical_difference(n: int, k: int, alpha: float = 0.05) -> float:
    """Nemenyi's: k mean ranks over n data sets differ when they are at least this far apart.

    Raises:
        Misuse: an alpha outside [1e-10, 1).

    >>> round(critical_difference(10, 4), 4)
    1.4832
    """
    if not 0 < alpha < 1:
        raise Misuse(f"alpha {alpha}: expected a number between 0 and 1, such as 0.05")
    if alpha < LEAST_ALPHA:
        raise Misuse(f"alpha {alpha}: smaller than {LEAST_ALPHA:g}, where the critical difference is lost in rounding")
    return float(stats.studentized_range.isf(alpha, k, np.inf)) / math.sqrt(2) * _deviation(n, k)


def cliques(ranks: Mapping[str, float], cd: float) -> tuple[tuple[str, ...], ...]:
    """The largest groups of neighbours in rank that span less than ``cd``; a method alone is none.

    >>> cliques({"A": 1.5, "B": 2.0, "C": 3.0, "D": 3.5}, cd=1.2)
    (('A', 'B'), ('B', 'C'), ('C', 'D'))
    """
    names = sorted(ranks, key=lambda name: ranks[name])
    groups: list[tuple[str, ...]] = []
    reached = 0
    for start, name in enumerate(names):
        end = start + sum(ranks[other] - ranks[name] < cd for other in names[start:])
        if end > max(reached, start + 1):
            groups.append(tuple(names[start:end]))
            reached = end
    return tuple(groups)


def unofficial_decathlon_score(accuracy: Mapping[str, float], baseline: Mapping[str, float]) -> float:
    """Points of the Visual Decathlon, 1000 a domain at most: squares of how far the error lies below its limit.

    The limit is twice the baseline's error; at the limit and beyond a domain has no points. Unofficial: the contest's
    own score is over all ten domains on its hidden test split, this one over the domains given.

    Args:
        accuracy: per cent, by domain.
        baseline: per cent, below 100, by domain; domains that ``accuracy`` lacks are not counted.

    Raises:
        CurateError: no domain, one without a baseline, or an accuracy that is no percentage.

    >>> unofficial_decathlon_score({"svhn": 100.0, "dtd": 50.0}, {"svhn": 95.0, "dtd": 50.0})
    1250.0

    Reference: Rebuffi, Bilen, Vedaldi, "Learning multiple visual domains with residual adapters", 2017, section 4.
    """
    if unknown := sorted(set(accuracy) - set(baseline)) or (["nothing"] if not accuracy else []):
        raise CurateError(f"decathlon score: expected some of {', '.join(baseline)}, found {unknown[0]}; leave it out")
    points = 0.0
    for domain, found in accuracy.items():
        if not 0 <= found <= 100:
            raise CurateError(f"decathlon score: {domain}: expected an accuracy in per cent, found {found}")
        points += 1000 * max(0.0, 1 - (100 - found) / (2 * (100 - baseline[domain]))) ** 2
    return points


def _deviation(n: int, k: int) -> float:
    """Standard deviation of the difference of two mean ranks where methods do not differ."""
    return math.sqrt(k * (k + 1) / (6 * n))


def _pairs(ranks: Mapping[str, float], n: int, cd: float) -> tuple[Pair, ...]:
    names = list(combinations(ranks, 2))
    differences = np.array([ranks[second] - ranks[first] for first, second in names])
    ps = stats.studentized_range.sf(math.sqrt(2) * differences / _deviation(n, len(ranks)), len(ranks), np.inf)
    return tuple(
        Pair(first, second, float(difference), float(p), bool(difference >= cd))
        for (first, second), difference, p in zip(names, differences, ps)
    )


def _cautions(ranks: Reals, p: float, alpha: float) -> list[str]:
    n, k = ranks.shape
    lines = []
    if n <= FEW_DOMAINS or k <= FEW_METHODS:
        wanted = f"more than {FEW_DOMAINS} data sets and {FEW_METHODS} methods"
        lines.append(f"{n} data sets and {k} methods: the p of chi2 is approximate; it wants {wanted} (Demsar 2006)")
    if k == 2:
        lines.append("two methods: a Wilcoxon signed-rank test on their differences is the better test (Demsar 2006)")
    if np.ptp(ranks) == 0:
        lines.append("all methods are tied on every data set: there is nothing to tell apart")
    elif p > alpha:
        lines.append(f"no difference among the methods is shown (p = {p:.3g} > {alpha:g}): read nothing into the pairs")
    return lines
