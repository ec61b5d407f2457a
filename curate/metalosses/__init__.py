"""The meta-losses by name."""

from __future__ import annotations

from collections.abc import Callable

from curate.config.schema import MetaConfig
from curate.data.augment import Augment
from curate.metalosses.base import MetaLoss, TargetImages
from curate.metalosses.prototypical import Prototypical
from curate.metalosses.self_supervised import SelfSupervised
from curate.pretexts.base import Pretext

METALOSSES: dict[str, Callable[[TargetImages, MetaConfig, Augment, Pretext, int], MetaLoss]] = {
    "prototypical": lambda target, config, augment, pretext, seed: Prototypical(target, config, augment, seed),
    "self-supervised": lambda target, config, augment, pretext, seed: SelfSupervised(target, config, pretext, seed),
}
