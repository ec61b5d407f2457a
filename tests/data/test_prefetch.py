"""Batches on their way to the device: all of them, in order, with the same pixels; on CUDA one is under way ahead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from curate.data.decode import Pixels
from curate.data.prefetch import on_device


def batches(count: int, taken: list[int]) -> Iterator[Pixels]:
    for number in range(count):
        taken.append(number)
        yield Pixels(torch.tensor([number]), torch.full((1, 3, 64, 64), number, dtype=torch.uint8), ((number, 1),))


def test_on_the_cpu_a_batch_is_passed_on() -> None:
    taken: list[int] = []
    coming = on_device(batches(3, taken), torch.device("cpu"))
    first = next(coming)
    assert taken == [0]
    assert [batch.rows.item() for batch in (first, *coming)] == [0, 1, 2]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_on_cuda_the_next_is_under_way(count: int) -> None:
    taken: list[int] = []
    found = []
    for number, batch in enumerate(on_device(batches(count, taken), torch.device("cuda"))):
        assert len(taken) == min(number + 2, count)
        assert batch.pixels.is_cuda
        busy = torch.randn(1000, 1000, device="cuda")
        found.append((batch.rows.item(), batch.bad, batch.pixels.float().mean() + 0 * (busy @ busy).sum()))
    assert [(row, bad, round(mean.item())) for row, bad, mean in found] == [(n, ((n, 1),), n) for n in range(count)]
