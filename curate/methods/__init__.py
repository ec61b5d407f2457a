"""The methods by name."""

from __future__ import annotations

from collections.abc import Callable

import torch

from curate.config import BeliefConfig
from curate.methods.base import Method
from curate.methods.bdw import Bdw
from curate.methods.uniform import Uniform

METHODS: dict[str, Callable[[int, BeliefConfig, int, torch.device], Method]] = {
    "bdw": Bdw,
    "uniform": lambda n, config, seed, device: Uniform(),
}
