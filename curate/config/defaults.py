"""The defaults that depend on pretext, method or target, and what a configuration may not be."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from curate.config.schema import GROUPS, PAPER, TARGETLESS, NeighbourConfig, RunConfig
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
#: Of the paper's DW neither eta nor its unit is published; these work on its VAE (METHOD.md).
_BY_METHOD: dict[str, dict[str, Any]] = {"dw": {"eta_scale": "recent", "eta": 0.1, "reference": "none", "lam": 0.0}}

_RULE = {name: PAPER[name] for name in ("lam", "rho")}
#: The signal as the paper has it, with every option off, and no rate.
_SIGNAL = {name: value for name, value in PAPER.items() if name not in _RULE} | {"eta": None}
_NEIGHBOURS = {item.name: item.default for item in fields(NeighbourConfig)}
#: Options that say nothing to a method: the one value each may have, and why.
_IDLE: dict[str, tuple[tuple[dict[str, Any], str], ...]] = {
    "bdw": ((_NEIGHBOURS, "only nn measures distances"),),
    "dw": (
        ({"meta_momentum": 0.0}, "the paper's DW has none"),
        ({"expected_gradient": False}, "a point weight has no distribution to take a mean of"),
        ({"rho": 0.5}, "a point weight lies above lam or not, no share of it does"),
        ({"warmup": 0}, "its weights start at 0, so a warm-up would train nothing"),
        (_NEIGHBOURS, "only nn measures distances"),
    ),
    "l2rw": (
        (
            {k: v for k, v in _SIGNAL.items() if k not in ("meta_average", "warmup")},
            "its weights sum to 1 over a batch",
        ),
        ({"warmup": 0}, "its weights are 0 before the first signal, so a warm-up would train nothing"),
        (_RULE, "it prunes nothing"),
        (_NEIGHBOURS, "only nn measures distances"),
    ),
    "nn": (
        (_SIGNAL, "its weights are settled before the first epoch"),
        (_RULE, "it prunes nothing; `curate prune --keep` takes a budget afterwards"),
    ),
    "oracle": (
        (_SIGNAL, "its weights are settled before the first epoch"),
        (_RULE, "it drops other domains before the first epoch, and nothing later"),
        (_NEIGHBOURS, "only nn measures distances"),
    ),
    "uniform": (
        (_SIGNAL, "its weights are all 1"),
        (_RULE, "it prunes nothing"),
        (_NEIGHBOURS, "only nn measures distances"),
    ),
}


def idle(method: str) -> dict[str, tuple[Any, str]]:
    """The options that say nothing to a method, each with the only value it may have and the reason.

    >>> idle("dw")["meta_momentum"]
    (0.0, "the paper's DW has none")
    """
    return {name: (value, reason) for options, reason in _IDLE.get(method, ()) for name, value in options.items()}


def applicable(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """``options`` without those that say nothing to a method: what one set of options means for each of several."""
    return {name: value for name, value in options.items() if name not in idle(method)}


def paper(method: str) -> dict[str, Any]:
    """Paper mode of a method: `PAPER`, with what the paper leaves open for dw as everywhere here."""
    return applicable(method, PAPER | _BY_METHOD.get(method, {}))


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
    for name, known in (("pretext", _BY_PRETEXT), ("method", _IDLE)):
        if getattr(config, name) not in known:
            raise Misuse(f"--{name} {getattr(config, name)}: unknown; known: {', '.join(known)}")
    _refuse_idle(config)
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
    config = _fill_belief(config)
    check(config, labelled)
    return config


def _fill_belief(config: RunConfig) -> RunConfig:
    """The defaults of how weights move and who is dropped, by method; what says nothing to it at its only value."""
    fixed = {name: value for name, (value, _) in idle(config.method).items()}
    own = {"lam": 0.25, "eta_scale": "history", "eta": 1.0} | _BY_METHOD.get(config.method, {}) | fixed
    own.setdefault("reference", "target" if config.meta.meta_loss == "self-supervised" else "none")
    if config.belief.eta_scale == "raw" and "eta" not in fixed:
        own["eta"] = 10.0
    belief = _fill(config.belief, {name: own[name] for name in ("eta_scale", "eta", "reference")})
    return replace(config, belief=belief, prune=_fill(config.prune, {"lam": own["lam"]}))


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
    for meant, refusal in _combinations(config, labelled):
        if not meant:
            raise Misuse(refusal)


def _combinations(config: RunConfig, labelled: bool) -> list[tuple[bool, str]]:
    """Whether each combination can be meant, and what to say where it can't."""
    network, meta_loss, method, near = config.network.network, config.meta.meta_loss, config.method, config.neighbours
    vae, rebuilds, features = network == "vae", config.pretext == "reconstruction", near.nn_space == "features"
    return [
        (rebuilds or not vae, "--network vae is for --pretext reconstruction; rotation needs a ResNet"),
        (vae or not rebuilds, f"--pretext reconstruction trains the VAE, not {network}; give --network vae"),
        (
            labelled or meta_loss != "prototypical",
            "--meta-loss prototypical needs labels (.cls members) in the target; give self-supervised",
        ),
        (
            config.belief.reference != "target" or meta_loss == "self-supervised",
            "--reference target needs --meta-loss self-supervised: the two losses are compared",
        ),
        (bool(config.target) or method in TARGETLESS, f"--method {method} needs a --target to weigh images by"),
        (
            bool(config.domain) or method != "oracle",
            "--method oracle needs --domain: the target's own, as domains.parquet beside the shards names it",
        ),
        (bool(near.nn_features) or not features, "--nn-space features needs --nn-features: the network's weights"),
        (features or not near.nn_features, "--nn-features is for --nn-space features; pixels need no network"),
        (features or near.nn_tap == "pool", "--nn-tap is for --nn-space features; pixels need no network"),
    ]


def _refuse_idle(config: RunConfig) -> None:
    """Refuse a value that would do nothing; the one that is no choice, and the default, pass."""
    given = {name: value for group in GROUPS for name, value in vars(getattr(config, group)).items()}
    for name, (value, reason) in idle(config.method).items():
        if given[name] is not None and given[name] != value:
            option = name.replace("_", "-")
            raise Misuse(f"--{option} {given[name]}: says nothing to --method {config.method}: {reason}; leave it out")


def _ranges(config: RunConfig) -> list[tuple[str, Any, bool, str]]:
    images, train, meta, belief, prune = config.images, config.train, config.meta, config.belief, config.prune
    assert images.size is not None
    assert images.crop is not None
    assert None not in (train.epochs, train.batch, train.lr, train.momentum, train.weight_decay)
    assert prune.lam is not None
    # A weight of 0 is dropped by a lam of 0; no belief has any mass below it.
    some, rule = (prune.lam >= 0, "in [0, 1)") if config.method == "dw" else (prune.lam > 0, "between 0 and 1")
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
        ("lam", prune.lam, some and prune.lam < 1, rule),
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
    for name, rate in (("lr", train.lr), ("eta", belief.eta), ("nn_beta", config.neighbours.nn_beta)):
        # Beyond float32 a rate is infinity, and 0 times it no number.
        rows.append((name, rate, rate is None or 0 < rate <= 1e30, "positive, at most 1e30"))
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
