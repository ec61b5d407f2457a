"""What torchrun tells the processes that it starts: how many they are, and which of them this is."""

from __future__ import annotations

import os
from dataclasses import replace

from curate.config.schema import RunConfig

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def place() -> tuple[int, int, int] | None:
    """Number of this process, of all, and of this one on its machine; None where it was not started with others."""
    if any(name not in os.environ for name in _VARIABLES) or int(os.environ["WORLD_SIZE"]) == 1:
        return None
    number, count, local = (int(os.environ[name]) for name in _VARIABLES[:3])
    return number, count, local


def meeting_point() -> tuple[str, int]:
    """Address and port of the store where the processes that `place` counts meet."""
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def asked(config: RunConfig) -> RunConfig:
    """``config`` with as many ``devices`` as torchrun has started processes, where it has."""
    found = place()
    return config if found is None else replace(config, machine=replace(config.machine, devices=found[1]))
