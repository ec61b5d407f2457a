"""What can be packed: a row a kind of data, and the options of its packer.

`curate pack` has a command a row, whose arguments, options and help follow from it; `curate.pack` takes the same names.
Nothing here imports torch or pyarrow. How to add a row, in this package or from another, is in docs/extend.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from curate.config.registry import Registry
from curate.errors import Misuse


class PackReport(Protocol):
    """What a packer returns, a dataclass of JSON's values besides."""

    def text(self) -> str:
        """What was packed, for people."""

    def remarks(self) -> list[str]:
        """What a person should know besides, a line each."""


@dataclass(frozen=True)
class PackOption:
    """A keyword argument of a packer, and an option of its command.

    Args:
        name: of the argument; the option has dashes for underscores.
        help: a sentence, which says the default where there is one.
        type: str; int; or bool, of an option that takes no value.
        within: the least and the greatest value of a number; a count has `COUNT`.
        parse: the argument from the option's text; None where it is the text itself.
        default: shown and passed on where the option is not given; None leaves the argument out.
        required: whether it must be given.
        metavar: what the help calls the value; None for its type.
    """

    name: str
    help: str
    type: type = str
    within: tuple[int, int] | None = None
    parse: Callable[[str], Any] | None = None
    default: Any = None
    required: bool = False
    metavar: str | None = None


@dataclass(frozen=True)
class PackerSpec:
    """A way from a kind of data to shards.

    Args:
        factory: the packer itself, or where it is, ``module:function``. It is called with the path of the source (a
            list of paths where it takes several), ``out``, ``seed``, ``shard_size`` (bytes; left out for its own
            default) and the options that were given; gives a `PackReport`.
        title: what it packs, as it follows "Pack": the first sentence of the help.
        layout: what it takes, in a few words.
        makes: a store, a target, both at once, or one of them as an option says.
        details: what else the help says.
        examples: arguments of ``curate pack NAME``, for the help.
        out: what ``--out`` is.
        source: name of its argument.
        several: whether it takes several sources.
        is_file: whether the source is a file, not a folder.
        or_file: whether a folder's packer takes a file, too.
        exists: whether the source must be there beforehand.
        options: besides ``out``, ``seed`` and ``shard_size``, which every packer has.
    """

    factory: str | Callable[..., Any]
    title: str
    layout: str
    makes: Literal["store", "target", "store and target", "store or target"] = "store"
    details: str = ""
    examples: tuple[str, ...] = ()
    out: str = "Gets store and target; must not hold anything yet."
    source: str = "folder"
    several: bool = False
    is_file: bool = False
    or_file: bool = False
    exists: bool = True
    options: tuple[PackOption, ...] = ()


def shares(text: str) -> tuple[float, float, float]:
    """'0.4,0.2,0.4' -> three floats.

    Raises:
        Misuse: not three numbers; that they are shares is for the packer to see.
    """
    try:
        train, val, test = (float(part) for part in text.split(","))
    except ValueError as error:
        raise Misuse(f"--split {text!r}: expected three shares such as 0.4,0.2,0.4") from error
    return train, val, test


def names(text: str) -> tuple[str, ...]:
    """'gtsrb, dtd' -> ("gtsrb", "dtd")."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def targets(text: str) -> tuple[str, ...]:
    """As `names`.

    Raises:
        Misuse: there is none.
    """
    if not names(text):
        raise Misuse(f"--domains {text!r}: names no domain; name some, or leave it out for all")
    return names(text)


#: A number of images: what 64 bits count with room to spare.
COUNT = (1, 2**60)
WORKERS = PackOption("workers", "Processes [default: one a core, at most 8].", int, (1, 1024))

PACKERS: Registry[PackerSpec] = Registry(
    "packer",
    "curate.packers",
    PackerSpec,
    {
        "imagefolder": PackerSpec(
            "curate.experiments.packing:imagefolder",
            "image files: a store, or with --target a labelled target",
            layout="image files at any depth, or a table of their paths; of a target, a folder a class",
            makes="store or target",
            details="FOLDER may be a CSV, .jsonl or Parquet file with a column file of paths and URLs. Captions "
            "(x.txt, x.json, metadata.csv) go along. Stopped, the same command goes on.",
            examples=(
                "photos --out store",
                "urls.parquet --out store --allow-missing",
                "flowers --out target --target --group-by '^(.+)_'",
                "photos --out target --target --labels labels.csv",
            ),
            out="The folder of shards; must not hold anything yet.",
            or_file=True,
            options=(
                PackOption(
                    "target",
                    "A labelled target with train/, val/, test/, by class folders or --labels; splits that are there "
                    "are kept.",
                    bool,
                ),
                PackOption(
                    "labels",
                    "CSV or Parquet file with columns file, label and perhaps split.",
                    metavar="FILE",
                ),
                PackOption(
                    "split",
                    "Shares of train, val, test [default: 0.4,0.2,0.4; more in train of fewer than 100 a class].",
                    parse=shares,
                    metavar="A,B,C",
                ),
                WORKERS,
                PackOption(
                    "group_by",
                    "What stays in one split together: a regular expression on the path (first bracket or whole "
                    "match), a CSV or Parquet file with columns file, group; or near-duplicates, by their look.",
                    metavar="GROUPS",
                ),
                PackOption("allow_missing", "Go on without what a table names and is not to be had.", bool),
            ),
        ),
        "idx": PackerSpec(
            "shards.api:pack_idx",
            "sets in MNIST's layout: the training images of all as OUT/store, one set's own as OUT/target",
            layout="folders of idx files, such as train-images-idx3-ubyte.gz",
            makes="store and target",
            details="The target has 10,000 of its set's training images (a sixth where there are fewer than 60,000), "
            "a tenth of these as val, and its t10k images as test; all others are the store.",
            examples=("idx/mnist idx/fashion-mnist --own mnist --out mnist-task",),
            source="folders",
            several=True,
            options=(
                PackOption("own", "The set that is the target, by its folder's name.", required=True, metavar="NAME"),
                PackOption("store_images", "Images of each set in the store, at most [default: all].", int, COUNT),
                PackOption("train_images", "Target images that drive the weights, at most [default: all].", int, COUNT),
                PackOption("val_images", "Target images that select the epoch, at most [default: all].", int, COUNT),
                PackOption("test_images", "Target images that give the result, at most [default: all].", int, COUNT),
                WORKERS,
            ),
        ),
        "stl10": PackerSpec(
            "curate.experiments.packing:stl10",
            "the binary files of STL-10: the unlabelled images as OUT/store, the labelled ones as OUT/target",
            layout="stl10_binary, or the folder it lies in",
            makes="store and target",
            details="Train and val are halves of the labelled train images, test is STL-10's. Every pixel is kept "
            "(PNG).",
            examples=("stl10_binary --out stl10", "data --download --out stl10"),
            exists=False,
            options=(
                PackOption("fold", "Train and val of this predefined fold, from 0.", int, (0, 999)),
                PackOption("download", "Fetch STL-10 into FOLDER first where it lacks (2.6 GB, unpacked 5.5).", bool),
                WORKERS,
            ),
        ),
        "decathlon": PackerSpec(
            "curate.experiments.packing:decathlon",
            "the Visual Decathlon from ROOT/annotations and ROOT/data, whose images are folders or a tar a domain",
            layout="decathlon-1.0: annotations/, and data/ with a folder or a tar a domain",
            makes="store and target",
            details="A target's train and val are halves of as many train images as the paper takes, its test is the "
            "official val split. Image bytes stay as they are. Stopped, the same command goes on.",
            examples=(
                "decathlon-1.0 --out decathlon",
                "decathlon-1.0 --domains gtsrb,dtd --mix dtd --out mix",
                "decathlon-1.0 --groups origin.csv.gz --out tracks",
            ),
            out="Gets store and targets/DOMAIN; must not hold anything yet.",
            source="root",
            options=(
                PackOption(
                    "domains",
                    "The targets [default: all with annotations and images].",
                    parse=targets,
                    metavar="A,B",
                ),
                PackOption("source", "The domain whose train images are the store.", default="imagenet12"),
                PackOption(
                    "mix", "Domains whose unused train images go into the store too.", parse=names, metavar="A,B"
                ),
                WORKERS,
                PackOption(
                    "groups",
                    "New splits of whole groups, of the same sizes: CSV or Parquet of file, group (or source_path: "
                    "GTSRB, Omniglot); or near-duplicates, by their look.",
                    metavar="GROUPS",
                ),
            ),
        ),
    },
)
