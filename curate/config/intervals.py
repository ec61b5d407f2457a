"""How often something is done while a run trains: after so many steps, or after so much time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from curate.errors import Misuse

#: Seconds of a unit of time.
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(rf"([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)({'|'.join(_UNITS)})")
_STEPS = re.compile(r"[0-9]{1,15}")
NEVER = "never"
EXPECTED = f"steps (500), a time (90s, 10min, 2h) or {NEVER}"


@dataclass(frozen=True)
class Interval:
    """Steps or seconds, one of them; neither means never."""

    steps: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str | int) -> Interval:
        """What a person writes.

        Raises:
            Misuse: it is none of `EXPECTED`, or 0.

        >>> Interval.parse("500"), Interval.parse("10min")
        (Interval(steps=500, seconds=None), Interval(steps=None, seconds=600.0))
        """
        word = str(text).strip()
        if word == NEVER:
            return cls()
        if _STEPS.fullmatch(word) and int(word) > 0:
            return cls(steps=int(word))
        time = _TIME.fullmatch(word)
        if time and float(time[1]) > 0:
            return cls(seconds=float(time[1]) * _UNITS[time[2]])
        raise Misuse(f"{word}: expected {EXPECTED}")

    def is_over(self, steps: int, seconds: float) -> bool:
        """Whether it is over ``steps`` steps or ``seconds`` seconds after its begin.

        >>> Interval(steps=500).is_over(499, 1e9), Interval(seconds=600.0).is_over(0, 600.5), Interval().is_over(9, 9)
        (False, True, False)
        """
        by_steps = self.steps is not None and steps >= self.steps
        return by_steps or (self.seconds is not None and seconds >= self.seconds)
