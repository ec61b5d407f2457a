"""What every rank but the first does: train what the first says, and nothing else."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import torch

from curate.config.schema import MachineConfig, from_options
from curate.progress import NullProgress
from curate.runs import hand_over, look_alikes, reshard
from curate.runs.epoch import train_on
from curate.runs.prepare import Job, prepare, trainable
from curate.runs.stopping import SIGNALS
from curate.training import precision


def follow(machine: MachineConfig, out: Path) -> None:
    """Train with the first rank until it says that all is done.

    Ctrl-C and SIGTERM are for the first rank, which saves; this one ends with it.

    Args:
        machine: of this process.
        out: the run directory, which only the first rank writes into.

    Raises:
        LostRank: the first rank has ended before.
        ShardError, CurateError: the store, the target or the run directory cannot be read.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    job: Job | None = None
    while (orders := hand_over.next_orders()) is not None:
        job = job or _prepared(orders, machine, out)
        hand_over.take(job, orders)
        reshard.read_from(job, out, orders.generation)
        train_on(job, out, trainable(job.examples), orders.epoch, NullProgress(), orders.most_steps)


def _prepared(orders: hand_over.Orders, machine: MachineConfig, out: Path) -> Job:
    """The job as the first rank has it, of a run that it has claimed."""
    config = from_options(orders.options)
    job = prepare(replace(config, machine=replace(config.machine, allow_pipe=machine.allow_pipe)), out)
    look_alikes.begin(job, out, NullProgress())
    arithmetic = precision.Precision(orders.precision, {})
    precision.use(arithmetic.name)
    torch.set_num_threads(orders.threads)
    return replace(job, setup=replace(job.setup, autocast=arithmetic.autocast))
