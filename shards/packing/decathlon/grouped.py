"""Splits of a decathlon domain in which groups are whole: a traffic sign's track, a writer.

The decathlon's own file names tell no group; a file beside them does (`read`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from shards.arrays import Int64Array
from shards.errors import ShardError
from shards.packing.decathlon.annotations import AnnotatedSplit
from shards.packing.group_splits import missing_classes, split_groups
from shards.packing.groups import column_names, gap_notes, read_groups

SIDES = ("train", "val", "test", "unused")
#: As `split_groups` wants them, the most important first: a class without training images cannot be learnt, one without
#: test images not be scored.
_ORDER = ("train", "test", "val", "unused")


def read(path: Path) -> dict[str, str]:
    """The group of each file, by its path from the root (``data/gtsrb/train/0001/000001.jpg``).

    Args:
        path: CSV, also gzipped, or Parquet: columns ``file`` and ``group``; or ``file`` and ``source_path``, the names
            in the original data sets, which tell the tracks of GTSRB (``8/00004_00019.ppm`` is a shot of ``8/00004``)
            and the writers of Omniglot (``character11/0861_06.png`` is by ``06``), and no other groups.

    Raises:
        Misuse, ShardError: as `read_groups`.
    """
    if "group" in column_names(path) or "source_path" not in column_names(path):
        return read_groups(path)
    found = {}
    for file, source in read_groups(path, "source_path").items():
        domain, stem = (file.split("/") + [""])[1], source.rpartition(".")[0]
        if domain in ("gtsrb", "omniglot"):
            found[file] = stem.rpartition("_")[0 if domain == "gtsrb" else 2]
    return found


def joined(train: AnnotatedSplit, val: AnnotatedSplit) -> AnnotatedSplit:
    """All images of a domain as one split, train's first.

    Raises:
        ShardError: an image stands in both.
    """
    files = pa.concat_arrays([train.files, val.files])
    both = set(train.files.to_pylist()) & set(val.files.to_pylist())
    if both:
        raise ShardError("an image stands in train and in val", shard=val.source, found=min(both))
    return AnnotatedSplit(
        domain=train.domain,
        split="train and val",
        source=train.source,
        files=files,
        ids=np.concatenate([train.ids, val.ids]),
        sizes=np.concatenate([train.sizes, val.sizes]),
        labels=np.concatenate([train.labels, val.labels]),
        categories=train.categories,
    )


def split(
    whole: AnnotatedSplit, groups: Mapping[str, str | None], sizes: Mapping[str, int], seed: int
) -> tuple[dict[str, Int64Array], tuple[str, ...]]:
    """Rows of each side, sorted, with whole groups; and notes on the classes that a side lacks.

    Args:
        groups: the group of each file; None for one that stands alone.
        sizes: rows wanted of each of `SIDES`; as far as groups allow, and so in each class.

    Raises:
        ShardError: a side that should have rows has none.
    """
    rows = np.flatnonzero(whole.labels >= 0)
    files = whole.files.take(pa.array(rows)).to_pylist()
    total = sum(sizes.values())
    shares = [sizes[name] / total for name in _ORDER]
    labels, of = whole.labels[rows], [groups[file] for file in files]
    sides = split_groups(labels, of, shares, seed, needed=3)
    found = {name: rows[sides == _ORDER.index(name)] for name in SIDES}
    if empty := [name for name in SIDES[:3] if not len(found[name])]:
        raise ShardError(f"too few groups: {empty[0]} would be empty", shard=whole.source, todo="tell smaller groups")
    held: dict[int, set[str]] = {}
    for label, group, file in zip(labels.tolist(), of, files):
        held.setdefault(label, set()).add(group or file)
    counts = {whole.categories[label].name: len(each) for label, each in held.items()}
    missing = {
        name: [whole.categories[label].name for label in missing_classes(labels, sides, _ORDER.index(name)).tolist()]
        for name in SIDES[:3]
    }
    whole_groups = f"new splits of {len(set(of) - {None}):,} whole groups"
    alone = sum(group is None for group in of)
    return found, (
        whole_groups + (f", and {alone:,} images that stand alone" if alone else ""),
        *gap_notes(counts, missing),
    )
