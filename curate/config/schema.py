"""The configuration of a run: frozen dataclasses, each for one part, and the flat options they are made of.

Every field carries its help text; `curate.cli` makes one option of each, `run.json` holds them all, and both
names are the field's. A default of None means "by pretext, method or target"; `curate.config.defaults` fills it in and
checks the whole.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from curate.config.catalogue import (
    ALL_METHODS,
    META_LOSSES,
    NETWORKS,
    PAPER_PRIOR,
    PAPER_RULE,
    PAPER_SHARE,
    PAPER_SIGNAL,
    PRETEXTS,
    SIGNALS,
    method_spec,
)
from curate.errors import Misuse, nearest
from shards.io.json_files import parse_json, version_in
from shards.io.regular_files import read_regular

#: Format and version of run.json.
RUN_FORMAT, RUN_VERSION = "run", 1


def option(
    default: Any,
    text: str,
    choices: Collection[str] = (),
    *,
    otherwise: str = "",
    later: bool = False,
    before: Any = None,
    spelled: str | None = None,
) -> Any:
    """A configuration field.

    Args:
        default: None where it depends on other options, or on the machine.
        text: its help.
        choices: the words it may be, where it is one of a few.
        otherwise: what holds, in words, where the default is None and the pretext has none either.
        later: it was added after runs had been made without it: at its default it is no part of a run's id. Such an
            option needs a default that every earlier run resolves to, or ``before``.
        before: what every run had that was made without it, where its default is another.
        spelled: what the command line calls it, where Python keeps that word for itself.
    """
    metadata = {"help": text, "choices": choices, "otherwise": otherwise, "later": later, "spelled": spelled}
    return field(default=default, metadata=metadata if before is None else metadata | {"before": before})


@dataclass(frozen=True)
class ImageConfig:
    """How an image becomes the network's input."""

    size: int | None = option(None, "Side in pixels to which images are resized (shorter side, centre square).")
    crop: int | None = option(None, "Side in pixels of the random training crop and of the centre crop.")
    colour: str | None = option(None, "Colour mode.", ("rgb", "grey"))
    mirror: bool | None = option(None, "Mirror with probability 1/2 in training.")
    decoder: str = option(
        "pil",
        "What decodes JPEG; simplejpeg is faster, and decodes at 1/2 or 1/4 where that is enough: other pixels.",
        ("pil", "simplejpeg"),
        later=True,
    )
    augment_strength: str | None = option(
        None,
        "How much two views of an image differ in scale and tone (pretext simclr).",
        ("mild", "strong"),
        later=True,
    )
    mean: tuple[float, ...] | None = option(
        None, "Mean per channel in [0, 1], comma separated.", otherwise="measured on the store; reconstruction 0.5"
    )
    deviation: tuple[float, ...] | None = option(
        None, "Deviation per channel.", otherwise="measured on the store; reconstruction 0.5"
    )

    @property
    def channels(self) -> int:
        """3 for rgb, 1 for grey."""
        return 3 if self.colour == "rgb" else 1


@dataclass(frozen=True)
class NetworkConfig:
    """What is trained."""

    network: str | None = option(
        None, "Network.", NETWORKS, otherwise="small where --crop is at most 32, resnet18 where it is more"
    )
    norm: str = option("batch", "Normalisation layers of the ResNets.", ("batch", "group"))
    sync_bn: bool = option(
        True, "Batch norm over the images of all --devices, as one would have it, or of each by itself.", later=True
    )
    width: int = option(16, "Channels of the small ResNet's first stage (then twice, four times as many).")
    hidden: int = option(100, "Hidden units of the VAE.")
    latent: int = option(1, "Latent units of the VAE.")
    stem_stride: int = option(1, "Stride of the small ResNet's first convolution.", later=True)
    projection: int | None = option(None, "Numbers that a view is projected to (pretext simclr).", later=True)
    temperature: float | None = option(
        None, "By which similarities of two views are divided (pretext simclr).", later=True
    )


@dataclass(frozen=True)
class TrainConfig:
    """Plain SGD on the store."""

    epochs: int | None = option(None, "Passes over what is kept.")
    batch: int | None = option(None, "Store images a step (rotation: each in four rotations; simclr: in two views).")
    lr: float | None = option(None, "Learning rate.")
    lr_drops: tuple[int, ...] | None = option(
        None,
        "Epochs (with --schedule step: steps) after which the rate is divided by 10, comma separated.",
        otherwise="3/7 and 5/7 of them",
    )
    schedule: str = option(
        "epoch",
        "The rate drops after epochs, after steps, or falls as a cosine.",
        ("epoch", "step", "cosine"),
        later=True,
    )
    #: Steps of the whole training, filled in where the rate follows them.
    steps: int | None = field(default=None, metadata={"later": True})
    momentum: float | None = option(None, "SGD momentum.")
    weight_decay: float | None = option(None, "Weight decay, added to the gradient.")


@dataclass(frozen=True)
class MetaConfig:
    """The target's loss, and the batches it is computed on."""

    meta_loss: str | None = option(
        None,
        "Loss on the target.",
        META_LOSSES,
        otherwise="self-supervised; --paper: prototypical where the target has labels",
    )
    ways: int = option(20, "Classes in an episode.")
    shots: int = option(5, "Support images a class.")
    queries: int | None = option(None, "Query images a class.", otherwise="as many as shots")
    query: str = option("apart", "Score images apart from the support, or the support itself.", ("apart", "support"))
    target_batch: int = option(64, "Target images a step of the self-supervised meta-loss.")
    target_augment: str = option("same", "Augmentation of target images.", ("same", "none"))
    meta_updates_bn: bool = option(False, "Let the meta-forward move the running statistics (the authors' code).")


@dataclass(frozen=True)
class BeliefConfig:
    """How the meta-gradient moves the beliefs (docs/method.md)."""

    signal: str = option("exact", "What says how much an image helps.", SIGNALS, later=True)

    eta: float | None = option(None, "Meta learning rate.", otherwise="10 for a raw signal, else 1; dw 0.1")
    eta_scale: str | None = option(
        None,
        "Unit of eta: divide the signal by its size.",
        ("raw", "history", "recent"),
        otherwise="history; dw recent",
    )
    reference: str | None = option(
        None,
        "What an image's help is compared with.",
        ("none", "target", "batch", "quantile"),
        otherwise="target where the meta-loss is self-supervised, else none",
    )
    contrast: str | None = option(
        None,
        "Ask for help to the target alone, or to it more than to the store.",
        ("none", "store"),
        otherwise="by the signal",
        later=True,
        before="none",
    )
    meta_average: float | None = option(
        None, "Decay of a running mean of the meta-gradient over steps (0: off).", otherwise="by the signal, exact 0"
    )
    meta_every: int = option(1, "Steps from one target batch to the next.", later=True)
    meta_momentum: float = option(0.0, "Momentum on (log a, log b).")
    expected_gradient: bool = option(False, "Use the mean of dw/dlog a in place of the draw's.")
    warmup: int | None = option(
        None, "Epochs without meta-pass and pruning at the start.", otherwise="by the signal, exact 0"
    )
    prior: str | None = option(
        None,
        "What is believed before epoch 1: uniform, classifier, or a Parquet file or a run.",
        otherwise="uniform",
        later=True,
        before="uniform",
    )
    prior_strength: float = option(4.0, "a + b of a prior's Beta, where it is told by a mean.", later=True)
    share: str = option(
        "none",
        "Whose visits an image learns from besides its own: none, clusters:K, or neighbours:N, by features.",
        later=True,
    )
    returns: bool = option(
        False, "Let dropped images return where what look-alikes teach says so.", later=True, spelled="return"
    )
    #: Digest of what the file `prior` says of the store, filled in when it is read.
    prior_key: str = field(default="", metadata={"later": True})

    @property
    def rate(self) -> float:
        """eta, of a method that has one."""
        assert self.eta is not None
        return self.eta


@dataclass(frozen=True)
class PruneConfig:
    """When an image is dropped: CDF(lam; a, b) > rho; with a point weight, w <= lam."""

    lam: float | None = option(None, "Weight below which an image is no help.", otherwise="0.25; dw 0")
    rho: float = option(0.5, "Prune when more than this share of the belief lies below lam.")


@dataclass(frozen=True)
class NeighbourConfig:
    """How method nn measures how far an image is from the target."""

    nn_beta: float = option(1e-5, "Weight exp(-beta d) of an image at distance d from its nearest target image.")
    nn_distance: str = option("squared", "Which distance.", ("squared", "euclidean"))
    nn_space: str = option("pixels", "Distance of normalised pixels, or of features.", ("pixels", "features"))
    nn_features: str | None = option(
        None, "Weights of the network of the features: model.safetensors or torchvision's."
    )
    nn_tap: str = option("pool", "Stage whose output is the feature.")
    #: sha256 of the file `nn_features`, filled in when it is read.
    nn_weights: str | None = None


@dataclass(frozen=True)
class SelectionConfig:
    """What images are chosen by, without training."""

    encoder: str = option("untrained", "Features to go by; `curate features --help` lists them.", later=True)
    nets: int = option(3, "Networks of the untrained encoder, 1 to 3.", later=True)
    features: str = option("", "Folder that `curate features --out` wrote.", later=True)
    keep: float = option(0.0, "Keep so many images, or below 1 this share (0: by the selector's own rule).", later=True)
    #: Name and key of the encoder, filled in when it is opened.
    encoder_key: str = field(default="", metadata={"later": True})


@dataclass(frozen=True)
class OutputConfig:
    """What becomes of the shards."""

    undecodable: str = option("drop", "Images that do not decode: in the curated set or not.", ("drop", "keep"))
    shard_size: int | None = option(None, "Bytes of a curated shard.", otherwise="as the store's median")
    rename: str = option("none", "Put the source shard's stem before each key.", ("none", "prefix"))


#: The first is the second, but in paper mode; a run keeps what it began with, as another changes the last digits.
LAYOUTS = ("auto", "channels-last", "planes")


@dataclass(frozen=True)
class MachineConfig:
    """How fast the same result comes, and where. No part of a run's identity."""

    device: str = option("auto", "Device: auto, cpu, cuda or cuda:N.")
    devices: int = option(1, "Processes that train together, each on a device of its own, a part of every batch.")
    workers: int | None = option(None, "Processes that decode.", otherwise="one a core, at most 8")
    precision: str = option("auto", "Arithmetic on CUDA.", ("auto", "float32", "tf32", "bf16"))
    threads: int | None = option(None, "Threads that compute.", otherwise="the cores that are free")
    layout: str = option(
        "auto",
        "Order of images and feature maps in the CPU's memory: channels-last convolves faster (auto; --paper: planes).",
        LAYOUTS,
        before="planes",
    )
    cache_bytes: int | None = option(None, "Memory for decoded images.", otherwise="a quarter of what is free")
    rewrite: str = option("auto", "Rewrite shards while running.", ("auto", "always", "end"))
    checkpoint_every: str | int = option(
        "10min", "Save in the midst of an epoch after so many steps (500) or so much time (90s, 10min, 2h), or never."
    )
    #: Said anew at every call, and never taken from a file: see `to_options` and `read_options`.
    allow_pipe: bool = option(False, "Let the store, or a list of shards on this machine, name pipe:COMMAND; it runs.")
    keep_generations: bool = option(False, "Keep superseded generations of shards.")


@dataclass(frozen=True)
class RunConfig:
    """The run itself.

    Everything that it depends on; `curate.config.defaults.resolve` returns one without None where a value is needed.
    """

    store: str
    target: str
    method: str = option("bdw", "How images are weighed; the last ones train nothing.", ALL_METHODS)
    pretext: str = option("rotation", "Task the store trains the network on.", PRETEXTS)
    seed: int = option(0, "Seed of everything random.")
    domain: str | None = option(None, "The target's own domain in the store (method oracle; else for scoring only).")
    index: str | None = option(None, "Index of the store, where it is not in the store's folder.")
    image: str | None = option(None, "Extension of the image to use, where samples hold several.")
    images: ImageConfig = field(default_factory=ImageConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    meta: MetaConfig = field(default_factory=MetaConfig)
    belief: BeliefConfig = field(default_factory=BeliefConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)
    neighbours: NeighbourConfig = field(default_factory=NeighbourConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)


GROUPS: dict[str, type] = {
    "images": ImageConfig,
    "network": NetworkConfig,
    "train": TrainConfig,
    "meta": MetaConfig,
    "belief": BeliefConfig,
    "prune": PruneConfig,
    "neighbours": NeighbourConfig,
    "selection": SelectionConfig,
    "output": OutputConfig,
    "machine": MachineConfig,
}

#: Paper mode (docs/method.md): the paper's constants, and every option of ours off; by method in
#: `curate.config.defaults.paper`.
PAPER: dict[str, Any] = {**PAPER_SIGNAL, **PAPER_RULE, **PAPER_PRIOR, **PAPER_SHARE}
#: Paper mode fixes these, too; they are no part of `PAPER`, which experiments made before they were options have
#: recorded.
PAPER_PIXELS: dict[str, Any] = {"decoder": "pil", "layout": "planes"}


def flag(name: str) -> str:
    """What the command line calls an option.

    >>> flag("eta_scale"), flag("returns")
    ('--eta-scale', '--return')
    """
    held = [item for kind in (RunConfig, *GROUPS.values()) for item in fields(kind) if item.name == name]
    spelled = next((item.metadata["spelled"] for item in held if item.metadata.get("spelled")), name)
    return "--" + str(spelled).replace("_", "-")


def from_options(options: dict[str, Any]) -> RunConfig:
    """Build a configuration from flat options (field name -> value); names not given keep their defaults.

    Raises:
        Misuse: an unknown name, and the known ones; or a value of the wrong type.
    """
    places = _places()
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    rest: dict[str, Any] = {}
    for name, value in options.items():
        (groups[places[name]] if name in places else rest)[name] = _checked(name, value, places)
    method = rest.get("method", "bdw")
    targetless = method in ALL_METHODS and not method_spec(method).needs_target
    for name in ("store",) if targetless else ("store", "target"):
        if not rest.get(name):
            raise Misuse(f"--{name} is missing: name the {name}'s shards")
    return RunConfig(**{"target": "", **rest}, **{group: kind(**groups[group]) for group, kind in GROUPS.items()})


def to_options(config: RunConfig) -> dict[str, Any]:
    """The flat options that `from_options` turns back into ``config``, without the permission to run commands."""
    flat = dataclasses.asdict(config)
    for group in GROUPS:
        flat.update(flat.pop(group))
    del flat["allow_pipe"]
    return flat


def choosable(config: RunConfig) -> dict[str, dict[str, Any]]:
    """What a person would have to say for ``config``: by group, the run's own first under ""; nothing that is None,
    and nothing that a run fills in for itself."""
    flat = to_options(config)
    kinds: dict[str, type] = {"": RunConfig, **GROUPS}
    named = {
        group: [item.name for item in fields(kind) if "help" in item.metadata or item.name in ("store", "target")]
        for group, kind in kinds.items()
    }
    return {
        group: {name: flat[name] for name in names if flat.get(name) is not None and flat[name] != ""}
        for group, names in named.items()
    }


def recorded(options: dict[str, Any]) -> dict[str, Any]:
    """The options that a run.json holds; one that is younger than the run is as every run had it then."""
    before = {
        item.name: item.metadata["before"]
        for kind in (RunConfig, *GROUPS.values())
        for item in fields(kind)
        if "before" in item.metadata
    }
    return before | options


def read_options(path: Path) -> dict[str, Any]:
    """Flat options from a TOML or JSON file, by suffix; a run.json gives the run's own.

    Groups may be written as tables or left out, names with dashes as on the command line.

    Raises:
        Misuse: the file is missing, is neither, does not parse, has two values of an option, or is a run.json of
            another format.
    """
    try:
        data = read_regular(path)
        found = tomllib.loads(data.decode()) if path.suffix == ".toml" else parse_json(data)
    except FileNotFoundError as error:
        raise Misuse(f"{path}: no such file; give a .toml or .json file to --config") from error
    except OSError as error:
        raise Misuse(f"{path}: {error.strerror}; give a .toml or .json file to --config") from error
    except (ValueError, RecursionError) as error:
        raise Misuse(f"{path}: does not parse as {path.suffix or 'JSON'} ({error})") from error
    if isinstance(found, dict) and "configuration" in found:
        if (version := version_in(found, RUN_FORMAT)) != RUN_VERSION:
            raise Misuse(f"{path}: run.json of version {version}, this release reads {RUN_VERSION}")
        found = found["configuration"]
        found = recorded(found) if isinstance(found, dict) else found
    if not isinstance(found, dict):
        raise Misuse(f"{path}: expected a table of options, found {type(found).__name__}")
    found = _flat(path, found)
    places = _places()
    for name, value in found.items():
        try:
            _checked(name, value, places)
        except Misuse as error:
            raise Misuse(f"{path}: {error}") from error
    if "allow_pipe" in found:
        raise Misuse(f"{path}: allow_pipe is no business of a file; give --allow-pipe on the command line")
    return found


def _flat(path: Path, tables: dict[str, Any]) -> dict[str, Any]:
    """The options of a file without its tables, under the names of their fields."""
    flat: dict[str, Any] = {}
    for group, held in tables.items():
        # "network" names a group and an option: only a table is the group.
        for name, value in held.items() if group in GROUPS and isinstance(held, dict) else [(group, held)]:
            field_name = name.replace("-", "_")
            if flat.get(field_name, value) != value:
                raise Misuse(f"{path}: {field_name} is {flat[field_name]!r} and {value!r}; leave one of the two out")
            flat[field_name] = value
    return flat


def _places() -> dict[str, str]:
    """The group of every option that is in one."""
    return {f.name: group for group, kind in GROUPS.items() for f in fields(kind)}


def _checked(name: str, value: Any, places: dict[str, str]) -> Any:
    """The value of an option as its field holds it.

    Args:
        places: as `_places` has them.

    Raises:
        Misuse: there is no such option, or its values are of another type.
    """
    if name in places:
        return _typed(name, value, GROUPS[places[name]])
    top = {f.name for f in fields(RunConfig)} - set(GROUPS)
    if name in top:
        return _typed(name, value, RunConfig)
    known = sorted(places | dict.fromkeys(top))
    raise Misuse(f"{name}: not an option of a run{nearest(name, known) or '; known: ' + ', '.join(known)}")


def _typed(name: str, value: Any, kind: type) -> Any:
    """``value`` as its field holds it: a list as a tuple, a whole number as a float where one is meant."""
    hint = get_type_hints(kind)[name]
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    many = isinstance(value, list | tuple)
    if many:
        kinds = tuple(get_args(each)[0] for each in kinds if get_origin(each) is tuple)
    held = [_widened(x) if float in kinds and type(x) is int else x for x in (value if many else [value])]
    if not kinds or any(type(x) not in kinds for x in held):
        raise Misuse(f"--{name.replace('_', '-')} {value!r}: expected {kind.__annotations__[name]}")
    return tuple(held) if many else held[0]


def _widened(whole: int) -> float:
    """A whole number as a float; one that is larger than any of them as infinity, for the range check to refuse."""
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf
