"""The configuration of a run: frozen dataclasses, each for one part, checked once here.

Every field carries its help text; `curate.cli` makes one option of each, `run.json` holds them all, and both
names are the field's. A default of None means "by the pretext"; `resolve` fills it in.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from curate.errors import Misuse


def option(default: Any, text: str, choices: tuple[str, ...] = ()) -> Any:
    """A configuration field with its help text and, where it is one of a few words, those words."""
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True)
class ImageConfig:
    """How an image becomes the network's input."""

    size: int | None = option(None, "Side in pixels to which images are resized (shorter side, centre square).")
    crop: int | None = option(None, "Side in pixels of the random training crop and of the centre crop.")
    colour: str | None = option(None, "Colour mode.", ("rgb", "grey"))
    mirror: bool | None = option(None, "Mirror with probability 1/2 in training.")
    mean: tuple[float, ...] | None = option(None, "Mean per channel in [0, 1], comma separated (default: measured).")
    deviation: tuple[float, ...] | None = option(None, "Deviation per channel (default: measured on the store).")

    @property
    def channels(self) -> int:
        """3 for rgb, 1 for grey."""
        return 3 if self.colour == "rgb" else 1


@dataclass(frozen=True)
class NetworkConfig:
    """What is trained."""

    network: str | None = option(None, "Network.", ("resnet18", "resnet34", "resnet50", "small", "vae"))
    norm: str = option("batch", "Normalisation layers of the ResNets.", ("batch", "group"))
    width: int = option(16, "Channels of the small ResNet's first stage (then twice, four times as many).")
    hidden: int = option(100, "Hidden units of the VAE.")
    latent: int = option(1, "Latent units of the VAE.")


@dataclass(frozen=True)
class TrainConfig:
    """Plain SGD on the store."""

    epochs: int | None = option(None, "Passes over what is kept.")
    batch: int | None = option(None, "Store images a step (rotation: each in its four rotations).")
    lr: float | None = option(None, "Learning rate.")
    lr_drops: tuple[int, ...] | None = option(None, "Epochs after which the rate is divided by 10, comma separated.")
    momentum: float | None = option(None, "SGD momentum.")
    weight_decay: float | None = option(None, "Weight decay, added to the gradient.")


@dataclass(frozen=True)
class MetaConfig:
    """The target's loss, and the batches it is computed on."""

    meta_loss: str | None = option(None, "Loss on the target.", ("prototypical", "self-supervised"))
    ways: int = option(20, "Classes in an episode.")
    shots: int = option(5, "Support images a class.")
    queries: int | None = option(None, "Query images a class (default: as many as shots).")
    query: str = option("apart", "Score images apart from the support, or the support itself.", ("apart", "support"))
    target_batch: int = option(64, "Target images a step of the self-supervised meta-loss.")
    target_augment: str = option("same", "Augmentation of target images.", ("same", "none"))
    meta_updates_bn: bool = option(False, "Let the meta-forward move the running statistics (the authors' code).")


@dataclass(frozen=True)
class BeliefConfig:
    """How the meta-gradient moves the beliefs (METHOD.md)."""

    eta: float | None = option(None, "Meta learning rate (default: 10 for a raw signal, else 1).")
    eta_scale: str = option("history", "Unit of eta: divide the signal by its size.", ("raw", "history", "recent"))
    reference: str | None = option(None, "What an image's help is compared with.", ("none", "target", "batch"))
    meta_average: float = option(0.0, "Decay of a running mean of the meta-gradient over steps (0: off).")
    meta_momentum: float = option(0.0, "Momentum on (log a, log b).")
    expected_gradient: bool = option(False, "Use the mean of dw/dlog a in place of the draw's.")
    warmup: int = option(0, "Epochs without meta-pass and pruning at the start.")


@dataclass(frozen=True)
class PruneConfig:
    """When an image is dropped: CDF(lam; a, b) > rho."""

    lam: float = option(0.25, "Weight below which an image is no help.")
    rho: float = option(0.5, "Prune when more than this share of the belief lies below lam.")


@dataclass(frozen=True)
class OutputConfig:
    """What becomes of the shards."""

    undecodable: str = option("drop", "Images that do not decode: in the curated set or not.", ("drop", "keep"))
    shard_size: int | None = option(None, "Bytes of a curated shard (default: as the store's median).")
    rename: str = option("none", "Put the source shard's stem before each key.", ("none", "prefix"))


@dataclass(frozen=True)
class MachineConfig:
    """What changes how fast the same result comes, and where; no part of a run's identity."""

    device: str = option("auto", "Device: auto, cpu, cuda, cuda:1, ...")
    workers: int | None = option(None, "Processes that decode (default: one a core, at most 8).")
    precision: str = option("auto", "Arithmetic on CUDA.", ("auto", "float32", "tf32", "bf16"))
    cache_bytes: int | None = option(None, "Memory for decoded images (default: a quarter of what is free).")
    rewrite: str = option("auto", "Rewrite shards while running.", ("auto", "always", "end"))
    keep_generations: bool = option(False, "Keep superseded generations of shards.")


@dataclass(frozen=True)
class RunConfig:
    """The run itself. Everything it depends on is here. `resolve` returns one without None where a value is needed."""

    store: str
    target: str
    method: str = option("bdw", "Method.", ("bdw", "uniform"))
    pretext: str = option("rotation", "Task the store trains the network on.", ("rotation", "reconstruction"))
    seed: int = option(0, "Seed of everything random.")
    index: str | None = option(None, "Index of the store, where it is not in the store's folder.")
    image: str | None = option(None, "Extension of the image to use, where samples hold several.")
    images: ImageConfig = field(default_factory=ImageConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    meta: MetaConfig = field(default_factory=MetaConfig)
    belief: BeliefConfig = field(default_factory=BeliefConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)


GROUPS: dict[str, type] = {
    "images": ImageConfig,
    "network": NetworkConfig,
    "train": TrainConfig,
    "meta": MetaConfig,
    "belief": BeliefConfig,
    "prune": PruneConfig,
    "output": OutputConfig,
    "machine": MachineConfig,
}

#: Paper mode (METHOD.md): the paper's constants, and every option of ours off.
PAPER: dict[str, Any] = {
    "eta": 10.0,
    "eta_scale": "raw",
    "reference": "none",
    "meta_average": 0.0,
    "meta_momentum": 0.0,
    "expected_gradient": False,
    "warmup": 0,
    "lam": 0.25,
    "rho": 0.5,
}

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


def from_options(options: dict[str, Any]) -> RunConfig:
    """Build a configuration from flat options (field name -> value); names not given keep their defaults.

    Raises:
        Misuse: an unknown name, and the known ones; or a value of the wrong type.
    """
    places = {f.name: group for group, kind in GROUPS.items() for f in fields(kind)}
    top = {f.name for f in fields(RunConfig)} - set(GROUPS)
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    rest: dict[str, Any] = {}
    for name, value in options.items():
        if name in places:
            groups[places[name]][name] = _typed(name, value, GROUPS[places[name]])
        elif name in top:
            rest[name] = _typed(name, value, RunConfig)
        else:
            raise Misuse(f"{name}: not an option of a run; known: {', '.join(sorted(places | dict.fromkeys(top)))}")
    # Only a method that learns nothing can do without a target.
    for name in ("store",) if rest.get("method") == "uniform" else ("store", "target"):
        if not rest.get(name):
            raise Misuse(f"--{name} is missing: name the {name}'s shards")
    return RunConfig(**{"target": "", **rest}, **{group: kind(**groups[group]) for group, kind in GROUPS.items()})


def to_options(config: RunConfig) -> dict[str, Any]:
    """The flat options that `from_options` turns back into ``config``."""
    flat = dataclasses.asdict(config)
    for group in GROUPS:
        flat.update(flat.pop(group))
    return flat


def read_options(path: Path) -> dict[str, Any]:
    """Flat options from a TOML or JSON file, by suffix; a run.json gives the run's own.

    Groups may be written as tables or left out.

    Raises:
        Misuse: the file is missing, is neither, or does not parse.
    """
    try:
        data = path.read_bytes()
        found = tomllib.loads(data.decode()) if path.suffix == ".toml" else json.loads(data)
    except FileNotFoundError as error:
        raise Misuse(f"{path}: no such file; give a .toml or .json file to --config") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise Misuse(f"{path}: does not parse as {path.suffix or 'JSON'} ({error})") from error
    if not isinstance(found, dict):
        raise Misuse(f"{path}: expected a table of options, found {type(found).__name__}")
    found = dict(found.get("configuration", found))
    for group in GROUPS:
        # "network" names a group and an option: only a table is the group.
        if isinstance(found.get(group), dict):
            found.update(found.pop(group))
    return found


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
        ("width", config.network.width, config.network.width >= 1, "at least 1"),
        ("hidden", config.network.hidden, config.network.hidden >= 1, "at least 1"),
        ("latent", config.network.latent, config.network.latent >= 1, "at least 1"),
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
    for name, low in (("epochs", 1), ("batch", 2)):
        rows.append((name, getattr(train, name), getattr(train, name) >= low, f"at least {low}"))
    for name, value in (("lr", train.lr), ("eta", belief.eta)):
        rows.append((name, value, 0 < value < float("inf"), "positive"))  # type: ignore[operator]
    for name in ("momentum", "weight_decay"):
        rows.append((name, getattr(train, name), 0 <= getattr(train, name) < 1, "in [0, 1)"))
    for name in ("mean", "deviation"):
        value = getattr(images, name)
        # The deviation is divided by.
        least, interval = (0.0, "[0, 1]") if name == "mean" else (1e-6, "[1e-6, 1]")
        fits = value is None or (len(value) == images.channels and all(least <= x <= 1 for x in value))
        rows.append((name, value, fits, f"{images.channels} numbers in {interval}, comma separated"))
    return rows


def _typed(name: str, value: Any, kind: type) -> Any:
    """``value`` as its field holds it: a list as a tuple, a whole number as a float where one is meant."""
    hint = get_type_hints(kind)[name]
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    many = isinstance(value, list | tuple)
    if many:
        kinds = tuple(get_args(each)[0] for each in kinds if get_origin(each) is tuple)
    held = [float(x) if float in kinds and type(x) is int else x for x in (value if many else [value])]
    if not kinds or any(type(x) not in kinds for x in held):
        raise Misuse(f"--{name.replace('_', '-')} {value!r}: expected {kind.__annotations__[name]}")
    return tuple(held) if many else held[0]


def _fill(group: Any, defaults: dict[str, Any]) -> Any:
    return replace(group, **{name: value for name, value in defaults.items() if getattr(group, name) is None})


def _paper_drops(epochs: int | None) -> tuple[int, ...]:
    """The paper drops the rate after 15 and 25 of 35 epochs; other lengths keep these shares."""
    assert epochs is not None
    return tuple(sorted({round(epochs * 15 / 35), round(epochs * 25 / 35)} - {0, epochs}))
