"""The pretext tasks by name."""

from __future__ import annotations

from collections.abc import Callable

from curate.config.schema import NetworkConfig
from curate.data.augment import Augment
from curate.pretexts.base import Pretext
from curate.pretexts.reconstruction import Reconstruction
from curate.pretexts.rotation import Rotation

PRETEXTS: dict[str, Callable[[Augment, NetworkConfig], Pretext]] = {
    "rotation": lambda augment, network: Rotation(augment),
    "reconstruction": lambda augment, network: Reconstruction(augment, network.latent),
}
