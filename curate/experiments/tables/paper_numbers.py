"""The numbers that the paper prints, to stand beside ours; nothing here is computed.

Reference: Ericsson, Gouk, Hospedales, "Don't Wait, Just Weight: Improving Unsupervised Representations by Learning
Goal-Driven Instance Weights", 2020, tables 1 to 3. Methods have the paper's names, domains the contest's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: The paper's name of each of our methods. Uniform weights are named after what is trained with them.
TABLE1_NAMES: Mapping[str, str] = {"oracle": "oracle", "uniform": "VAE", "dw": "DW", "bdw": "BDW"}
TABLE2_NAMES: Mapping[str, str] = {"uniform": "RotNet", "nn": "NN", "l2rw": "L2RW", "bdw": "BDW"}

#: Domains of table 2, in its order: nine of the Visual Decathlon, and STL-10.
DOMAINS = (
    *("aircraft", "cifar100", "daimlerpedcls", "dtd", "vgg-flowers"),
    *("gtsrb", "omniglot", "svhn", "ucf101", "stl10"),
)


@dataclass(frozen=True)
class Table1Cell:
    """Test loss of the VAE (squared error and KL, summed, mean over images) and the seconds of its training."""

    loss: float
    seconds: int


@dataclass(frozen=True)
class Table3Row:
    """STL-10 under one setting: fine-tuned accuracy and share of the source pruned, per cent; seconds of training.

    ``eta``, ``rho`` and ``lam`` are None for methods that have none.
    """

    method: str
    eta: float | None
    rho: float | None
    lam: float | None
    accuracy: float
    pruned: float
    seconds: int


#: By target, then method.
TABLE1: Mapping[str, Mapping[str, Table1Cell]] = {
    "mnist": {
        "oracle": Table1Cell(178.95, 1_387),
        "VAE": Table1Cell(209.69, 6_945),
        "DW": Table1Cell(193.26, 15_856),
        "BDW": Table1Cell(192.64, 6_005),
    },
    "fmnist": {
        "oracle": Table1Cell(150.05, 2_256),
        "VAE": Table1Cell(171.46, 6_876),
        "DW": Table1Cell(171.05, 9_943),
        "BDW": Table1Cell(171.13, 1_424),
    },
    "kmnist": {
        "oracle": Table1Cell(292.19, 2_161),
        "VAE": Table1Cell(306.43, 5_409),
        "DW": Table1Cell(301.11, 5_137),
        "BDW": Table1Cell(302.70, 4_081),
    },
}


def _by_domain(*accuracies: float) -> dict[str, float]:
    return dict(zip(DOMAINS, accuracies, strict=True))


#: Accuracy in per cent of logistic regression on frozen features, by method, then domain.
TABLE2_LOGISTIC: Mapping[str, Mapping[str, float]] = {
    "RotNet": _by_domain(16.27, 11.36, 83.34, 11.43, 18.71, 71.17, 20.86, 50.67, 17.30, 45.65),
    "NN": _by_domain(17.45, 12.66, 83.59, 11.54, 17.13, 72.10, 24.15, 54.72, 15.64, 45.68),
    "L2RW": _by_domain(16.70, 15.72, 85.36, 14.44, 30.27, 79.79, 18.71, 57.64, 22.89, 44.68),
    "BDW": _by_domain(21.13, 17.53, 86.38, 18.87, 24.48, 77.49, 23.49, 57.74, 22.49, 46.41),
}
#: The same for the fine-tuned network.
TABLE2_FINETUNED: Mapping[str, Mapping[str, float]] = {
    "RotNet": _by_domain(19.74, 27.64, 95.00, 25.27, 16.67, 82.71, 71.47, 80.95, 29.25, 68.19),
    "NN": _by_domain(19.62, 21.39, 95.82, 26.01, 37.65, 89.17, 72.78, 78.12, 28.43, 69.15),
    "L2RW": _by_domain(17.28, 15.45, 95.29, 18.67, 34.71, 89.65, 66.31, 79.05, 31.67, 63.13),
    "BDW": _by_domain(25.08, 24.90, 96.11, 28.72, 41.37, 93.96, 70.67, 82.21, 33.61, 71.12),
}
#: The means over the ten domains, as printed.
TABLE2_LOGISTIC_MEAN: Mapping[str, float] = {"RotNet": 34.68, "NN": 35.47, "L2RW": 38.62, "BDW": 39.60}
TABLE2_FINETUNED_MEAN: Mapping[str, float] = {"RotNet": 51.69, "NN": 53.81, "L2RW": 51.12, "BDW": 56.78}

#: In the printed order, with the two methods that prune nothing last.
TABLE3 = (
    Table3Row("BDW", 10, 0.5, 0.1, 71.53, 35.06, 106_058),
    Table3Row("BDW", 10, 0.5, 0.25, 71.12, 49.69, 99_192),
    Table3Row("BDW", 10, 0.9, 0.1, 70.74, 0.67, 115_874),
    Table3Row("BDW", 10, 0.9, 0.25, 70.09, 10.45, 119_040),
    Table3Row("BDW", 100, 0.5, 0.1, 69.40, 78.26, 70_125),
    Table3Row("BDW", 100, 0.5, 0.25, 66.11, 83.56, 53_931),
    Table3Row("BDW", 100, 0.9, 0.1, 70.96, 47.49, 101_552),
    Table3Row("BDW", 100, 0.9, 0.25, 69.41, 68.38, 86_143),
    Table3Row("RotNet", None, None, None, 68.19, 0.0, 21_093),
    Table3Row("L2RW", None, None, None, 63.13, 0.0, 116_992),
)

#: Accuracy in per cent of the contest's fine-tuned baseline, from which its points are reckoned (Rebuffi, Bilen,
#: Vedaldi, "Learning multiple visual domains with residual adapters", 2017). Its tenth domain, imagenet12, is our
#: source and STL-10 is not of the contest.
DECATHLON_BASELINE: Mapping[str, float] = {
    "aircraft": 60.34,
    "cifar100": 82.12,
    "daimlerpedcls": 92.82,
    "dtd": 55.53,
    "gtsrb": 97.53,
    "vgg-flowers": 81.41,
    "omniglot": 87.69,
    "svhn": 96.55,
    "ucf101": 51.20,
}
