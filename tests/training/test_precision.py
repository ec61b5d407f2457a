"""Which arithmetic is chosen; on the CPU float32, on CUDA by the agreement of the meta-gradient."""

from __future__ import annotations

import pytest
import torch

from curate.training import precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def switches():
    """Torch's switches as they were."""
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def measured(tf32, bf16):
    """A meta-gradient whose agreement with float32 is as given, by what is switched on."""

    def meta_gradient(dtype):
        on = torch.backends.cuda.matmul.allow_tf32
        cosine = 1.0 if not on else bf16 if dtype is torch.bfloat16 else tf32
        return torch.tensor([cosine, (1 - cosine**2) ** 0.5], dtype=torch.float64)

    return meta_gradient


@pytest.mark.parametrize(("wanted", "name"), [("auto", "float32"), ("tf32", "float32"), ("bf16", "bf16")])
def test_the_cpu_computes_in_float32_unless_bf16_is_named(wanted, name):
    """Nothing is measured there."""
    chosen = precision.choose(wanted, CPU, None)
    assert chosen == precision.Precision(name, {})
    assert chosen.autocast == (torch.bfloat16 if name == "bf16" else None)


@pytest.mark.parametrize(
    ("tf32", "bf16", "name"),
    [
        (0.999, 0.99, "bf16"),
        (0.999, precision.AGREEMENT, "bf16"),
        (0.999, 0.97, "tf32"),
        (0.97, 0.97, "float32"),
    ],
)
def test_auto_takes_the_fastest_that_agrees(tf32, bf16, name):
    """bf16 before tf32 before float32, each only at the bound or above it; both cosines are reported."""
    chosen = precision.choose("auto", CUDA, measured(tf32, bf16))
    assert chosen.name == name
    assert chosen.agreement == pytest.approx({"tf32": tf32, "bf16": bf16})
    assert torch.backends.cuda.matmul.allow_tf32 == (name != "float32")
    assert torch.backends.cudnn.allow_tf32 == (name != "float32")


def test_what_is_named_is_used_whatever_the_agreement():
    """The cosines are said all the same."""
    chosen = precision.choose("bf16", CUDA, measured(0.5, 0.5))
    assert chosen.name == "bf16"
    assert chosen.autocast is torch.bfloat16
    assert chosen.agreement == pytest.approx({"tf32": 0.5, "bf16": 0.5})


@pytest.mark.parametrize(("wanted", "name"), [("auto", "bf16"), ("float32", "float32"), ("tf32", "tf32")])
def test_plain_training_needs_no_agreement(wanted, name):
    """A method that learns nothing has no meta-gradient to spoil."""
    assert precision.choose(wanted, CUDA, None) == precision.Precision(name, {})


def test_the_cosine_is_the_angles():
    """Of float32 vectors, in float64: 3-4-5."""
    assert precision.cosine(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0])) == pytest.approx(0.6)
    assert precision.cosine(torch.tensor([1.0, 2.0]), torch.tensor([-2.0, -4.0])) == pytest.approx(-1)
