"""What a run can be made of: methods, pretext tasks, meta-losses and networks, a row each.

The one place where their names, defaults and limits are declared; the options of the command line, their help, the
checks of a configuration and the dry run all follow from it. Nothing here imports torch. How to add a row, in this
package or from another, is in docs/extend.md.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from curate.config.registry import Registry
from curate.errors import CurateError, Misuse

Options = Mapping[str, Any]
Factory = str | Callable[..., Any]


@dataclass(frozen=True)
class MethodSpec:
    """A way to weigh the images of a store.

    Args:
        factory: called with `curate.methods.base.MethodInputs`; gives a `Method`.
        needs_target: whether it weighs images by a target.
        inputs: what it is made of besides the beliefs' options: ``domain`` (which rows are of the target's own
            domain), ``distances`` (from each image to the nearest target image), ``prior`` (what is believed before
            the first epoch; the method is a `curate.methods.base.Informed` then), ``look-alikes`` (who learns from
            whose visits; it is a `curate.methods.base.Sharing` then).
        defaults: of options, where they differ from the common ones.
        usual: what `curate run` takes in their place where nothing else is said, as of `PretextSpec`.
        inapplicable: options that say nothing to it, each group with the one value they may have and the reason.
    """

    factory: Factory
    needs_target: bool = True
    inputs: tuple[str, ...] = ()
    defaults: Options = field(default_factory=dict)
    usual: Options = field(default_factory=dict)
    inapplicable: tuple[tuple[Options, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SelectorSpec(MethodSpec):
    """A method that trains nothing: features in, scores and a keep mask out.

    Args:
        factory: is itself the selector, of the form of `curate.selection.base.Selector`.
        needs_target: whether it judges images by a target's, and so needs features, too.
        has_own_rule: whether it knows how many to keep; else ``--keep`` says it.
        needs_features: whether it looks at images without a target.
        gives_prior: whether its score is a probability with a cut, so that ``--prior`` may name it.
    """

    has_own_rule: bool
    needs_features: bool = False
    gives_prior: bool = False


@dataclass(frozen=True)
class SignalSpec:
    """What says how much an image helps the target.

    Args:
        factory: called with `curate.training.signals.SignalInputs`; gives a `StepSignal`, or None for the
            meta-gradient itself, which the engine takes by its evaluators.
        defaults: of options, where they differ from the common ones; a method's own go before them.
        references: what it can be compared with (``--reference``).
        inapplicable: as of `MethodSpec`.
        spreads: whether several processes may share a batch.
    """

    factory: Factory
    defaults: Options = field(default_factory=dict)
    references: tuple[str, ...] = ("quantile", "batch", "none")
    inapplicable: tuple[tuple[Options, str], ...] = ()
    spreads: bool = False


@dataclass(frozen=True)
class EncoderSpec:
    """A way from images to features.

    Args:
        factory: called with `curate.selection.base.EncoderInputs`; gives an `Encoder`.
        title: what it is, for people.
        needs: what stands after the name and a colon, in words; empty where nothing does.
        extra: the extra of this package that it needs installed; empty for none.
    """

    factory: Factory
    title: str
    needs: str = ""
    extra: str = ""


@dataclass(frozen=True)
class PretextSpec:
    """A self-supervised task that the store trains the network on.

    Args:
        factory: called with (`Augment`, `NetworkConfig`); gives a `Pretext`.
        defaults: of options.
        usual: what `curate run` takes in their place where nothing else is said: small images and a small network, so
            that a store is weighed in minutes (docs/when-it-pays.md); paper mode takes the defaults.
        network: the one network that it trains; None for any that is not made for another pretext.
        outputs: of the network's head, where the option ``projection`` makes no other of it.
        statistics: mean and deviation of every channel; None to measure them on the store.
        spreads: whether several processes may share a batch: what it draws for an image it draws by
            `curate.rng.drawn`, and what it takes of other images it gathers (`curate.ranks`).
    """

    factory: Factory
    defaults: Options = field(default_factory=dict)
    usual: Options = field(default_factory=dict)
    network: str | None = None
    outputs: int = 4
    statistics: tuple[float, float] | None = None
    spreads: bool = False


@dataclass(frozen=True)
class MetaLossSpec:
    """A loss on the target.

    Args:
        factory: called with (`TargetImages`, `MetaConfig`, `Augment`, `Pretext`, seed); gives a `MetaLoss`.
        needs_labels: whether the target's images must have labels.
        is_pretext: whether it is the pretext's own loss, so that the two can be compared.
        spreads: whether several processes may share a batch: what its loss is on each adds up to the whole.
    """

    factory: Factory
    needs_labels: bool = False
    is_pretext: bool = False
    spreads: bool = False


@dataclass(frozen=True)
class NetworkSpec:
    """A network.

    Args:
        factory: called with (`NetworkConfig`, `ImageConfig`, outputs of the head); gives a module with `tap`.
        title: its name for people.
        pretext: the one pretext that it is made for; None for any.
    """

    factory: Factory
    title: str
    pretext: str | None = None


#: The signal as the paper has it: raw, and every option of ours off (docs/method.md section 4).
PAPER_SIGNAL: Options = {
    "signal": "exact",
    "contrast": "none",
    "meta_every": 1,
    "eta": 10.0,
    "eta_scale": "raw",
    "reference": "none",
    "meta_average": 0.0,
    "meta_momentum": 0.0,
    "expected_gradient": False,
    "warmup": 0,
}
#: The rule as the paper has it.
PAPER_RULE: Options = {"lam": 0.25, "rho": 0.5}
#: What is believed before the first epoch, as the paper has it.
PAPER_PRIOR: Options = {"prior": "uniform", "prior_strength": 4.0}
#: Who learns from whose visits, as the paper has it: nobody from another's.
PAPER_SHARE: Options = {"share": "none", "returns": False}
_NO_SIGNAL: Options = {**PAPER_SIGNAL, "eta": None}
_NO_DISTANCES = (
    {
        "nn_beta": 1e-5,
        "nn_distance": "squared",
        "nn_space": "pixels",
        "nn_features": None,
        "nn_tap": "pool",
        "nn_weights": None,
    },
    "only nn measures distances",
)

_NO_SELECTION = (
    {"encoder": "untrained", "nets": 3, "features": "", "keep": 0.0, "encoder_key": ""},
    "only selectors look at features",
)
#: Of a method with a prior, which a classifier may give it: it does look at features then.
_NO_BUDGET = ({"keep": 0.0}, "it prunes by what is believed; `curate prune --keep` takes a budget afterwards")
_UNTRAINED = (
    (_NO_SIGNAL, "it trains nothing"),
    (PAPER_RULE, "it has a cut of its own; `curate prune` takes thresholds afterwards"),
    _NO_DISTANCES,
)

SIGNALS: Registry[SignalSpec] = Registry(
    "signal",
    "curate.signals",
    SignalSpec,
    {
        "exact": SignalSpec(
            "curate.training.signals:meta_gradient",
            references=("target", "batch", "none"),
            inapplicable=(
                ({"contrast": "none"}, "the meta-gradient is of the target's loss, and no store image's is taken"),
            ),
            spreads=True,
        ),
        "head": SignalSpec(
            "curate.training.head_signal:HeadSignal",
            defaults={
                **{"eta_scale": "raw", "reference": "quantile", "contrast": "store"},
                **{"meta_average": 0.97, "warmup": 1},
            },
        ),
        "preconditioned": SignalSpec(
            "curate.training.preconditioned_signal:PreconditionedSignal",
            defaults={**{"eta_scale": "raw", "reference": "quantile", "contrast": "store"}, "meta_average": 0.9},
        ),
        "reference-net": SignalSpec(
            "curate.training.reference_net_signal:ReferenceNetSignal",
            defaults={"reference": "quantile", "warmup": 1},
            inapplicable=(
                ({"contrast": "none"}, "it goes by losses, and takes no gradient that could be set against another"),
                ({"meta_average": 0.0}, "it goes by losses, and takes no gradient that could be averaged"),
            ),
        ),
    },
)

METHODS: Registry[MethodSpec] = Registry(
    "method",
    "curate.methods",
    MethodSpec,
    {
        "bdw": MethodSpec(
            "curate.methods.bdw:Bdw",
            inputs=("prior", "look-alikes"),
            usual={"prior": "classifier", "expected_gradient": True, "meta_average": 0.95},
            inapplicable=(_NO_DISTANCES, _NO_BUDGET),
        ),
        "dw": MethodSpec(
            "curate.methods.dw:Dw",
            # Of the paper's DW neither eta nor its unit is published; these work on its VAE (docs/method.md).
            inputs=("prior",),
            defaults={"eta_scale": "recent", "eta": 0.1, "reference": "none", "lam": 0.0},
            inapplicable=(
                ({"prior_strength": 4.0}, "a point weight has no strength"),
                ({"meta_momentum": 0.0}, "the paper's DW has none"),
                ({"expected_gradient": False}, "a point weight has no distribution to take a mean of"),
                ({"rho": 0.5}, "a point weight lies above lam or not, no share of it does"),
                ({"warmup": 0}, "its weights start at 0, so a warm-up would train nothing"),
                _NO_DISTANCES,
                _NO_BUDGET,
            ),
        ),
        "l2rw": MethodSpec(
            "curate.methods.l2rw:L2rw",
            inapplicable=(
                (
                    {k: v for k, v in _NO_SIGNAL.items() if k not in ("meta_average", "warmup")},
                    "its weights sum to 1 over a batch",
                ),
                ({"warmup": 0}, "its weights are 0 before the first signal, so a warm-up would train nothing"),
                (PAPER_RULE, "it prunes nothing"),
                _NO_DISTANCES,
                _NO_SELECTION,
            ),
        ),
        "nn": MethodSpec(
            "curate.methods.nn:Nn",
            inputs=("distances",),
            inapplicable=(
                (_NO_SIGNAL, "its weights are settled before the first epoch"),
                (PAPER_RULE, "it prunes nothing; `curate prune --keep` takes a budget afterwards"),
                _NO_SELECTION,
            ),
        ),
        "oracle": MethodSpec(
            "curate.methods.oracle:Oracle",
            needs_target=False,
            inputs=("domain",),
            inapplicable=(
                (_NO_SIGNAL, "its weights are settled before the first epoch"),
                (PAPER_RULE, "it drops other domains before the first epoch, and nothing later"),
                _NO_DISTANCES,
                _NO_SELECTION,
            ),
        ),
        "uniform": MethodSpec(
            "curate.methods.uniform:Uniform",
            needs_target=False,
            inapplicable=(
                (_NO_SIGNAL, "its weights are all 1"),
                (PAPER_RULE, "it prunes nothing"),
                _NO_DISTANCES,
                _NO_SELECTION,
            ),
        ),
    },
)

SELECTORS: Registry[SelectorSpec] = Registry(
    "method",
    "curate.selectors",
    SelectorSpec,
    {
        "classifier": SelectorSpec(
            "curate.selection.classifier:classifier", has_own_rule=True, gives_prior=True, inapplicable=_UNTRAINED
        ),
        "nearest": SelectorSpec("curate.selection.nearest:nearest", has_own_rule=False, inapplicable=_UNTRAINED),
        "simcore": SelectorSpec("curate.selection.simcore:simcore", has_own_rule=True, inapplicable=_UNTRAINED),
        "semdedup": SelectorSpec(
            "curate.selection.semdedup:semdedup",
            needs_target=False,
            has_own_rule=True,
            needs_features=True,
            inapplicable=_UNTRAINED,
        ),
        "softdedup": SelectorSpec(
            "curate.selection.softdedup:softdedup",
            needs_target=False,
            has_own_rule=False,
            needs_features=True,
            inapplicable=_UNTRAINED,
        ),
        "random": SelectorSpec(
            "curate.selection.random_subset:random_subset",
            needs_target=False,
            has_own_rule=False,
            inapplicable=(
                *_UNTRAINED,
                ({k: v for k, v in _NO_SELECTION[0].items() if k != "keep"}, "it looks at no image"),
            ),
        ),
    },
)
#: All that ``--method`` may be.
ALL_METHODS: Collection[str] = ChainMap(SELECTORS, METHODS)  # type: ignore[arg-type]

ENCODERS: Registry[EncoderSpec] = Registry(
    "encoder",
    "curate.encoders",
    EncoderSpec,
    {
        "untrained": EncoderSpec("curate.selection.untrained:Untrained", "networks as drawn, calibrated on the store"),
        "pixels": EncoderSpec("curate.selection.pixels:Pixels", "the image itself, reduced to 9 x 9 colours"),
        "checkpoint": EncoderSpec(
            "curate.runs.saved_encoder:SavedEncoder", "the network of a run", needs="RUN or a model.safetensors"
        ),
        "torchvision": EncoderSpec(
            "curate.selection.pretrained:Torchvision", "a model of torchvision", needs="NAME[@FILE of weights]"
        ),
        "timm": EncoderSpec(
            "curate.selection.timm_model:Timm", "a model of timm", needs="NAME[@FILE of weights]", extra="timm"
        ),
        "onnx": EncoderSpec(
            "curate.selection.onnx_model:Onnx", "a network in an ONNX file", needs="FILE", extra="onnx"
        ),
        "lite0": EncoderSpec(
            "curate.selection.lite0:Lite0", "EfficientNet-Lite0, trained on ImageNet", extra="features"
        ),
        "parquet": EncoderSpec(
            "curate.selection.given:GivenFeatures", "columns shard, key, embedding", needs="FILE[,FILE ...]"
        ),
    },
)


def method_spec(name: str) -> MethodSpec:
    """What is known of a method, selectors among them.

    Raises:
        Misuse: it is unknown; the message lists the known ones.
        CurateError: a plug-in has given the name of a method to a selector, or the other way round.
    """
    if name in SELECTORS and name in METHODS:
        raise CurateError(f"--method {name}: is both a method and a selector; rename the one from outside")
    if name in SELECTORS:
        return SELECTORS.spec(name)
    if name not in METHODS:
        raise Misuse(f"--method {name}: unknown; known: {', '.join(ALL_METHODS)}")
    return METHODS.spec(name)


def parse_encoder(text: str) -> tuple[str, str]:
    """``NAME`` or ``NAME:ARGUMENT`` -> the name and the argument.

    >>> parse_encoder("checkpoint:run")
    ('checkpoint', 'run')

    Raises:
        Misuse: an unknown name, an argument that is missing or too much; the known ones are named.
    """
    name, colon, argument = text.partition(":")
    needs = ENCODERS.spec(name).needs
    if needs and not argument:
        raise Misuse(f"--encoder {text}: what after it? expected {name}:{needs}")
    if colon and not needs:
        raise Misuse(f"--encoder {text}: {name} takes nothing after a colon; give --encoder {name}")
    return name, argument


#: What is enough to weigh images by: 32 px, the small network with a stem of stride 2, ten epochs.
_SMALL: Options = {
    **{"size": 36, "crop": 32, "network": "small", "norm": "group", "stem_stride": 2},
    **{"epochs": 10, "lr_drops": (), "lr": 0.01},
}

PRETEXTS: Registry[PretextSpec] = Registry(
    "pretext",
    "curate.pretexts",
    PretextSpec,
    {
        "rotation": PretextSpec(
            "curate.pretexts.rotation:Rotation.of",
            defaults={
                **{"size": 72, "crop": 64, "colour": "rgb", "mirror": True},
                **{"epochs": 35, "batch": 64, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
            },
            usual={**_SMALL, "batch": 32},
            spreads=True,
        ),
        "reconstruction": PretextSpec(
            "curate.pretexts.reconstruction:Reconstruction.of",
            defaults={
                **{"size": 28, "crop": 28, "colour": "grey", "mirror": False},
                **{"epochs": 100, "batch": 64, "lr": 1e-4, "momentum": 0.0, "weight_decay": 0.0, "lr_drops": ()},
            },
            network="vae",
            statistics=(0.5, 0.5),  # pixels in [-1, 1], as the VAE's tanh draws them
            spreads=True,
        ),
        "simclr": PretextSpec(
            "curate.pretexts.contrast:Contrast.of",
            defaults={
                **{"size": 72, "crop": 64, "colour": "rgb", "mirror": True, "augment_strength": "mild"},
                **{"epochs": 35, "batch": 64, "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4},
                **{"projection": 64, "temperature": 0.2},
            },
            usual=_SMALL,
            spreads=True,
        ),
    },
)

META_LOSSES: Registry[MetaLossSpec] = Registry(
    "meta-loss",
    "curate.meta_losses",
    MetaLossSpec,
    {
        "prototypical": MetaLossSpec("curate.metalosses.prototypical:Prototypical.of", needs_labels=True, spreads=True),
        "self-supervised": MetaLossSpec(
            "curate.metalosses.self_supervised:SelfSupervised.of", is_pretext=True, spreads=True
        ),
    },
)

NETWORKS: Registry[NetworkSpec] = Registry(
    "network",
    "curate.networks",
    NetworkSpec,
    {
        "resnet18": NetworkSpec("curate.models.networks:resnet", "ResNet-18"),
        "resnet34": NetworkSpec("curate.models.networks:resnet", "ResNet-34"),
        "resnet50": NetworkSpec("curate.models.networks:resnet", "ResNet-50"),
        "small": NetworkSpec("curate.models.networks:small", "the small ResNet"),
        "vae": NetworkSpec("curate.models.networks:vae", "the VAE", pretext="reconstruction"),
    },
)
