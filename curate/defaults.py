"""The defaults that depend on the pretext or the target, and what a configuration may not be."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from curate.config import GROUPS, RunConfig
from curate.errors import Misuse

_BY_PRETEXT: dict[str, dict[str, dict[str, Any]]] = {
    "rotation": {
        "images": {"size": 72, "crop": 64, "colour": "rgb", "mirror": True},
        "train": {"epochs": 35, "batch": 64, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
    },
    "reconstruction": {
        "images": {"size": 28, "crop": 28, "colour": "grey", "mirror": False},
        "network": {"network": "vae"},
        "train": {"epochs": 100, "batch": 64, "lr": 1e-4, "momentum": 0.0, "weight_decay": 0.0, "lr_drops": ()},
    },
}


def by_pretext(name: str) -> dict[str, Any]:
    """The default of an option for each pretext that has one of its own.

    >>> by_pretext("size")
    {'rotation': 72, 'reconstruction': 28}
    """
    found = {
        pretext: {k: v for group in groups.values() for k, v in group.items()}
        for pretext, groups in _BY_PRETEXT.items()
    }
    return {pretext: options[name] for pretext, options in found.items() if name in options}


def resolve(config: RunConfig, labelled: bool) -> RunConfig:
    """Fill in every default that depends on the pretext or the target, and check the whole.

    Args:
        config: as given by the user.
        labelled: whether the target's images have labels.

    Raises:
        Misuse: a value out of its range or two that exclude each other, with what to do.
    """
    if config.pretext not in _BY_PRETEXT:
        raise Misuse(f"--pretext {config.pretext}: unknown; known: {', '.join(_BY_PRETEXT)}")
    for group, defaults in _BY_PRETEXT[config.pretext].items():
        config = replace(config, **{group: _fill(getattr(config, group), defaults)})
    if config.pretext == "reconstruction":
        half = (0.5,) * config.images.channels  # pixels in [-1, 1], as the VAE's tanh draws them
        config = replace(config, images=_fill(config.images, {"mean": half, "deviation": half}))
    assert config.images.crop is not None
    net = "small" if config.images.crop <= 32 else "resnet18"
    meta_loss = "prototypical" if labelled else "self-supervised"
    config = replace(
        config,
        network=_fill(config.network, {"network": net}),
        meta=_fill(config.meta, {"meta_loss": meta_loss, "queries": config.meta.shots}),
        train=_fill(config.train, {"lr_drops": _paper_drops(config.train.epochs)}),
    )
    reference = "target" if config.meta.meta_loss == "self-supervised" else "none"
    eta = 10.0 if config.belief.eta_scale == "raw" else 1.0
    config = replace(config, belief=_fill(config.belief, {"reference": reference, "eta": eta}))
    check(config, labelled)
    return config


def check(config: RunConfig, labelled: bool) -> None:
    """Refuse what cannot be meant.

    Raises:
        Misuse: one line that names the option, its value and what to do.
    """
    for group in (config, *(getattr(config, name) for name in GROUPS)):
        for item in fields(group):
            choices, value = item.metadata.get("choices"), getattr(group, item.name)
            if choices and value is not None and value not in choices:
                raise Misuse(f"--{item.name.replace('_', '-')} {value}: unknown; known: {', '.join(choices)}")
    for name, value, holds, rule in _ranges(config):
        if not holds:
            raise Misuse(f"--{name.replace('_', '-')} {value}: must be {rule}")
    if config.network.network == "vae" and config.pretext != "reconstruction":
        raise Misuse("--network vae is for --pretext reconstruction; rotation needs a ResNet")
    if config.network.network != "vae" and config.pretext == "reconstruction":
        raise Misuse(f"--pretext reconstruction trains the VAE, not {config.network.network}; give --network vae")
    if config.meta.meta_loss == "prototypical" and not labelled:
        raise Misuse("--meta-loss prototypical needs labels (.cls members) in the target; give self-supervised")
    if config.belief.reference == "target" and config.meta.meta_loss != "self-supervised":
        raise Misuse("--reference target needs --meta-loss self-supervised: the two losses are compared")


def _ranges(config: RunConfig) -> list[tuple[str, Any, bool, str]]:
    images, train, meta, belief, prune = config.images, config.train, config.meta, config.belief, config.prune
    assert images.size is not None
    assert images.crop is not None
    assert None not in (train.epochs, train.batch, train.lr, train.momentum, train.weight_decay, belief.eta)
    rows: list[tuple[str, Any, bool, str]] = [
        ("size", images.size, 4 <= images.size <= 4096, "in 4..4096"),
        ("crop", images.crop, 4 <= images.crop <= images.size, f"in 4..size ({images.size})"),
        ("ways", meta.ways, meta.ways >= 2, "at least 2"),
        ("shots", meta.shots, meta.shots >= 1, "at least 1"),
        ("queries", meta.queries, (meta.queries or 0) >= 1, "at least 1"),
        ("target_batch", meta.target_batch, meta.target_batch >= 2, "at least 2"),
        ("meta_average", belief.meta_average, 0 <= belief.meta_average < 1, "in [0, 1)"),
        ("meta_momentum", belief.meta_momentum, 0 <= belief.meta_momentum < 1, "in [0, 1)"),
        ("warmup", belief.warmup, belief.warmup >= 0, "at least 0"),
        ("lam", prune.lam, 0 < prune.lam < 1, "between 0 and 1"),
        ("rho", prune.rho, 0 < prune.rho < 1, "between 0 and 1"),
        ("seed", config.seed, 0 <= config.seed < 2**63, "in 0..2^63-1"),
    ]
    # Visits are counted in 16 bits.
    for name, low, high in (("epochs", 1, 32767), ("batch", 2, 2**20)):
        rows.append((name, getattr(train, name), low <= getattr(train, name) <= high, f"in {low}..{high}"))
    for name in ("width", "hidden", "latent"):
        count = getattr(config.network, name)
        rows.append((name, count, 1 <= count <= 2**16, f"in 1..{2**16}"))
    for name, value, low, high in (
        ("shard_size", config.output.shard_size, 1, 2**60),
        ("workers", config.machine.workers, 0, 1024),
        ("cache_bytes", config.machine.cache_bytes, 0, 2**60),
    ):
        rows.append((name, value, value is None or low <= value <= high, f"in {low}..{high}"))
    for name, rate in (("lr", train.lr), ("eta", belief.eta)):
        # Beyond float32 a rate is infinity, and 0 times it no number.
        rows.append((name, rate, rate is not None and 0 < rate <= 1e30, "positive, at most 1e30"))
    drops = train.lr_drops
    rows.append(("lr_drops", drops, all(1 <= drop <= 32767 for drop in drops or ()), "epochs from 1 on"))
    for name in ("momentum", "weight_decay"):
        rows.append((name, getattr(train, name), 0 <= getattr(train, name) < 1, "in [0, 1)"))
    for name in ("mean", "deviation"):
        value = getattr(images, name)
        # The deviation is divided by.
        least, interval = (0.0, "[0, 1]") if name == "mean" else (1e-6, "[1e-6, 1]")
        fits = value is None or (len(value) == images.channels and all(least <= x <= 1 for x in value))
        rows.append((name, value, fits, f"{images.channels} numbers in {interval}, comma separated"))
    return rows


def _fill(group: Any, defaults: dict[str, Any]) -> Any:
    return replace(group, **{name: value for name, value in defaults.items() if getattr(group, name) is None})


def _paper_drops(epochs: int | None) -> tuple[int, ...]:
    """The paper drops the rate after 15 and 25 of 35 epochs; other lengths keep these shares."""
    assert epochs is not None
    return tuple(sorted({round(epochs * 15 / 35), round(epochs * 25 / 35)} - {0, epochs}))
