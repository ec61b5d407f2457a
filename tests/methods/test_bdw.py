"""The BDW state: O(batch) updates, clamping, and lazy momentum against the dense vector."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from curate.config.schema import BeliefConfig
from curate.methods import beta
from curate.methods.base import MethodInputs
from curate.methods.bdw import Bdw, coast
from curate.rng import generator
from curate.runs.checkpoint import Examples

CPU = torch.device("cpu")


def fresh(n=10, dtype=torch.float64, **options):
    return Bdw(MethodInputs(n, BeliefConfig(**{"eta": 1.0, **options}), 0, CPU), dtype)


def test_only_the_rows_of_the_batch_change():
    """A step is a gather and a scatter."""
    method = fresh()
    rows = torch.arange(10)
    method.begin_epoch(rows, torch.zeros(10, dtype=torch.int64), 1)
    method.update(torch.tensor([2, 5]), torch.tensor([1.0, -1.0]), 0)
    changed = (method.log_a != 0) | (method.log_b != 0)
    assert changed.nonzero().flatten().tolist() == [2, 5]


def test_an_image_that_helps_gains_and_one_that_hurts_loses():
    """h = dM/dw < 0 says that more weight lowers the target's loss."""
    method = fresh()
    rows = torch.arange(10)
    method.begin_epoch(rows, torch.zeros(10, dtype=torch.int64), 1)
    method.update(rows, torch.cat([torch.full((5,), -1.0), torch.full((5,), 1.0)]), 0)
    mean = method.summary(np.arange(10)).mean
    assert (mean[:5] > 0.5).all()
    assert (mean[5:] < 0.5).all()


def test_update_is_the_chain_rule_through_the_draw():
    """log a moves by -eta h dw/dlog a, log b by -eta h dw/dlog b, of the epoch's own draw."""
    method = fresh(eta=0.3)
    rows = torch.arange(10)
    method.begin_epoch(rows, torch.zeros(10, dtype=torch.int64), 4)
    draw = beta.draw(torch.zeros(10), torch.zeros(10), generator(0, "beta", 4))
    h = torch.linspace(-1, 1, 10, dtype=torch.float64)
    method.update(rows, h, 0)
    torch.testing.assert_close(method.weights(rows), draw.weight)
    torch.testing.assert_close(method.log_a, -0.3 * h * draw.by_log_a)
    torch.testing.assert_close(method.log_b, -0.3 * h * draw.by_log_b)


def test_beliefs_stay_in_their_range():
    """Clamped to [-5, 7] after each update."""
    method = fresh(eta=1e6)
    rows = torch.arange(10)
    method.begin_epoch(rows, torch.zeros(10, dtype=torch.int64), 1)
    method.update(rows, torch.linspace(-1, 1, 10), 0)
    for logs in (method.log_a, method.log_b):
        assert logs.min() >= -5
        assert logs.max() <= 7


def test_expected_gradient_keeps_the_product_of_a_and_b():
    """ab / (a + b)^2 and its negative: log a + log b stays 0."""
    method = fresh(expected_gradient=True)
    rows = torch.arange(10)
    for epoch in (1, 2, 3):
        method.begin_epoch(rows, torch.zeros(10, dtype=torch.int64), epoch)
        method.update(rows, torch.linspace(-1, 1, 10), epoch)
    torch.testing.assert_close(method.log_a, -method.log_b, rtol=0, atol=1e-12)
    assert method.log_a.abs().max() > 0.1


@pytest.mark.parametrize("eta", [0.05, 3.0])
def test_lazy_momentum_equals_the_dense_vector(eta):
    """Three epochs over 12 rows in batches of 3, with a row that is dropped half way; 1e-12 in float64.

    The dense version moves all rows at every step, with gradient 0 outside the batch, and clamps each time.
    """
    n, k, momentum = 12, 3, 0.9
    lazy = fresh(n, eta=eta, meta_momentum=momentum)
    x, v = torch.zeros(2, n, dtype=torch.float64), torch.zeros(2, n, dtype=torch.float64)
    g = torch.Generator().manual_seed(1)
    live, step = torch.arange(n), 0
    for epoch in (1, 2, 3):
        order = live[torch.randperm(len(live), generator=g)]
        visit = torch.empty(n, dtype=torch.int64)
        visit[order] = step + torch.arange(len(order)) // k
        lazy.begin_epoch(live, visit[live], epoch)
        for batch in order.split(k):
            h = torch.randn(len(batch), generator=g, dtype=torch.float64)
            gradient = torch.zeros(2, n, dtype=torch.float64)
            gradient[0, batch] = h * lazy.by_log_a[batch]
            gradient[1, batch] = h * lazy.by_log_b[batch]
            # The belief a draw came from: the lazy one was brought to this very step.
            before = torch.stack([lazy.log_a[batch], lazy.log_b[batch]])
            torch.testing.assert_close(before, x[:, batch], rtol=1e-12, atol=1e-12)
            alive = torch.zeros(n, dtype=torch.bool)
            alive[live] = True
            v = torch.where(alive, momentum * v + gradient, v)
            x = torch.where(alive, (x - eta * v).clamp(-5, 7), x)
            lazy.update(batch, h, step)
            step += 1
        lazy.end_epoch(live, step)
        torch.testing.assert_close(torch.stack([lazy.log_a, lazy.log_b]), x, rtol=1e-12, atol=1e-12)
        live = live[live != 4 * epoch]


def test_coasting_for_no_step_changes_nothing():
    """j = 0: a row seen at the step before."""
    x, v = torch.tensor([0.3], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    still, speed = coast(x, v, torch.zeros(1, dtype=torch.float64), 0.1, 0.9)
    assert still.item() == 0.3
    assert speed.item() == 2.0


def test_state_round_trip():
    """A restored method goes on exactly as the one it was saved from."""
    one, two = (fresh(6, torch.float32, meta_momentum=0.9) for _ in range(2))
    rows = torch.arange(6)
    one.begin_epoch(rows, torch.arange(6) // 2, 1)
    one.update(rows[:2], torch.tensor([1.0, -2.0]), 0)
    two.restore(one.state())
    for method in (one, two):
        method.end_epoch(rows, 3)
        method.begin_epoch(rows, 3 + torch.arange(6) // 2, 2)
    assert torch.equal(one.weights(rows), two.weights(rows))
    assert torch.equal(one.log_a, two.log_a)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_row_takes_at_most_forty_bytes(momentum):
    """Everything that grows with the store beside its index: the method's tensors and what is known of each example."""
    n = 1000
    method = Bdw(MethodInputs(n, BeliefConfig(eta=1.0, meta_momentum=momentum), 0, CPU))
    examples = Examples(np.ones(n, np.bool_), np.zeros(n, np.int16), np.zeros(n, np.uint8))
    tensors = [x for x in vars(method).values() if isinstance(x, torch.Tensor)]
    arrays = list(vars(examples).values())
    # Columns of one table share its memory.
    stored = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
    assert sum(stored.values()) + sum(x.nbytes for x in arrays) <= 40 * n
