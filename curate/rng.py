"""Random numbers keyed by what they are for, never by the order of calls.

So an epoch draws the same after a kill and resume, with any number of workers, and on any device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor


def key(seed: int, purpose: str, epoch: int = 0, step: int = 0) -> int:
    """A 63-bit key of (seed, purpose, epoch, step).

    >>> key(0, "beta", 1) == key(0, "beta", 1), key(0, "beta", 1) == key(0, "beta", 2)
    (True, False)
    """
    text = f"{seed}/{purpose}/{epoch}/{step}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, epoch: int = 0, step: int = 0) -> torch.Generator:
    """A fresh CPU generator for one purpose at one step; draws made on the CPU are the same on every device."""
    return torch.Generator().manual_seed(key(seed, purpose, epoch, step))


class PartGenerator(torch.Generator):
    """A generator for some images of a batch: by `drawn` they get the numbers that they have in the whole batch.

    Attributes:
        own: places of the images in the batch.
        whole: images of the batch; 0 where the images at hand are all of it.
    """

    own = slice(0)
    whole = 0


def generator_of_part(
    seed: int, purpose: str, epoch: int = 0, step: int = 0, own: slice = slice(0), whole: int = 0
) -> PartGenerator:
    """As `generator`, for the images at the places ``own`` of a batch of ``whole``."""
    found = PartGenerator()
    found.own, found.whole = own, whole
    found.manual_seed(key(seed, purpose, epoch, step))
    return found


def drawn(draw: Callable[[int], Tensor], k: int, generator: torch.Generator, dim: int = 0) -> Tensor:
    """What ``draw`` draws for k images: of a part of a batch, its own of what is drawn for the whole.

    So an image gets the same numbers however many processes share its batch.

    Args:
        draw: a number of images -> numbers for them, drawn from ``generator``.
        dim: along which images lie.
    """
    if not (isinstance(generator, PartGenerator) and generator.whole):
        return draw(k)
    own = generator.own
    return draw(generator.whole).narrow(dim, own.start, own.stop - own.start).contiguous()
