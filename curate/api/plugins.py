"""Names that others add: methods, pretexts, losses, networks, packers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from curate.config.catalogue import (
    META_LOSSES,
    METHODS,
    NETWORKS,
    PRETEXTS,
    MetaLossSpec,
    MethodSpec,
    NetworkSpec,
    PretextSpec,
)
from curate.config.packers import PACKERS, PackerSpec


def register_method(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a way to weigh images, under a name that ``method`` takes from then on.

    Args:
        factory: called with `curate.methods.base.MethodInputs`, gives a `curate.methods.base.Method`; or where to
            import it from, ``module:Class``.
        spec: what else `MethodSpec` says: ``needs_target``, ``inputs``, ``defaults``, ``inapplicable``.

    Raises:
        Misuse: the name is taken.

    >>> register_method("half", lambda inputs: ..., needs_target=False)        # doctest: +SKIP
    """
    METHODS.register(name, MethodSpec(factory, **spec))


def register_pretext(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a pretext task, under a name that ``pretext`` takes from then on.

    Args:
        factory: called with (`Augment`, `NetworkConfig`), gives a `curate.pretexts.base.Pretext`.
        spec: what else `PretextSpec` says: ``defaults`` of options, ``outputs`` of the head, ``network``,
            ``statistics``.
    """
    PRETEXTS.register(name, PretextSpec(factory, **spec))


def register_meta_loss(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a loss on the target.

    Args:
        factory: called with (target images, `MetaConfig`, `Augment`, `Pretext`, seed), gives a
            `curate.metalosses.base.MetaLoss`.
        spec: what else `MetaLossSpec` says: ``needs_labels``, ``is_pretext``.
    """
    META_LOSSES.register(name, MetaLossSpec(factory, **spec))


def register_network(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a network, under a name that ``network`` takes from then on.

    Args:
        factory: called with (`NetworkConfig`, `ImageConfig`, outputs of the head), gives a
            `curate.models.networks.TappedNetwork`.
        spec: what else `NetworkSpec` says: ``title``, ``pretext``.
    """
    NETWORKS.register(name, NetworkSpec(factory, **{"title": name, **spec}))


def register_packer(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a packer, under a name that `pack` and ``curate pack`` take from then on.

    Args:
        factory: called with the path of the source, ``out``, ``seed``, and what options were given; gives a
            `curate.config.packers.PackReport`.
        spec: what else `PackerSpec` says: ``title`` and ``layout``, at least; ``makes``, ``options``.
    """
    PACKERS.register(name, PackerSpec(factory, **spec))
