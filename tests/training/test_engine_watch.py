"""What the engine watches for while it trains: numbers that end, batches too small, and no waiting for the device."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from engine_scene import K, N, batches, begun, scene, settings
from torch.utils._python_dispatch import TorchDispatchMode

from curate.data.decode import Pixels
from curate.errors import NonFinite
from curate.methods.uniform import Uniform
from curate.training import engine


def poisoned(bad_step, steps, seen):
    """Batches of which one holds a pixel that is no number; ``seen`` gets the step of each that is asked for."""
    for step in range(steps):
        seen.append(step)
        batch = batches()[0]
        values = batch.pixels.float()
        values[0, 0, 4, 4] = float("nan") if step == bad_step else values[0, 0, 4, 4]
        yield Pixels(batch.rows, values)


@pytest.mark.parametrize("bad_step", [0, 3])
def test_a_loss_that_is_no_number_names_its_step(bad_step):
    """Found at the end of the epoch, though every step after it has a bad loss too."""
    setup, state = scene(settings(), dtype=torch.float32)
    with pytest.raises(
        NonFinite, match=rf"^epoch 2, step {bad_step}: the training loss is not finite; .* smaller --lr"
    ):
        engine.train_epoch(setup, begun(state), 2, poisoned(bad_step, 5, []))


def test_the_latch_is_read_every_50_steps():
    """Step 2 is bad: the look after step 50 stops the epoch, long before its end."""
    setup, state = scene(settings(method="uniform"), dtype=torch.float32, method=Uniform())
    seen: list[int] = []
    with pytest.raises(NonFinite, match="epoch 1, step 2: the training loss is not finite"):
        engine.train_epoch(setup, state, 1, poisoned(2, 200, seen))
    assert seen[-1] == engine.LOOK_EVERY


@pytest.mark.parametrize("method", ["bdw", "uniform"])
def test_parameters_broken_by_the_last_step_are_found(method):
    """No loss comes after it: a velocity near float32's end, times a rate of 10, is infinite."""
    config = settings(method=method, lr=10.0, momentum=0.9)
    setup, state = scene(config, dtype=torch.float32, method=Uniform() if method == "uniform" else None)
    for value in state.velocity.values():
        value.fill_(3e38)
    begun(state)
    with pytest.raises(NonFinite, match=r"^epoch 1, step 0: the parameters are not finite; .*\(now 10\)"):
        engine.train_epoch(setup, state, 1, batches()[:1])


class Waits(TorchDispatchMode):
    """Counts the reads of a tensor's value: what `Tensor.item`, `bool` and `int` come down to, and would wait for."""

    def __init__(self, meta_loss):
        super().__init__()
        self.meta_loss, self.count = meta_loss, 0
        self.loss, self.losses = getattr(meta_loss, "loss", None), getattr(meta_loss, "losses", None)

    def batch(self, epoch, step):
        # A target batch is drawn on the CPU, whatever the device: its reads wait for nothing.
        before = self.count
        drawn = self.meta_loss.batch(epoch, step)
        self.count = before
        return drawn

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default or func is torch.ops.aten.nonzero.default:
            self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"meta_loss": "self-supervised", "reference": "target", "eta_scale": "history"},
        {"meta_momentum": 0.9, "meta_average": 0.9, "eta_scale": "recent", "reference": "batch"},
        {"pretext": "reconstruction", "meta_loss": "self-supervised", "hidden": 7},
        {"signal": "head", "meta_loss": "self-supervised", "reference": "quantile", "warmup": 0},
        {"signal": "head", "meta_loss": "self-supervised", "warmup": 0, "width": 160, "meta_every": 2},
        {"signal": "preconditioned", "meta_loss": "self-supervised", "pretext": "reconstruction", "hidden": 7},
        {"signal": "preconditioned", "meta_loss": "self-supervised", "norm": "group", "reference": "batch"},
        {"signal": "preconditioned", "meta_loss": "self-supervised", "reference": "quantile"},
        {"signal": "reference-net", "meta_loss": "self-supervised", "reference": "quantile", "warmup": 0},
        {"method": "uniform"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())) or "plain",
)
def test_no_step_between_two_looks_waits_for_the_device(changes):
    """Reads of a value in steps 2, 3 and 4: none. The look after the first step is what the mode must see."""
    config = settings(**changes)
    setup, state = scene(config, dtype=torch.float32, method=Uniform() if config.method == "uniform" else None)
    begun(state)
    reads = []
    with Waits(setup.meta_loss) as waits:
        setup = dataclasses.replace(setup, meta_loss=setup.meta_loss and waits)

        def counted():
            for batch in [batches()[0]] * 5:
                reads.append(waits.count)
                yield batch

        engine.train_epoch(setup, state, 1, counted(), progress=lambda images, numbers: None)
    before, after_look, *later = reads
    assert after_look > before
    assert later == [after_look] * 3
    assert waits.count > after_look


def test_progress_hears_of_every_step_and_of_means_at_the_looks():
    """Images done each time; numbers after the first step."""
    setup, state = scene(settings())
    told = []
    engine.train_epoch(setup, begun(state), 1, batches(), lambda images, numbers: told.append((images, bool(numbers))))
    assert told == [(K, True), (K, False), (N - 2 * K, False)]


@pytest.mark.parametrize("size", [0, 1])
def test_a_batch_of_fewer_than_two_is_passed_over_but_counts_as_a_step(size):
    """Steps number the slots of the epoch's order, so that a resumed run draws the same."""
    setup, state = scene(settings())
    first, last, tiny = batches()
    tiny = Pixels(tiny.rows[:size], tiny.pixels[:size])
    totals, _ = engine.train_epoch(setup, begun(state), 1, [first, tiny, last])
    assert (totals.steps, totals.images, state.step) == (2, 2 * K, 3)
    assert not state.method.log_a[tiny.rows].any()
    again_setup, again = scene(settings())
    engine.train_epoch(again_setup, begun(again), 1, [first])
    again.step = 2
    engine.train_epoch(again_setup, again, 1, [last])
    assert all(torch.equal(state.theta[name], again.theta[name]) for name in state.theta)
