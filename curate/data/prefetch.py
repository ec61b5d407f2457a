"""Batches on their way to the device: the next one is copied while the one before is computed on."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from curate.data.decode import Pixels


def on_device(batches: Iterator[Pixels], device: torch.device) -> Iterator[Pixels]:
    """Yield the batches with their pixels on the device, in order.

    On CUDA each is put into pinned memory and copied on a stream of its own, one batch ahead, so that the copy runs
    beside the computing and nobody waits for it on the host. The CPU needs no copy.
    """
    if device.type != "cuda":
        yield from batches
        return
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    held: tuple[Pixels, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(copying):
            pixels = batch.pixels.pin_memory().to(device, non_blocking=True)
        there = copying.record_event()
        if held is not None:
            yield _awaited(*held)
        held = Pixels(batch.rows, pixels, batch.bad), there
    if held is not None:
        yield _awaited(*held)


def _awaited(batch: Pixels, there: torch.cuda.Event) -> Pixels:
    """The batch, for the stream that computes: it waits for the copy, and the memory is its own from then on."""
    computing = torch.cuda.current_stream(batch.pixels.device)
    computing.wait_event(there)
    batch.pixels.record_stream(computing)
    return batch
