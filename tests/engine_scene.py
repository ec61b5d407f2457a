"""The engine on a small network and random images: what its tests work on. Functions only."""

from __future__ import annotations

import torch

from curate.config.defaults import applicable, resolve
from curate.config.schema import from_options
from curate.data.augment import Augment
from curate.data.decode import Pixels
from curate.metalosses import META_LOSSES
from curate.metalosses.base import TargetImages
from curate.methods.base import MethodInputs
from curate.methods.bdw import Bdw
from curate.models.networks import build
from curate.pretexts import PRETEXTS
from curate.rng import generator
from curate.training import engine

CPU = torch.device("cpu")
#: Rows of the store, and of a batch: two whole batches and a short one.
N, K = 15, 6
STATISTICS = {"mean": (0.5,), "deviation": (0.25,)}
OPTIONS = {
    "size": 9,
    "crop": 8,
    "colour": "grey",
    "width": 4,
    "batch": K,
    "lr": 0.05,
    "lr_drops": (1,),
    "weight_decay": 1e-3,
    "ways": 3,
    "shots": 2,
    "target_batch": 5,
    "eta_scale": "raw",
    "eta": 20.0,
    "reference": "none",
}


def settings(**changes):
    given = {"store": "s", "target": "t", **STATISTICS, **applicable(changes.get("method", "bdw"), OPTIONS), **changes}
    return resolve(from_options(given), labelled=True)


class Wide:
    """A pretext or a meta-loss whose batches are float64, so that sums can be compared to 1e-10."""

    def __init__(self, part):
        self.part = part
        self.couples = getattr(part, "couples", None)

    def view(self, pixels, generator):
        return cast(self.part.view(pixels, generator))

    def batch(self, epoch, step):
        return cast(self.part.batch(epoch, step))

    def losses(self, network, view=None, batch=None):
        return self.part.losses(network, batch if view is None else view)

    def loss(self, network, batch):
        return self.part.loss(network, batch)


def cast(batch):
    if isinstance(batch, torch.Tensor):
        return batch.double() if batch.is_floating_point() else batch
    return type(batch)(*(cast(part) for part in batch)) if isinstance(batch, tuple) else batch


def scene(config, dtype=torch.float64, method=None):
    """The engine's setup and state in ``dtype``, with the target's 20 random images."""
    augment = Augment.of(config.images)
    pretext = PRETEXTS[config.pretext](augment, config.network)
    target = TargetImages(pixels(20, 1), torch.arange(20) % 4)
    meta = META_LOSSES[config.meta.meta_loss](target, config.meta, augment, pretext, config.seed)
    if dtype == torch.float64:
        pretext, meta = Wide(pretext), Wide(meta)
    network = build(config.network, config.images, generator(config.seed, "network")).to(dtype)
    method = method or Bdw(MethodInputs(N, config.belief, config.seed, CPU), dtype)
    setup = engine.Setup(config, network, pretext, meta if method.learns else None, CPU)
    return setup, engine.begin(setup, method)


def pixels(k=N, seed=0):
    return torch.randint(256, (k, 1, 9, 9), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def batches(size=K, n=N):
    """An epoch over n rows, some of them in another order; the last batch is short."""
    rows = torch.arange(n).flip(0)
    return [Pixels(part, pixels()[part]) for part in rows.split(size)]


def begun(state, epoch=1, step=0):
    """The epoch's draw for all rows."""
    visit = torch.empty(N, dtype=torch.int64)
    visit[torch.arange(N).flip(0)] = step + torch.arange(N) // K
    state.method.begin_epoch(torch.arange(N), visit, epoch)
    return state
