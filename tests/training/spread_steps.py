"""Steps of the engine over several ranks, beside the same steps written out for the whole batch by one process.

What runs in the ranks of `test_spread.py`: `errors` says how far the two are from each other.
"""

from __future__ import annotations

import itertools
from unittest import mock

import torch
from engine_scene import CPU, scene, settings

from curate import ranks
from curate.data import augment
from curate.data.decode import Pixels
from curate.methods.base import MethodInputs
from curate.methods.bdw import Bdw
from curate.models.networks import without_state
from curate.models.synced_batch_norm import synced
from curate.rng import generator
from curate.training import engine, reference

#: Rows, and of a batch: 9 fall on 4 ranks as 2, 2, 2, 3; the last batch has 3, too few to be spread.
N, K = 21, 9

CASES = {
    "rotation, group norm": {"norm": "group"},
    "rotation, batch norm": {},
    "rotation, prototypical": {"meta_loss": "prototypical", "ways": 4, "shots": 3},
    "support as queries": {"meta_loss": "prototypical", "query": "support", "ways": 4, "shots": 3},
    "contrast, group norm": {"pretext": "simclr", "norm": "group"},
    "contrast, batch norm": {"pretext": "simclr"},
    "VAE": {"pretext": "reconstruction", "lr": 1e-3, "hidden": 7},
}

_ADDED = ranks.added
#: The calls of `ranks.added` come in turns: the gradient of the batch, then u.
_CALLS = itertools.count()


def _only_the_gradient(values, further):
    return _ADDED(values, further) if next(_CALLS) % 2 == 0 else (values, further)


def _undivided(part, mean):
    """By its own number of images, not by that of the batch."""
    return mean


def _own_tangent(ctx, *tangents):
    return tangents[0].clone()


def _own_gradient(ctx, *grads):
    return grads[0]


#: Where an error is put on purpose: the case that it shows in, and what stands in place of a part.
BROKEN = {
    "the division": ("rotation, group norm", ranks.Part, "weighed", _undivided),
    "the sum of u": ("rotation, group norm", ranks, "added", _only_the_gradient),
    "batch norm's tangent": ("rotation, batch norm", ranks._Summed, "jvp", staticmethod(_own_tangent)),
    "batch norm's gradient": ("rotation, batch norm", ranks._Summed, "backward", staticmethod(_own_gradient)),
    "the others' embeddings": ("contrast, group norm", ranks._Summed, "backward", staticmethod(_own_gradient)),
    "places of the draws": ("rotation, group norm", augment, "drawn", lambda draw, k, generator, dim=0: draw(k)),
}


class Watched(Bdw):
    """Keeps what each step was told of its images."""

    def __init__(self, given):
        super().__init__(given, torch.float64)
        self.told = []

    def update(self, rows, signal, step):
        self.told.append(signal.clone())
        super().update(rows, signal, step)


def errors() -> dict[str, float]:
    """By case, and by what was broken in one: the largest relative error of three steps, on this rank."""
    found = {name: _error(name) for name in CASES}
    for name, (case, *place) in BROKEN.items():
        with mock.patch.object(*place):
            found[name] = _error(case)
    return found


def _error(case: str) -> float:
    options = {"momentum": 0.9, "meta_loss": "self-supervised", "target_batch": 9, "lr": 0.05, "batch": K}
    config = settings(**options | CASES[case])
    method = Watched(MethodInputs(N, config.belief, config.seed, CPU))
    setup, state = scene(config, method=method)
    with ranks.alone():
        expected = written_out(setup, state, config)
        statistics = by_one_process(config)
    synced(setup.network)
    synced(setup.bare)
    drawn(state)
    engine.train_epoch(setup, state, 1, parts())
    running = [x for name, x in setup.network.named_buffers() if "running" in name]
    got = [*method.told, *(x.detach() for x in state.theta.values()), *running]
    return max(float((x - y).norm() / y.norm()) for x, y in zip(got, [*expected, *statistics], strict=True))


def drawn(state):
    """The epoch's weights, in place."""
    state.method.begin_epoch(torch.arange(N), torch.zeros(N, dtype=torch.int64), 1)


def by_one_process(config):
    """The running statistics of batch norm after the same steps by torch's own layers."""
    setup, state = scene(config, method=Watched(MethodInputs(N, config.belief, config.seed, CPU)))
    drawn(state)
    engine.train_epoch(setup, state, 1, whole())
    return [x for name, x in setup.network.named_buffers() if "running" in name]


def whole():
    """The batches of an epoch, all pixels."""
    pixels = torch.randint(256, (N, 1, 9, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return [Pixels(rows, pixels[rows]) for rows in torch.arange(N).flip(0).split(K)]


def parts():
    """The same as this rank has them."""
    for batch in whole():
        part = ranks.part(len(batch.rows))
        yield Pixels(batch.rows, batch.pixels[part.own], (), part)


def written_out(setup, state, config):
    """h of every step and the last theta', by double backward over whole batches."""
    drawn(state)
    weights, module = state.method.weight.clone(), without_state(setup.network).train()
    theta, velocity, told = dict(state.theta), dict(state.velocity), []
    lr = config.train.lr
    for step, batch in enumerate(whole()):
        view = setup.pretext.view(batch.pixels, generator(config.seed, "view", 1, step))
        target = setup.meta_loss.batch(1, step)
        h, ahead = reference.meta_gradient(
            module,
            theta,
            velocity,
            weights[batch.rows],
            lambda net, view=view: setup.pretext.losses(net, view),
            lambda net, target=target: setup.meta_loss.loss(net, target),
            (lr, 0.9, config.train.weight_decay),
        )
        velocity = {name: (theta[name].detach() - ahead[name]) / lr for name in theta}
        theta = ahead
        told.append(h)
    return [*told, *theta.values()]
