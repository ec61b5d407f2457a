"""What a budget buys: hours of plain training on the raw store and on what is chosen, with the pilot's network. Pure.

All plans train for as many steps, which is as much computing; choosing comes on top. Step times are those measured in
the pilot, of its small network on this machine, reading included; a network whose step takes ten times as long takes
ten times the hours, but for the classifier's, which stay.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from curate.errors import Misuse

#: Passes of BDW over the store before its choice is trained on.
BDW_PASSES = 3
#: So often an image may be seen again before more of the store is better than the best of it (arXiv 2404.07177).
REPETITIONS = 40

_BUDGET = re.compile(r"([0-9]+)|([0-9]*\.?[0-9]+)h")


@dataclass(frozen=True)
class Budget:
    """How long the real training is to be: in steps, or in hours of plain training on the raw store; one of them."""

    steps: int | None = None
    hours: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """A number of steps, or of hours with an h behind it.

        Raises:
            Misuse: it is neither.

        >>> Budget.parse("20000"), Budget.parse("1.5h")
        (Budget(steps=20000, hours=None), Budget(steps=None, hours=1.5))
        """
        match = _BUDGET.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None or float(match[1] or match[2]) <= 0 or len(text) > 18:
            raise Misuse(f"--budget {text}: expected steps, such as 20000, or hours, such as 12h")
        return cls(int(match[1])) if match[1] else cls(None, float(match[2]))

    def of(self, seconds: float) -> int:
        """Steps of so many seconds that it buys, at least one."""
        return self.steps if self.steps is not None else max(1, int((self.hours or 0) * 3600 / seconds))


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of a step.

    Args:
        raw, curated: of plain training on each.
        bdw: of weighing the raw store; None where it was not measured.
    """

    raw: float
    curated: float
    bdw: float | None


def hours(steps: int, step: StepSeconds, classifying: float, images: int, batch: int) -> dict[str, float | None]:
    """Hours of each plan.

    Args:
        steps: of the plain training in each.
        classifying: seconds of features and classifier.
        images, batch: of the store, and a step.

    >>> hours(3600, StepSeconds(1.0, 1.0, 3.0), 36.0, 400, 4)
    {'plain on raw': 1.0, 'classifier, plain on curated': 1.01, 'BDW, plain on curated': 1.25}
    """
    a_pass = math.ceil(images / batch)
    bdw = None if step.bdw is None else BDW_PASSES * a_pass * step.bdw + steps * step.curated
    seconds = {
        "plain on raw": steps * step.raw,
        "classifier, plain on curated": classifying + steps * step.curated,
        "BDW, plain on curated": bdw,
    }
    return {plan: None if spent is None else round(spent / 3600, 4) for plan, spent in seconds.items()}
