"""The processes that train together, ranks as torch.distributed has them, and what they tell one another.

A batch is spread over them: each has a part of its images, and what a step needs of all images is added up here. One
process by itself is a job of one rank, and then every function here returns what it is given.

Written by hand, as the wrappers of torch (DDP, FSDP, SyncBatchNorm) lose the tangents of forward-mode differentiation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

from curate.errors import LostRank, Misuse

#: A batch that would leave a rank with fewer images is no batch to spread: batch norm needs two.
FEWEST = 2
#: Longer than any work of one rank that the others wait for; that a rank has died shows in its connections.
_PATIENCE = timedelta(days=30)


#: Whether this process does something that the others do not: see `alone`.
_ALONE = ContextVar("alone", default=False)


def world() -> int:
    """How many ranks there are."""
    joined = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if joined and not _ALONE.get() else 1


def rank() -> int:
    """The number of this one, from 0."""
    return distributed.get_rank() if world() > 1 else 0


def here() -> int:
    """How many ranks share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", world())) if world() > 1 else 1


def is_first() -> bool:
    """Whether this is the rank that writes files and talks to people."""
    return rank() == 0


@contextmanager
def together(device_type: str, where: str, number: int, count: int) -> Iterator[None]:
    """A block in which this process is one of ``count`` ranks: by gloo on the CPU, by nccl among CUDA devices.

    Args:
        device_type: cpu or cuda; on CUDA, what lies in main memory goes by gloo all the same.
        where: they meet: a URL as of `torch.distributed.init_process_group`.
        number: of this one, from 0.

    Raises:
        Misuse: there is no such place, or no network that leads to it.
    """
    backend = backend_of(device_type)
    try:
        distributed.init_process_group(backend, init_method=where, rank=number, world_size=count, timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        why = str(error).strip().partition("\n")[0][:200]
        todo = "mend GLOO_SOCKET_IFNAME, or of torchrun MASTER_ADDR and MASTER_PORT"
        raise Misuse(f"the processes of this job cannot meet ({why}); {todo}") from error
    try:
        yield
    finally:
        distributed.destroy_process_group()


def backend_of(device_type: str) -> str:
    """What the ranks talk by.

    >>> backend_of("cpu"), backend_of("cuda")
    ('gloo', 'cpu:gloo,cuda:nccl')
    """
    return "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo"


@contextmanager
def alone() -> Iterator[None]:
    """A block in which this process computes as if there were no others, who do not take part in it."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


@dataclass(frozen=True)
class Part:
    """The images of a batch that a process works on: ``count`` of ``whole``, from the place ``first`` on.

    ``holders`` processes work on these very images: one, or all where a batch is too small to be spread.
    """

    first: int
    count: int
    whole: int
    holders: int = 1

    @property
    def own(self) -> slice:
        """Their places in the batch."""
        return slice(self.first, self.first + self.count)

    @property
    def share(self) -> float:
        """What a mean over them counts for in the mean over the batch, if every rank brings its own."""
        return self.count / (self.whole * self.holders)

    @property
    def is_spread(self) -> bool:
        """Whether others have the rest of the batch."""
        return self.count < self.whole

    def weighed(self, mean: Tensor) -> Tensor:
        """Of a mean over the part what the sum over ranks takes, to be the mean over the batch."""
        return mean if self.share == 1 else mean * self.share

    def gathered(self, values: Tensor, dim: int = 0) -> Tensor:
        """One entry an image of the part -> one an image of the batch, with derivatives."""
        if not self.is_spread:
            return values
        behind = values.ndim - 1 - dim % values.ndim
        return summed(F.pad(values, [0, 0] * behind + [self.first, self.whole - self.first - self.count]))


def span(whole: int, number: int | None = None) -> slice:
    """The places of a batch of ``whole`` that fall to a rank, this one for None: equal shares, one after the other.

    >>> span(10)
    slice(0, 10, None)
    """
    count, number = world(), rank() if number is None else number
    return slice(whole * number // count, whole * (number + 1) // count)


def part(whole: int) -> Part:
    """This rank's part of a batch; all of it where some rank would have too few images."""
    if whole < FEWEST * world():
        return Part(0, whole, whole, world())
    own = span(whole)
    return Part(own.start, own.stop - own.start, whole)


def one_part(value: Tensor) -> Tensor:
    """Of a number that every rank knows, an equal part for each: together they are it."""
    return value if world() == 1 else value / world()


class _Summed(torch.autograd.Function):
    """The sum over ranks. What every rank gets depends on what any rank gives, so a gradient by it is summed, too; and
    so is a tangent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _add_up(x.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return summed(grads[0])

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return summed(tangents[0])


def summed(x: Tensor) -> Tensor:
    """The sum of every rank's ``x``, the same bits on each, differentiable backward (twice, too) and forward.

    Every rank must call it, with the same shape. Not under `torch.func.vmap`.
    """
    if world() == 1:
        return x
    found: Tensor = _Summed.apply(x)
    return found


def stacked(row: Tensor) -> Tensor:
    """Every rank's ``row``, one below the other, shape (ranks, ...); differentiable as `summed`."""
    behind = [0, 0] * row.ndim
    return summed(F.pad(row[None], [*behind, rank(), world() - 1 - rank()]))


def added(values: dict[str, Tensor], further: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """What every rank has of some tensors and of a scalar, added up: one message for all.

    Without derivatives, the same bits on every rank.
    """
    if world() == 1:
        return values, further
    flat = torch.cat([*(x.detach().flatten() for x in values.values()), further.detach().reshape(1)])
    *parts, last = torch.split(_add_up(flat), [*(x.numel() for x in values.values()), 1])
    return {name: part.view(x.shape) for (name, x), part in zip(values.items(), parts)}, last[0]


def add_up(counts: Tensor) -> Tensor:
    """The sum over ranks, in place: of numbers on the CPU."""
    return counts if world() == 1 else _add_up(counts)


def everywhere(fact: bool) -> bool:
    """Whether it holds on every rank."""
    return int(add_up(torch.tensor([int(fact)]))) == world()


def is_common(number: int) -> bool:
    """Whether every rank has this number."""
    numbers = torch.zeros(world(), dtype=torch.int64)
    numbers[rank()] = number
    return bool((add_up(numbers) == number).all())


def put_together(pieces: Tensor, counts: list[int]) -> Tensor:
    """The rows that the ranks have, ``counts`` of them each, on every rank."""
    with _awaiting_others():
        found = []
        for number, count in enumerate(counts):
            piece = pieces.contiguous() if number == rank() else pieces.new_empty((count, *pieces.shape[1:]))
            if count:
                distributed.broadcast(piece, number)
            found.append(piece)
    return torch.cat(found)


def told(message: bytes | None) -> bytes:
    """What the first rank says, ``message`` there, on every rank."""
    with _awaiting_others():
        size = torch.tensor([len(message or b"")])
        distributed.broadcast(size, 0)
        text = torch.empty(int(size), dtype=torch.uint8)
        if message:
            text = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        if len(text):
            distributed.broadcast(text, 0)
    return text.numpy().tobytes()


def _add_up(x: Tensor) -> Tensor:
    with _awaiting_others():
        distributed.all_reduce(x)
    return x


@contextmanager
def _awaiting_others() -> Iterator[None]:
    """Words of the system's about a connection that is gone, in ours."""
    try:
        yield
    except RuntimeError as error:
        raise LostRank("another process of this job has ended; the same command goes on") from error
