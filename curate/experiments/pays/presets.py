"""How large the study is made, what it chooses by, and how it trains. Facts only; docs/method.md section 11."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from curate.errors import Misuse
from curate.experiments.pays.mixed import TARGETS, Mixture

Options = dict[str, Any]

#: The nets and the images of every plain training: crops of 24 px, a rate that falls as a cosine over the steps.
_SMALL: Options = {
    **{"network": "small", "width": 16, "stem_stride": 2, "size": 28, "crop": 24, "colour": "rgb", "mirror": False},
    **{"momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine", "workers": 0, "device": "cpu"},
}
PRETEXTS: dict[str, Options] = {
    "rotation": {**_SMALL, "pretext": "rotation", "batch": 32, "lr": 0.05},
    "simclr": {**_SMALL, "pretext": "simclr", "batch": 64, "lr": 0.1},
}
#: Where a network is read, by pretext: the first tap is the verdict's.
TAPS = {"rotation": ("layer2:4x4", "pool"), "simclr": ("pool", "layer2:4x4")}
#: Labels a class, and draws of them; as many as there are is one draw.
FEW, DRAWS, ALL = 5, 3, 1_000_000

_NETS: Options = {"encoder": "untrained", "nets": 3}
#: How images are chosen without training: options of a run. A ``keep`` of 0 stands for the images that are inside.
CHOICES: dict[str, Options] = {
    "nearest-pixels": {"method": "nearest", "encoder": "pixels", "keep": 0},
    "nearest": {"method": "nearest", **_NETS, "keep": 0},
    "simcore": {"method": "simcore", **_NETS},
    "classifier-pixels": {"method": "classifier", "encoder": "pixels"},
    "classifier-1": {"method": "classifier", "encoder": "untrained", "nets": 1},
    "classifier-3": {"method": "classifier", **_NETS},
    "classifier-lite0": {"method": "classifier", "encoder": "lite0"},
    # Of no target: half the store, which is what SemDeDup's authors leave of theirs.
    "semdedup": {"method": "semdedup", **_NETS, "keep": 0.5},
    "softdedup": {"method": "softdedup", **_NETS, "keep": 0.5},
}
#: How images are chosen by weighing them while a network trains; options of a run beside the pretext's.
_BELIEF: Options = {
    **{"meta_loss": "self-supervised", "norm": "group", "target_batch": 32, "lr_drops": (), "schedule": "epoch"},
    **{"lr": 0.01, "expected_gradient": True, "meta_average": 0.95},
}
WEIGHINGS: dict[str, Options] = {
    # An epoch of the whole store is as many steps as these ten of what the prior leaves, and more.
    "bdw": {**_BELIEF, "method": "bdw", "prior": "uniform", "epochs": 2},
    "bdw-prior": {**_BELIEF, "method": "bdw", "prior": "classifier", **_NETS, "epochs": 10},
    "bdw-shared": {
        **{name: value for name, value in _BELIEF.items() if name != "meta_average"},
        **{"method": "bdw", "prior": "classifier", **_NETS, "epochs": 10},
        **{"signal": "head", "share": "clusters:400", "returns": True},
    },
    "dw": {**{k: v for k, v in _BELIEF.items() if k != "expected_gradient"}, "method": "dw", "epochs": 2},
}
#: What is chosen by nobody: all, as many at random as are inside, and what is inside.
PLAIN = ("raw", "random", "in-domain")
SELECTORS = (*PLAIN, *CHOICES, *WEIGHINGS)
#: What does not depend on the target, and what others are held against; of the choices, those that look at none.
SHARED = ("raw", "random")
OF_NO_TARGET = ("semdedup", "softdedup")


@dataclass(frozen=True)
class Scale:
    """The size of the study.

    Args:
        mixtures: share of a target's images in the store, in per cent -> what is mixed.
        targets, pretexts: of all those there are.
        chosen: selectors whose choice is looked at.
        trained: selectors whose choice is trained on, too, or weighed by a training.
        weighed: targets for which images are weighed, which takes longest.
        steps: of each training.
        lengths: further steps, by selector, for the curves of accuracy over seconds, with the first pretext.
        seeds: trainings of each.
    """

    mixtures: Mapping[str, Mixture]
    targets: tuple[str, ...]
    pretexts: tuple[str, ...]
    chosen: tuple[str, ...]
    trained: tuple[str, ...]
    weighed: tuple[str, ...]
    steps: int
    lengths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    seeds: int = 3


@dataclass(frozen=True)
class Arm:
    """A selector for a target, its trainings with a pretext for so many steps, and what they are scored on."""

    target: str
    pretext: str
    selector: str
    steps: int


_PHOTOGRAPHS = {"imagenet12": None, "imagenette": None, "mnist": 1000, "fashion-mnist": 1000}
_STORE = Mixture(500, _PHOTOGRAPHS, train=2_500, val=50, test=1_000)
_SCARCE = Mixture(185, _PHOTOGRAPHS, train=2_500, val=50, test=1_000)
_PLENTY = Mixture(
    500, {"imagenet12": 750, "imagenette": 450, "mnist": 150, "fashion-mnist": 150}, train=2_500, val=50, test=1_000
)
_TINY = Mixture(
    60, {"imagenet12": 150, "imagenette": 100, "mnist": 50, "fashion-mnist": 50}, train=300, val=20, test=120
)

SCALES: dict[str, Scale] = {
    "smoke": Scale(
        {"10": _TINY},
        targets=("notmnist",),
        pretexts=("rotation",),
        chosen=("nearest-pixels", "classifier-1"),
        trained=("raw", "random", "classifier-1", "in-domain", "bdw-prior"),
        weighed=("notmnist",),
        steps=6,
        lengths={"raw": (12,), "classifier-1": (3,)},
        seeds=2,
    ),
    "mini": Scale(
        {"2.5": _STORE},
        targets=TARGETS,
        pretexts=("rotation", "simclr"),
        chosen=tuple(CHOICES),
        trained=(
            *(*PLAIN, "nearest", "simcore", "classifier-1", "classifier-3", "classifier-lite0"),
            *(*OF_NO_TARGET, *WEIGHINGS),
        ),
        weighed=("gtsrb", "omniglot"),
        steps=300,
        lengths={"raw": (75, 1200), "classifier-1": (30, 75), "classifier-3": (75,)},
    ),
    "shares": Scale(
        {"1": _SCARCE, "10": _PLENTY},
        targets=("gtsrb", "omniglot", "vgg-flowers", "notmnist"),
        pretexts=("rotation", "simclr"),
        chosen=("classifier-1", "classifier-3"),
        trained=(*PLAIN, "classifier-3"),
        weighed=(),
        steps=300,
    ),
    "full": Scale(
        {"1": _SCARCE, "2.5": _STORE, "10": _PLENTY},
        targets=TARGETS,
        pretexts=("rotation", "simclr"),
        chosen=tuple(CHOICES),
        trained=SELECTORS,
        weighed=TARGETS,
        steps=300,
        lengths=dict.fromkeys(("raw", "classifier-3", "bdw-prior"), (75, 600, 1200)),
    ),
}


def of(name: str) -> Scale:
    """The scale of that name.

    Raises:
        Misuse: there is none; the message names those there are.
    """
    if name not in SCALES:
        raise Misuse(f"--scale {name}: unknown; known: {', '.join(SCALES)}")
    return SCALES[name]
