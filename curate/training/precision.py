"""Which arithmetic a CUDA run may use: the fastest whose meta-gradient agrees with float32's, as measured.

The plain and the meta forward may run under bf16 autocast, their products in TF32; the tangent is float32 or TF32,
never bf16. On the CPU everything is float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

#: The least cosine between a faster arithmetic's meta-gradient and float32's for it to be chosen.
AGREEMENT = 0.98


@dataclass(frozen=True)
class Precision:
    """What was chosen, and the cosine of each candidate's meta-gradient with float32's on one real batch."""

    name: str
    agreement: dict[str, float]

    @property
    def autocast(self) -> torch.dtype | None:
        """The dtype of the forwards; None for float32."""
        return torch.bfloat16 if self.name == "bf16" else None


def use(name: str) -> None:
    """Set torch's global switches for float32, tf32 or bf16 (whose tangent runs in TF32)."""
    tf32 = name in ("tf32", "bf16")
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def in_use(autocast: torch.dtype | None) -> str:
    """The name of the arithmetic that torch's switches are set for, and forwards under ``autocast``."""
    if autocast is not None:
        return "bf16"
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "float32"


def choose(
    wanted: str, device: torch.device, meta_gradient: Callable[[torch.dtype | None], Tensor] | None
) -> Precision:
    """The arithmetic of a run.

    Args:
        wanted: auto, float32, tf32 or bf16.
        device: off CUDA the answer is float32, unless bf16 is asked for by name.
        meta_gradient: autocast dtype -> h of one batch, shape (k,); None where nothing is learnt.
    """
    if device.type != "cuda":
        return Precision("bf16" if wanted == "bf16" else "float32", {})
    if meta_gradient is None:
        chosen = "bf16" if wanted == "auto" else wanted
        use(chosen)
        return Precision(chosen, {})
    use("float32")
    exact = meta_gradient(None)
    agreement = {}
    for name in ("tf32", "bf16"):
        use(name)
        agreement[name] = cosine(meta_gradient(torch.bfloat16 if name == "bf16" else None), exact)
    fast_enough = [name for name in ("bf16", "tf32") if agreement[name] >= AGREEMENT]
    chosen = (fast_enough + ["float32"])[0] if wanted == "auto" else wanted
    use(chosen)
    return Precision(chosen, agreement)


def cosine(left: Tensor, right: Tensor) -> float:
    """The cosine of two vectors, in [-1, 1]."""
    left, right = left.double(), right.double()
    return float((left @ right) / (left.norm() * right.norm()))
