"""The paper's targets: the sizes and episodes of docs/method.md sections 3 and 7, and what an unknown set gets."""

from __future__ import annotations

import pytest

from curate.experiments.tables.protocols import DOMAINS, Domain, labelled, of

#: Section 7: images of train and val together.
SIZES = {
    "aircraft": 2_000,
    "cifar100": 2_000,
    "daimlerpedcls": 2_000,
    "dtd": 1_880,
    "vgg-flowers": 1_020,
    "gtsrb": 2_150,
    "omniglot": 16_230,
    "svhn": 2_000,
    "ucf101": 2_020,
    "stl10": 5_000,
}
#: The decathlon's classes (Rebuffi et al. 2017, table 1) and STL-10's ten.
CLASSES = {
    "aircraft": 100,
    "cifar100": 100,
    "daimlerpedcls": 2,
    "dtd": 47,
    "vgg-flowers": 102,
    "gtsrb": 43,
    "omniglot": 1_623,
    "svhn": 10,
    "ucf101": 101,
    "stl10": 10,
}


def test_every_target_of_the_paper_has_its_size() -> None:
    assert {domain.name: domain.labelled for domain in DOMAINS} == SIZES


@pytest.mark.parametrize("name", SIZES)
def test_both_halves_have_equally_many_of_every_class(name: str) -> None:
    """Which is how the sizes come about: an even number of images of every class."""
    assert labelled(name) % (2 * CLASSES[name]) == 0


@pytest.mark.parametrize(
    ("name", "episode"),
    [
        ("daimlerpedcls", (2, 50, 50)),
        ("omniglot", (50, 2, 2)),
        ("svhn", (10, 10, 10)),
        ("stl10", (10, 10, 10)),
        *((name, (20, 5, 5)) for name in ("aircraft", "cifar100", "dtd", "gtsrb", "ucf101", "vgg-flowers")),
    ],
)
def test_episodes_have_the_papers_shapes(name: str, episode: tuple[int, int, int]) -> None:
    """Section 3; as many queries as shots."""
    domain = of(name)
    assert (domain.ways, domain.shots, domain.queries) == episode
    assert domain.ways <= CLASSES[name]


def test_only_stl10_is_stl10() -> None:
    assert [domain.name for domain in DOMAINS if domain.stl10] == ["stl10"]


def test_an_unknown_set_has_the_defaults() -> None:
    assert of("mnist") == Domain("mnist", ways=20, shots=5, queries=5, labelled=2_000, stl10=False)
