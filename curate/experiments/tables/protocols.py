"""The target data sets of the paper's Tables 2 and 3: sizes and episode shapes (docs/method.md sections 3 and 7).

Facts only. How an episode is drawn from classes with few images is `metalosses.prototypical`'s; names are those of the
Visual Decathlon, and "stl10".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Domain:
    """A target; the defaults are what the paper does where it says nothing of a data set.

    Args:
        name: of the data set.
        ways, shots, queries: of an episode: classes, and support and query images a class. A target with fewer classes
            or images has smaller episodes.
        labelled: images of train and val together, halves of each class.
        stl10: whether source, target and feature tap are STL-10's (pre-logit), not the decathlon's (second block).
    """

    name: str
    ways: int = 20
    shots: int = 5
    queries: int = 5
    labelled: int = 2_000
    stl10: bool = False


#: In the order of the columns of Table 2.
DOMAINS = (
    Domain("aircraft"),
    Domain("cifar100"),
    Domain("daimlerpedcls", ways=2, shots=50, queries=50),
    Domain("dtd", labelled=1_880),
    Domain("vgg-flowers", labelled=1_020),
    Domain("gtsrb", labelled=2_150),
    Domain("omniglot", ways=50, shots=2, queries=2, labelled=16_230),
    Domain("svhn", ways=10, shots=10, queries=10),
    Domain("ucf101", labelled=2_020),
    Domain("stl10", ways=10, shots=10, queries=10, labelled=5_000, stl10=True),
)


def of(name: str) -> Domain:
    """The target of that name; for one that the paper does not have, the defaults.

    >>> of("svhn").ways, of("a set of my own").ways
    (10, 20)
    """
    return next((domain for domain in DOMAINS if domain.name == name), Domain(name))


def labelled(name: str) -> int:
    """The number of images in train and val together of the target of that name."""
    return of(name).labelled
