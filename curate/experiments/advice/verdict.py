"""From what the classifier found and what the pilot gave to one word: curate, dont or undecided. Pure.

The gain is of the best network that is trained on the curated images over the best that is trained without curation:
the smallest of its differences to all of these, which are taken image by image and seed by seed. Its interval goes from
the lowest of their lower ends to the lowest of their upper ends: "curate" is said where every one of them is a gain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from curate.stats import paired

Word = Literal["curate", "dont", "undecided"]

#: Points of accuracy below which a gain is not worth the trouble.
USEFUL = 1.0
#: Fewer kept images than this are no set to train on; and the share like the target from which there is little to drop.
FEWEST, MOST = 50, 0.8
#: Seeds that are ever asked for; where more would be needed, seeds are not the way.
MANY = 20

Right = Mapping[str, Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Look:
    """What the classifier found without training.

    Args:
        store: images that decode.
        kept: by the F1 cut.
        pi: estimated number of images like the target.
        purity: estimated share of the kept that is like the target; None where none is kept.
        auroc: of held-out target images against the store.
    """

    store: int
    kept: int
    pi: float
    purity: float | None
    auroc: float


@dataclass(frozen=True)
class Gain:
    """What curation gained in the pilot, in points of accuracy.

    Args:
        pretext: of the best curated network.
        against: the set that it gained least on, "PRETEXT SET".
        mean: the smallest mean difference.
        low, high: ends of the 95 % interval; None where nothing tells it.
        seeds: of the pilot.
    """

    pretext: str
    against: str
    mean: float
    low: float | None
    high: float | None
    seeds: int


@dataclass(frozen=True)
class Verdict:
    """One word, and why."""

    word: Word
    why: str


def gain(right: Mapping[str, Right]) -> Gain:
    """Of the best curated network over every network without curation.

    Args:
        right: pretext -> set ("curated", and others) -> a row a seed, a column a scored image, in [0, 1].
    """
    pretext = max(right, key=lambda name: float(np.mean(right[name]["curated"])))
    ours = right[pretext]["curated"]
    found = {
        f"{name} {kind}": paired.difference(ours, rows)
        for name, sets in right.items()
        for kind, rows in sets.items()
        if kind != "curated"
    }
    against = min(found, key=lambda name: found[name].mean)
    ends = [
        (each.mean - each.half_width, each.mean + each.half_width)
        for each in found.values()
        if each.half_width is not None
    ]
    told = len(ends) == len(found)
    low, high = (min(end[side] for end in ends) if told else None for side in (0, 1))
    return Gain(pretext, against, found[against].mean, low, high, found[against].seeds)


def decide(look: Look, gained: Gain | None, unscored: str = "") -> Verdict:
    """The verdict.

    Args:
        gained: of the pilot; None where there was none.
        unscored: why there was none.

    >>> decide(Look(10_000, 500, 500.0, 0.9, 0.98), Gain("rotation", "rotation raw", 8.0, 3.0, 13.0, 3)).word
    'curate'
    """
    if seen := by_look(look):
        return seen
    if gained is None:
        return Verdict("undecided", f"no pilot could be scored: {unscored}")
    if gained.low is None or gained.high is None:
        return Verdict("undecided", "one scored image tells nothing; give more labelled images in val/")
    by = f"{gained.mean:+.1f} points [{gained.low:+.1f}, {gained.high:+.1f}] on the best without ({gained.against})"
    if gained.low > 0:
        return Verdict("curate", f"what the classifier keeps trains the better network, {by}")
    if gained.high < USEFUL:
        return Verdict("dont", f"what the classifier keeps trains no better network, {by}")
    return Verdict(
        "undecided", f"it is not told whether what the classifier keeps trains better, {by}; {would_decide(gained)}"
    )


def by_look(look: Look) -> Verdict | None:
    """What needs no pilot: hardly any image is like the target, or most are; else None."""
    if look.kept < FEWEST:
        kept = f"{look.kept:,} of {look.store:,} would be kept, fewer than {FEWEST} to train on"
        return Verdict("dont", f"hardly any image is like the target: {kept}")
    if look.pi >= MOST * look.store:
        return Verdict("dont", f"most of the store is like the target already: about {look.pi / look.store:.0%}")
    return None


def without_pilot(look: Look) -> str:
    """What was left out where the look decides, and what can be done next."""
    left_out = "no pilot was trained, for what the classifier found decides"
    if look.kept < FEWEST:
        return (
            f"{left_out}; look at most-alike.png: where it shows what you want, `curate run --method classifier --keep "
            "COUNT` takes as many of the most alike as you say; where it does not, try other features (--encoder), or "
            "another store"
        )
    return f"{left_out}; train on the store as it is, or look at least-alike.png for what else to drop"


def would_decide(gained: Gain) -> str:
    """More seeds where so many could do, a longer pilot and more scored images in any case.

    The interval narrows with the root of the seeds at best, as if all of it came from them.

    >>> would_decide(Gain("rotation", "rotation raw", 2.0, -1.0, 5.0, 3))
    'what would: --seeds 7, more labelled images in val/, or a longer pilot (--steps)'
    """
    assert gained.low is not None
    half = gained.mean - gained.low
    wanted = max(gained.seeds + 1, math.ceil(gained.seeds * (half / gained.mean) ** 2)) if gained.mean > 0 else MANY + 1
    seeds = f"--seeds {wanted}, " if wanted <= MANY else ""
    return f"what would: {seeds}more labelled images in val/, or a longer pilot (--steps)"
