"""Plain training: every weight is 1 and nothing is learnt (RotNet, the plain VAE)."""

from __future__ import annotations

from curate.methods.base import FixedWeights, MethodInputs


class Uniform(FixedWeights):
    """The baseline of every table, and the method of `curate pretrain`."""

    def __init__(self, given: MethodInputs | None = None) -> None:
        """Nothing depends on what is given."""
