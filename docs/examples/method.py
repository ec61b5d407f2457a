"""A method: the weight of an image goes up or down by a fixed step, by the sign of the meta-gradient alone."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import curate
from curate.config.catalogue import MethodSpec
from curate.methods.base import MethodInputs, PointWeights


class SignWeights(PointWeights):
    """Point weights in [0, 1] that start at 1/2; the base class keeps them, for the ledger and for checkpoints."""

    looks_ahead = True  # the signal is taken after the batch's own step
    prunes = True  # images with a weight of at most lam go at the end of an epoch

    def __init__(self, inputs: MethodInputs) -> None:
        super().__init__(inputs)
        self.weight += 0.5
        self.step_size = inputs.belief.rate

    def weights(self, rows: Tensor) -> Tensor:
        """What the losses of a batch are multiplied by, shape (k,)."""
        return self.weight[rows]

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """Against the signal: where it is negative, more of the image would have lowered the target's loss."""
        step_down = self.step_size * torch.sign(signal).to(self.weight.dtype)  # the signal comes in float64
        self.weight[rows] = (self.weight[rows] - step_down).clamp(0, 1)


#: What can be known of it without torch: the defaults of its options, and those that say nothing to it.
SPEC = MethodSpec(
    SignWeights,
    # With the batch as the reference about half of the signs are positive.
    defaults={"eta": 0.1, "eta_scale": "raw", "reference": "batch", "lam": 0.25},
    inapplicable=(
        ({"meta_momentum": 0.0, "expected_gradient": False}, "it has no belief that could coast or be averaged"),
        ({"rho": 0.5}, "a point weight lies above lam or not, no share of it does"),
    ),
)

if __name__ == "__main__":
    from packer import pack_digits

    pack_digits(Path("data"))
    curate.register_method("sign", SignWeights, defaults=SPEC.defaults, inapplicable=SPEC.inapplicable)
    run = curate.run(
        "data/store",
        "data/target",
        out="run-sign",
        method="sign",
        pretext="reconstruction",
        meta_loss="self-supervised",
        size=16,
        crop=16,
        epochs=3,
        workers=0,
    )
    print([line["kept"] for line in run.metrics()])
