"""What a run can be made of: methods, pretext tasks, meta-losses and networks, a row each.

The one place where their names, defaults and limits are declared; the options of the command line, their help, the
checks of a configuration and the dry run all follow from it. Nothing here imports torch. How to add a row, in this
package or from another, is in docs/extend.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from curate.config.registry import Registry

Options = Mapping[str, Any]
Factory = str | Callable[..., Any]


@dataclass(frozen=True)
class MethodSpec:
    """A way to weigh the images of a store.

    Args:
        factory: called with `curate.methods.base.MethodInputs`; gives a `Method`.
        needs_target: whether it weighs images by a target.
        inputs: what it is made of besides the beliefs' options: ``domain`` (which rows are of the target's own
            domain), ``distances`` (from each image to the nearest target image).
        defaults: of options, where they differ from the common ones.
        inapplicable: options that say nothing to it, each group with the one value they may have and the reason.
    """

    factory: Factory
    needs_target: bool = True
    inputs: tuple[str, ...] = ()
    defaults: Options = field(default_factory=dict)
    inapplicable: tuple[tuple[Options, str], ...] = ()


@dataclass(frozen=True)
class PretextSpec:
    """A self-supervised task that the store trains the network on.

    Args:
        factory: called with (`Augment`, `NetworkConfig`); gives a `Pretext`.
        defaults: of options.
        network: the one network that it trains; None for any that is not made for another pretext.
        outputs: of the network's head.
        statistics: mean and deviation of every channel; None to measure them on the store.
    """

    factory: Factory
    defaults: Options = field(default_factory=dict)
    network: str | None = None
    outputs: int = 4
    statistics: tuple[float, float] | None = None


@dataclass(frozen=True)
class MetaLossSpec:
    """A loss on the target.

    Args:
        factory: called with (`TargetImages`, `MetaConfig`, `Augment`, `Pretext`, seed); gives a `MetaLoss`.
        needs_labels: whether the target's images must have labels.
        is_pretext: whether it is the pretext's own loss, so that the two can be compared.
    """

    factory: Factory
    needs_labels: bool = False
    is_pretext: bool = False


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


#: The signal as the paper has it: raw, and every option of ours off (METHOD.md section 4).
PAPER_SIGNAL: Options = {
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

METHODS: Registry[MethodSpec] = Registry(
    "method",
    "curate.methods",
    {
        "bdw": MethodSpec("curate.methods.bdw:Bdw", inapplicable=(_NO_DISTANCES,)),
        "dw": MethodSpec(
            "curate.methods.dw:Dw",
            # Of the paper's DW neither eta nor its unit is published; these work on its VAE (METHOD.md).
            defaults={"eta_scale": "recent", "eta": 0.1, "reference": "none", "lam": 0.0},
            inapplicable=(
                ({"meta_momentum": 0.0}, "the paper's DW has none"),
                ({"expected_gradient": False}, "a point weight has no distribution to take a mean of"),
                ({"rho": 0.5}, "a point weight lies above lam or not, no share of it does"),
                ({"warmup": 0}, "its weights start at 0, so a warm-up would train nothing"),
                _NO_DISTANCES,
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
            ),
        ),
        "nn": MethodSpec(
            "curate.methods.nn:Nn",
            inputs=("distances",),
            inapplicable=(
                (_NO_SIGNAL, "its weights are settled before the first epoch"),
                (PAPER_RULE, "it prunes nothing; `curate prune --keep` takes a budget afterwards"),
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
            ),
        ),
        "uniform": MethodSpec(
            "curate.methods.uniform:Uniform",
            needs_target=False,
            inapplicable=(
                (_NO_SIGNAL, "its weights are all 1"),
                (PAPER_RULE, "it prunes nothing"),
                _NO_DISTANCES,
            ),
        ),
    },
)

PRETEXTS: Registry[PretextSpec] = Registry(
    "pretext",
    "curate.pretexts",
    {
        "rotation": PretextSpec(
            "curate.pretexts.rotation:Rotation.of",
            defaults={
                **{"size": 72, "crop": 64, "colour": "rgb", "mirror": True},
                **{"epochs": 35, "batch": 64, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
            },
        ),
        "reconstruction": PretextSpec(
            "curate.pretexts.reconstruction:Reconstruction.of",
            defaults={
                **{"size": 28, "crop": 28, "colour": "grey", "mirror": False},
                **{"epochs": 100, "batch": 64, "lr": 1e-4, "momentum": 0.0, "weight_decay": 0.0, "lr_drops": ()},
            },
            network="vae",
            statistics=(0.5, 0.5),  # pixels in [-1, 1], as the VAE's tanh draws them
        ),
    },
)

META_LOSSES: Registry[MetaLossSpec] = Registry(
    "meta-loss",
    "curate.meta_losses",
    {
        "prototypical": MetaLossSpec("curate.metalosses.prototypical:Prototypical.of", needs_labels=True),
        "self-supervised": MetaLossSpec("curate.metalosses.self_supervised:SelfSupervised.of", is_pretext=True),
    },
)

NETWORKS: Registry[NetworkSpec] = Registry(
    "network",
    "curate.networks",
    {
        "resnet18": NetworkSpec("curate.models.networks:resnet", "ResNet-18"),
        "resnet34": NetworkSpec("curate.models.networks:resnet", "ResNet-34"),
        "resnet50": NetworkSpec("curate.models.networks:resnet", "ResNet-50"),
        "small": NetworkSpec("curate.models.networks:small", "the small ResNet"),
        "vae": NetworkSpec("curate.models.networks:vae", "the VAE", pretext="reconstruction"),
    },
)
