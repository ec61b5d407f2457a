"""A part of a shard set, for schedulers that start one command many times: each has the shards of one of N parts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from shards.errors import Misuse

#: What ``--part`` says in place of I/N: the task's own place in its Slurm array.
SLURM = "slurm"


@dataclass(frozen=True)
class Part:
    """Part ``number`` of ``of``, from 1: the shards that stand together in the order of the set, about as many in each.

    Raises:
        Misuse: there is no such part.
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise Misuse(f"--part {self}: no such part", expected=f"1/{max(1, self.of)} to {max(1, self.of)}/{self.of}")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def share(self, count: int) -> range:
        """Which of ``count`` shards are in it.

        >>> [list(Part(number, 3).share(7)) for number in (1, 2, 3)]
        [[0, 1], [2, 3], [4, 5, 6]]
        """
        return range(count * (self.number - 1) // self.of, count * self.number // self.of)


def parse(text: str, environment: Mapping[str, str] = os.environ) -> Part:
    """The part that ``I/N`` or `SLURM` says.

    Raises:
        Misuse: it says neither, or the command does not run in a Slurm array.

    >>> parse("3/16").share(32)
    range(4, 6)
    """
    if text == SLURM:
        return _of_array(environment)
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if found is None:
        raise Misuse(f"--part {text}: cannot be read", expected=f"I/N, such as 3/16, or {SLURM}")
    return Part(int(found[1]), int(found[2]))


def _of_array(environment: Mapping[str, str]) -> Part:
    """This task's part: arrays need not begin at 0, nor count by ones."""
    found = {}
    for name, usual in (("ID", None), ("COUNT", None), ("MIN", "0"), ("STEP", "1")):
        value = environment.get(f"SLURM_ARRAY_TASK_{name}") or usual
        if value is None or not value.isdecimal():
            todo = "start it by `sbatch --array`, or say which part with --part I/N"
            raise Misuse(f"--part: SLURM_ARRAY_TASK_{name} is not set to a number", found=value, todo=todo)
        found[name] = int(value)
    return Part((found["ID"] - found["MIN"]) // max(1, found["STEP"]) + 1, found["COUNT"])
