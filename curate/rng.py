"""Random numbers keyed by what they are for, never by the order of calls.

So an epoch draws the same after a kill and resume, with any number of workers, and on any device.
"""

from __future__ import annotations

import hashlib

import torch


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
