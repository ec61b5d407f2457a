"""Beliefs that look-alikes share: each step against a loop over single images, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from curate.config.schema import BeliefConfig
from curate.methods import beta
from curate.methods.base import Clusters, MethodInputs, Nearest
from curate.methods.bdw import Bdw
from curate.rng import generator

CPU = torch.device("cpu")
N, K, ETA = 30, 4, 0.7


def clusters():
    """Four of unequal size, the last one empty."""
    return Clusters(np.random.default_rng(0).choice(3, N, p=[0.6, 0.3, 0.1]).astype(np.int32), K)


def nearest():
    """Five others an image; some are named far more often than others."""
    draws = np.random.default_rng(1)
    return Nearest(np.stack([(i + 1 + np.sort(draws.choice(9, 5, False))) % N for i in range(N)]).astype(np.int32))


def fresh(among, dtype=torch.float64, **options):
    method = Bdw(MethodInputs(N, BeliefConfig(**{"eta": ETA, **options}), 3, CPU), dtype)
    method.share(among)
    return method


def epochs(method, watch=lambda *_: None, n_epochs=3, kept=lambda epoch: torch.arange(N)[torch.arange(N) % 5 != epoch]):
    """Train on given signals: of each epoch other rows, in batches of 7."""
    draws, step = torch.Generator().manual_seed(2), 0
    for epoch in range(1, n_epochs + 1):
        rows = kept(epoch)
        method.begin_epoch(rows, torch.zeros_like(rows), epoch)
        watch("epoch", rows, epoch)
        for batch in rows[torch.randperm(len(rows), generator=draws)].split(7):
            h = torch.randn(len(batch), generator=draws, dtype=torch.float64)
            method.update(batch, h, step)
            watch("step", batch, h)
            step += 1
        method.end_epoch(rows, step)


class Loop:
    """The definition, one image and one number at a time."""

    def __init__(self, among, eta):
        self.among, self.eta = among, eta
        self.own, self.shared = np.zeros((N, 2)), np.zeros((max(N, K), 2))

    def part(self, i):
        return self.among.cluster[i] if isinstance(self.among, Clusters) else i

    def belief(self, i):
        return [min(7.0, max(-5.0, self.own[i, j] + self.shared[self.part(i), j])) for j in (0, 1)]

    def __call__(self, what, rows, given):
        rows = rows.tolist()
        if what == "epoch":
            logs = torch.tensor([self.belief(i) for i in rows], dtype=torch.float64)
            drawn = beta.draw(logs[:, 0], logs[:, 1], generator(3, "beta", given))
            self.slope = dict(zip(rows, zip(drawn.by_log_a.tolist(), drawn.by_log_b.tolist())))
            return
        for i, h in zip(rows, given.tolist()):
            for j in (0, 1):
                move = -self.eta * h * self.slope[i][j]
                self.own[i, j] += 0.3 * move
                if isinstance(self.among, Clusters):
                    mine = self.among.cluster[i]
                    self.shared[mine, j] += move / sum(1 for other in range(N) if self.among.cluster[other] == mine)
                else:
                    for other in self.among.nearest[i]:
                        self.shared[other, j] += move / 5
        np.clip(self.own, -5, 7, out=self.own)
        np.clip(self.shared, -5, 7, out=self.shared)


@pytest.mark.parametrize("among", [clusters(), nearest()], ids=["clusters", "neighbours"])
@pytest.mark.parametrize("eta", [ETA, 400.0])
def test_every_step_is_that_of_the_loop(among, eta):
    """Own part, shared part and what is believed, also where both are clamped; 1e-12."""
    method, loop = fresh(among, eta=eta), Loop(among, eta)

    def watch(what, rows, given):
        loop(what, rows, given)
        np.testing.assert_allclose(method.logs.numpy(), loop.own, rtol=0, atol=1e-12)
        held = method.shared.logs.numpy()
        np.testing.assert_allclose(held, loop.shared[: len(held)], rtol=0, atol=1e-12)

    epochs(method, watch)
    believed = np.exp([loop.belief(i) for i in range(N)])
    found = method.summary(np.arange(N))
    np.testing.assert_allclose(np.stack([found.a, found.b], 1), believed, rtol=1e-6)
    np.testing.assert_allclose(found.mean, believed[:, 0] / believed.sum(1), rtol=1e-6)
    if eta == 400.0:
        assert np.abs(loop.shared).max() >= 5


def test_an_image_that_was_not_visited_learns_from_those_like_it():
    """And from no others: the cluster that helps rises, its pruned images too, the other stays where it was."""
    among = Clusters(np.repeat([0, 1], N // 2).astype(np.int32), 2)
    method = fresh(among)
    rows = torch.arange(10)
    method.begin_epoch(rows, torch.zeros_like(rows), 1)
    method.update(rows, -torch.ones(10, dtype=torch.float64), 0)
    mean = method.summary(np.arange(N)).mean
    assert (mean[:15] > 0.5).all()
    assert len(set(mean[10:15].tolist())) == 1
    assert (mean[15:] == 0.5).all()


@pytest.mark.parametrize("among", [clusters(), nearest()], ids=["clusters", "neighbours"])
def test_state_round_trip(among):
    """Both parts are in the checkpoint, and a restored method goes on exactly."""
    one, two = (fresh(among, torch.float32) for _ in range(2))
    epochs(one, n_epochs=1)
    assert {"log_a", "log_b", "shared_a", "shared_b"} == set(one.state())
    two.restore({name: x.clone() for name, x in one.state().items()})
    for method in (one, two):
        epochs(method, n_epochs=1, kept=lambda _: torch.arange(N))
    assert torch.equal(one.logs, two.logs)
    assert torch.equal(one.shared.logs, two.shared.logs)
    assert torch.equal(one.weights(torch.arange(N)), two.weights(torch.arange(N)))


def test_where_nothing_is_shared_nothing_is_held():
    """The state of a run without --share is what it was."""
    assert set(Bdw(MethodInputs(N, BeliefConfig(eta=1.0), 0, CPU)).state()) == {"log_a", "log_b"}


@pytest.mark.parametrize(("among", "more"), [(clusters(), 0), (nearest(), 8 + 4 * 5)], ids=["clusters", "neighbours"])
def test_memory(among, more):
    """Own beliefs, slopes and draw are 20 bytes an image, its cluster 4; neighbours 4 each, and what they teach 8."""
    method = fresh(among, torch.float32)
    held = [*vars(method).values(), *vars(method.shared).values()]
    stored = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in held if isinstance(x, torch.Tensor)}
    of_clusters = K * 3 * 8
    assert sum(stored.values()) <= (20 + 4 + more) * N + of_clusters


class Reads(TorchDispatchMode):
    """Counts what would wait for a device: reads of a value, and indices of a mask."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("among", [clusters(), nearest()], ids=["clusters", "neighbours"])
def test_a_step_waits_for_nothing(among):
    """Nor does it look at more rows than those of the batch, their look-alikes and the clusters."""
    method = fresh(among, torch.float32)
    rows = torch.arange(N)
    method.begin_epoch(rows, torch.zeros_like(rows), 1)
    with Reads() as reads:
        method.update(rows[:7], torch.ones(7), 0)
        method.weights(rows[7:14])
    assert reads.count == 0
