"""Who stays: the judgement over a record of beliefs, by a cut or by a budget.

Owns the mass of a Beta below a cut and the rules made of it. Pure functions of arrays of n examples: when they are
applied (never during a warm-up), and that a pruned example stays pruned, is the caller's part. So is the policy for
examples that do not decode: every rule here says False for them, and `decodable` tells which they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, betaincinv, expit

from curate.errors import CurateError, Misuse
from curate.types import Beliefs, Floats, Mask

Reals = npt.NDArray[np.float64]
By = Literal["mean", "lower"]

#: How exactly `mass_below` is computed. A mass nearer to rho than this is a tie, on every machine, and ties are kept.
ROUNDING = 1e-12

#: The quantile that stands for a belief when a budget goes by its lower end.
LOWER = 0.1


def mass_below(a: npt.NDArray[np.floating[Any]], b: npt.NDArray[np.floating[Any]], cut: float) -> Reals:
    """Probability that a Beta-distributed weight lies below ``cut``: the regularised incomplete beta I_cut(a, b).

    Computed in float64 whatever comes in; right to `ROUNDING` for log a and log b in [-15, 15].

    Args:
        a, b: shape (n,), float32 or float64, > 0; one pair an example.
        cut: a weight in [0, 1], no unit.

    Returns:
        Shape (n,), float64, in [0, 1].

    Raises:
        CurateError: a parameter is not a positive number; the message names the first such place and both values.
        Misuse: ``cut`` is outside [0, 1].

    >>> mass_below(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 0.5)
    array([0.5 , 0.25])

    Reference: Ericsson, Gouk, Hospedales, "Don't Wait, Just Weight", 2020, section 3 (the rule of pruning).
    """
    within(cut, "lambda")
    wide_a, wide_b = _positive(a, b)
    return np.asarray(betainc(wide_a, wide_b, cut), dtype=np.float64)


def below(beliefs: Beliefs, lam: float) -> Floats | None:
    """The ledger's column of that name: `mass_below` at ``lam`` as float32 of shape (m,); None for point weights."""
    if beliefs.a is None or beliefs.b is None:
        return None
    return mass_below(beliefs.a, beliefs.b, lam).astype(np.float32)


def boundary_mean(lam: float, rho: float, strength: float) -> float:
    """The mean m at which a Beta of that strength lies on the cut: I_lam(strength m, strength (1 - m)) = rho.

    Beliefs of one strength are kept if and only if their mean is at least this: the mass below ``lam`` falls as the
    mean rises.

    Args:
        lam, rho: in (0, 1).
        strength: a + b, > 0.

    Returns:
        In (0, 1).

    >>> round(boundary_mean(0.25, 0.25, 2.0), 6)
    0.5
    """
    from scipy.optimize import brentq  # alone takes longer than all else here

    def excess(logit: float) -> float:
        return float(betainc(strength * expit(logit), strength * expit(-logit), lam)) - rho

    return float(expit(brentq(excess, -35, 35, xtol=1e-13, rtol=1e-14)))


def informed(beliefs: Beliefs) -> Beliefs:
    """The same beliefs, each judged by `keep` and `grid`: what a run knew before its first epoch counts as a visit."""
    return replace(beliefs, visits=np.maximum(beliefs.visits, 1))


def decodable(beliefs: Beliefs) -> Mask:
    """Shape (m,), True where no error is on record: the image decodes, or was not read yet."""
    return np.asarray(beliefs.error == 0)


def keep(beliefs: Beliefs, lam: float, rho: float) -> Mask:
    """Who stays by the cut: prune when more than ``rho`` of the belief's mass lies below ``lam``.

    The mass of a point weight lies wholly below ``lam`` or not at all, so it is pruned when it is at or below ``lam``
    (compared in float32, as stored) whatever ``rho`` is; only a ``rho`` of 1 prunes nothing. An example never trained
    on (visits 0) is not judged and stays.

    Args:
        beliefs: m examples.
        lam, rho: in [0, 1].

    Returns:
        Shape (m,), True: kept. False wherever the image does not decode.
    """
    within(rho, "rho")
    condemned = (beliefs.visits > 0) & (_mass(beliefs, lam) > rho + ROUNDING)
    return np.asarray(decodable(beliefs) & ~condemned)


def check_budget(value: float) -> None:
    """Refuse what no store could make a budget of.

    Raises:
        Misuse: below 0, no number, or more than rows are ever counted.
    """
    _refuse_text(value, "--keep")
    if not 0 <= value <= 2**53:
        raise Misuse(f"--keep {value:.12g}: expected a share from 0 to 1, or a count")


def keep_budget(beliefs: Beliefs, budget: float, by: By = "mean") -> Mask:
    """Who stays by a budget: a share as `keep_share` has it, or above 1 a whole number of decodable examples.

    Raises:
        Misuse: neither a share nor a number of examples that there are; and as `keep_share`.
    """
    most = int(np.count_nonzero(decodable(beliefs)))
    if not (0 <= budget <= 1 or (1 < budget <= most and budget == int(budget))):
        raise Misuse(f"--keep {budget:.12g}: expected a share from 0 to 1, or a count up to {most}, the decodable")
    return keep_share(beliefs, budget if budget <= 1 else budget / most, by)


def keep_share(beliefs: Beliefs, share: float, by: By = "mean") -> Mask:
    """Who stays by a budget: exactly ``round(share * decodable)`` examples, the best first, equals by row.

    Args:
        beliefs: m examples; visited or not, each is ranked by what is believed of it.
        share: in [0, 1], of the decodable examples.
        by: ``mean`` ranks by E[w]; ``lower`` by the quantile `LOWER` of the Beta, which an unsure belief has low.

    Returns:
        Shape (m,), True: kept. False wherever the image does not decode.

    Raises:
        Misuse: a share outside [0, 1]; ``lower`` for point weights, which have no quantile.
    """
    within(share, "share")
    usable, score = decodable(beliefs), _score(beliefs, by)
    usable_scores = score[usable]
    count = round(share * len(usable_scores))
    if count == 0:
        return np.zeros(len(beliefs), dtype=np.bool_)
    # Not by sorting, which would take more memory than everything else that is known of the examples.
    usable_scores.partition(len(usable_scores) - count)
    last = usable_scores[len(usable_scores) - count]
    kept = usable & (score > last)
    equals = np.flatnonzero(usable & (score == last))
    kept[equals[: count - np.count_nonzero(kept)]] = True
    return np.asarray(kept)


def grid(beliefs: Beliefs, lams: Sequence[float], rhos: Sequence[float]) -> Reals:
    """Share of the decodable examples that `keep` would keep, for every pair of cut and tolerance.

    Returns:
        Shape (len(lams), len(rhos)), float64, in [0, 1].

    Raises:
        CurateError: no example decodes, so there is nothing to take a share of.
    """
    usable = decodable(beliefs)
    if not usable.any():
        raise CurateError(f"share kept: none of {len(beliefs)} examples decodes; look at the ledger's column error")
    for rho in rhos:
        within(rho, "rho")
    judged = usable & (beliefs.visits > 0)
    shares = np.empty((len(lams), len(rhos)))
    for i, lam in enumerate(lams):
        mass = _mass(beliefs, lam)[judged]
        for j, rho in enumerate(rhos):
            shares[i, j] = 1 - np.count_nonzero(mass > rho + ROUNDING) / np.count_nonzero(usable)
    return shares


def rule_in_words(beliefs: Beliefs, lam: float, rho: float) -> str:
    """The rule of `keep` as a manifest states it, with numbers that read back exactly."""
    return f"prune when w <= {lam!r}" if beliefs.a is None else f"prune when CDF({lam!r}; a, b) > {rho!r}"


def budget_in_words(budget: float, by: By) -> str:
    """The rule of `keep_budget` as a manifest states it."""
    value = "mean" if by == "mean" else f"quantile {LOWER} of Beta(a, b)"
    amount = f"the share {budget!r}" if budget <= 1 else f"{budget:.0f}"
    return f"keep {amount} of the decodable with the largest {value}"


def _mass(beliefs: Beliefs, lam: float) -> Reals:
    """Mass of each weight at or below the cut, shape (m,): of a Beta, or of a point, where it is 0 or 1."""
    within(lam, "lambda")
    if beliefs.a is None or beliefs.b is None:
        return (beliefs.mean <= np.float32(lam)).astype(np.float64)
    return mass_below(beliefs.a, beliefs.b, lam)


def _score(beliefs: Beliefs, by: By) -> npt.NDArray[np.floating[Any]]:
    if by == "mean":
        return beliefs.mean
    if by != "lower":
        raise Misuse(f"budget by {by!r}: expected mean or lower")
    if beliefs.a is None or beliefs.b is None:
        raise Misuse("budget by lower: a point weight has no quantile; rank this run by mean")
    a, b = _positive(beliefs.a, beliefs.b)
    return np.asarray(betaincinv(a, b, LOWER), dtype=np.float64)


def _positive(a: npt.NDArray[np.floating[Any]], b: npt.NDArray[np.floating[Any]]) -> tuple[Reals, Reals]:
    wide_a, wide_b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    sound = (wide_a > 0) & (wide_b > 0) & np.isfinite(wide_a) & np.isfinite(wide_b)
    if not sound.all():
        place = int(np.argmin(sound))
        found = f"a = {wide_a.flat[place]:g}, b = {wide_b.flat[place]:g}"
        raise CurateError(f"belief {place}: expected positive a and b, found {found}; this state is damaged")
    return wide_a, wide_b


def within(value: float, name: str) -> None:
    """Raise `Misuse` unless a threshold or a share, called ``name``, is a number from 0 to 1."""
    _refuse_text(value, name)
    if not 0 <= value <= 1:
        raise Misuse(f"{name} {value}: expected a number from 0 to 1")


def _refuse_text(value: object, name: str) -> None:
    """Raise `Misuse` for what a program gives in place of a number."""
    if not isinstance(value, Real):
        raise Misuse(f"{name} {value!r}: expected a number, such as 0.2 for 20 %")
