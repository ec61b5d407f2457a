"""What the first rank tells the others before each epoch: what is trained, and all that a checkpoint would hold.

The first rank alone opens, judges and writes; the others know of a run what it says, and nothing of its files but the
shards, the target and what is fixed for the run. So they join at any epoch, whatever went before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch

from curate import ranks
from curate.config.schema import to_options
from curate.runs import checkpoint
from curate.runs.prepare import Job
from curate.training import precision, signal


@dataclass(frozen=True)
class Orders:
    """What the first rank says of an epoch.

    Args:
        options: of the run's configuration, by name.
        precision: of the arithmetic, as run.json has it.
        threads: that each rank computes with, as run.json has it.
        epoch: from 1.
        most_steps: of the epoch; None for all.
        generation: of the shards that it reads.
        step: steps of the run that are done.
        signal: its running scalars.
    """

    options: dict[str, Any]
    precision: str
    threads: int
    epoch: int
    most_steps: int | None
    generation: int
    step: int
    signal: dict[str, Any]


def lead(job: Job, epoch: int, most_steps: int | None) -> None:
    """Have the other ranks train this epoch, too; nothing where there are none, or this is one of them."""
    if ranks.world() == 1 or not ranks.is_first():
        return
    state, arithmetic = job.state, precision.in_use(job.setup.autocast)
    orders = Orders(
        *(to_options(job.config), arithmetic, torch.get_num_threads(), epoch, most_steps),
        *(job.generation, state.step, signal.state(state.signal)),
    )
    ranks.told(json.dumps(vars(orders)).encode())
    for tensors in checkpoint.tensors_of(job.setup.network, job.state, job.examples).values():
        ranks.told(safetensors.torch.save(checkpoint.on_host(tensors)))


def dismiss() -> None:
    """Tell the other ranks that all epochs are trained."""
    if ranks.world() > 1 and ranks.is_first():
        ranks.told(b"")


def next_orders() -> Orders | None:
    """What is to be done, on another rank than the first; None when all is done. Waits until that is known.

    Raises:
        LostRank: the first rank has ended.
    """
    message = ranks.told(None)
    return Orders(**json.loads(message)) if message else None


def take(job: Job, orders: Orders) -> None:
    """Take up what the first rank hands over after its orders."""
    held = {name: safetensors.torch.load(ranks.told(None)) for name in checkpoint.TENSORS}
    job.setup.network.load_state_dict(held[checkpoint.TENSORS[0]])
    checkpoint.fill(held, orders.signal, job.setup.network, job.state, job.examples)
    job.state.step = orders.step
