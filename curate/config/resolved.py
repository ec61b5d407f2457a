"""The types of `curate.config.schema` with every default filled in: no None where a value is needed.

None stays where it means something: "by the machine" (workers, cache_bytes), "as the store" (shard_size, index, image),
"not asked for" (domain, nn_features), and eta for a method that has no rate. `curate.config.defaults.resolve` makes
one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from curate.config.schema import (
    BeliefConfig,
    ImageConfig,
    MetaConfig,
    NetworkConfig,
    PruneConfig,
    RunConfig,
    TrainConfig,
)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ResolvedImages(ImageConfig):
    """`ImageConfig` with every default filled in; mean and deviation are None until they are measured on the store."""

    size: int
    crop: int
    colour: str
    mirror: bool


@dataclass(frozen=True, kw_only=True)
class MeasuredImages(ResolvedImages):
    """`ResolvedImages` whose mean and deviation are known: one number a channel, in [0, 1]."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ResolvedNetwork(NetworkConfig):
    """`NetworkConfig` with the network's name filled in."""

    network: str


@dataclass(frozen=True, kw_only=True)
class ResolvedTrain(TrainConfig):
    """`TrainConfig` with every default filled in."""

    epochs: int
    batch: int
    lr: float
    lr_drops: tuple[int, ...]
    momentum: float
    weight_decay: float


@dataclass(frozen=True, kw_only=True)
class ResolvedMeta(MetaConfig):
    """`MetaConfig` with every default filled in."""

    meta_loss: str
    queries: int


@dataclass(frozen=True, kw_only=True)
class ResolvedBelief(BeliefConfig):
    """`BeliefConfig` with every default filled in; eta is None for a method that has no rate."""

    eta_scale: str
    reference: str
    contrast: str
    meta_average: float
    warmup: int
    prior: str


@dataclass(frozen=True, kw_only=True)
class ResolvedPrune(PruneConfig):
    """`PruneConfig` with both thresholds filled in."""

    lam: float


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig(RunConfig):
    """All that a run depends on, before anything is measured on the store."""

    images: ResolvedImages
    network: ResolvedNetwork
    train: ResolvedTrain
    meta: ResolvedMeta
    belief: ResolvedBelief
    prune: ResolvedPrune


@dataclass(frozen=True, kw_only=True)
class ReadyConfig(ResolvedConfig):
    """All that a run depends on, the statistics of the store's pixels included: what run.json holds."""

    images: MeasuredImages


_GROUPS: dict[str, type[Any]] = {
    "images": ResolvedImages,
    "network": ResolvedNetwork,
    "train": ResolvedTrain,
    "meta": ResolvedMeta,
    "belief": ResolvedBelief,
    "prune": ResolvedPrune,
}


def settled(config: RunConfig) -> ResolvedConfig:
    """``config`` in the types that have no None; every default must be filled in."""
    groups = {group: _as(kind, getattr(config, group)) for group, kind in _GROUPS.items()}
    return _as(ResolvedConfig, replace(config, **groups))


def unsettled(config: RunConfig) -> list[str]:
    """The options that no default has filled in, though a run needs them."""
    return [
        name
        for group, kind in _GROUPS.items()
        for name in kind.__annotations__
        if getattr(getattr(config, group), name) is None
    ]


def ready(config: ResolvedConfig, mean: tuple[float, ...], deviation: tuple[float, ...]) -> ReadyConfig:
    """``config`` with the statistics of the pixels: one number a channel, in [0, 1]."""
    measured = _as(MeasuredImages, replace(config.images, mean=mean, deviation=deviation))
    return _as(ReadyConfig, replace(config, images=measured))


def _as(kind: type[T], config: Any) -> T:
    """The same values in a narrower type."""
    return kind(**{item.name: getattr(config, item.name) for item in fields(config)})
