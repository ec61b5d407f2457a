"""What the files of a search say, every number checked: a hand or a broken disk may have changed it. Pure."""

from __future__ import annotations

import math
from typing import Any

from curate.evaluation.grid import Cell, Trace


def trace_of(said: dict[str, Any]) -> Trace:
    """The trace of a cell.

    Raises:
        KeyError, TypeError, ValueError: something is missing, of another kind, or out of range.
    """
    accuracies = tuple(real(x, "val_accuracy", 1.0) for x in said["val_accuracy"])
    losses = tuple(real(x, "val_loss") for x in said["val_loss"])
    if len(losses) != len(accuracies):
        raise ValueError(f"val_loss: expected {len(accuracies)} epochs, found {len(losses)}")
    drops, after = drops_of(said, len(accuracies)), len(accuracies) + 1
    failed = None if said["failed"] is None else whole(said["failed"], "failed", after, after)
    return Trace(accuracies, losses, drops, failed)


def cell_of(said: dict[str, Any]) -> Cell:
    """The setting of a cell; raises as `trace_of`."""
    return Cell(real(said["lr"], "lr"), real(said["weight_decay"], "weight_decay"), whole(said["patience"], "patience"))


def drops_of(said: dict[str, Any], epochs: int) -> tuple[int, ...]:
    """The epochs after which the rate fell, each in 1 .. ``epochs`` and later than the one before; raises as
    `trace_of`."""
    drops = tuple(whole(x, "drops", 1, epochs) for x in said["drops"])
    if list(drops) != sorted(set(drops)):
        raise ValueError(f"drops: expected rising epochs, found {drops}")
    return drops


def seconds_of(said: dict[str, Any]) -> dict[str, float]:
    """Seconds by part; raises as `trace_of`."""
    return {part: real(x, f"seconds of {part}") for part, x in dict(said["seconds"]).items()}


def real(value: Any, name: str, high: float = math.inf) -> float:
    """A finite number in 0 .. ``high``; neither a text nor a truth value.

    >>> real(0.5, "val_accuracy", 1.0)
    0.5
    """
    if type(value) not in (int, float) or not 0 <= value <= high or math.isinf(value):
        raise ValueError(f"{name}: expected a finite number from 0 to {high:g}, found {value!r}")
    return float(value)


def whole(value: Any, name: str, low: int = 0, high: int | None = None) -> int:
    """A whole number in ``low`` .. ``high``, without end where that is None."""
    if type(value) is not int or value < low or (high is not None and value > high):
        until = "up" if high is None else f"to {high}"
        raise ValueError(f"{name}: expected a whole number from {low} {until}, found {value!r}")
    return value
