"""The target: a folder with train/, val/ and test/, each a shard set of images with labels (.cls), and classes.txt.

Where it is only looked at, images alone will do (`curate.data.splits`). A target is small: each split is decoded once,
into memory.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from curate.data.decode import Decoder
from curate.data.photos import Photos
from curate.data.splits import SPLITS as SPLITS
from curate.data.splits import sources_of
from curate.errors import CurateError
from curate.types import Ints
from shards import stream
from shards.indexing import index
from shards.io.images import ImageError

#: ASCII digits, no more than int64 holds.
_LABEL = re.compile(rb"\s*(-?[0-9]{1,18})\s*")


#: Shards by their index, or image files.
Split = index.Index | Photos


@dataclass(frozen=True)
class TargetIndex:
    """The splits of a target that exist, by name; train always does.

    ``notes`` say what of the splits' folders was passed over.
    """

    splits: dict[str, Split]
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """sha256 of the contents of all splits; the same wherever the target lies."""
        text = "\n".join(f"{name} {split.fingerprint}" for name, split in self.splits.items())
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class LabelledImages:
    """A decoded split.

    Args:
        pixels: shape (n, C, size, size), uint8, on the CPU.
        labels: shape (n,), int64; None where no sample has a label.
        left_out: how many samples were left out, by reason.
        words: where no label is a number but there are some, what stands there and what to do; else empty.
    """

    pixels: Tensor
    labels: Tensor | None
    left_out: dict[str, int]
    words: str = ""


def open_target(target: str | Path) -> TargetIndex:
    """Index the splits of a target, in memory; nothing is written.

    Args:
        target: as `curate.data.splits.sources_of` has it.

    Raises:
        CurateError: no such target, or no train split.
    """
    sources = sources_of(target)
    passed_over = {name: found.passed_over.left_out() for name, found in sources.items()}
    notes = tuple(f"of the target's {name}/ was passed over: {what}" for name, what in passed_over.items() if what)
    splits = {name: found if isinstance(found, Photos) else index.build(found)[0] for name, found in sources.items()}
    return TargetIndex(splits, notes)


def names_of(split: Split) -> pa.Table:
    """The columns ``shard`` and ``key`` of a split's samples; image files are of the shard ``""``."""
    if isinstance(split, Photos):
        return pa.table({"shard": [""] * len(split), "key": list(split.paths)})
    return split.table.select(["shard", "key"])


def is_labelled(target: TargetIndex) -> bool:
    """Whether any sample of train has a label."""
    train = target.splits["train"]
    if isinstance(train, Photos):
        return False
    return any("cls" in sample for sample in stream.samples(train, np.arange(len(train))))


def load_split(target: TargetIndex, name: str, decoder: Decoder) -> LabelledImages:
    """Decode a split whole.

    An image that does not decode, or whose label is no integer while others are, is left out and counted.

    Raises:
        CurateError: no such split, or nothing in it decodes.
    """
    if name not in target.splits:
        raise CurateError(f"the target has no {name}/ split (it has: {', '.join(target.splits)})")
    pictures, labels, left_out = [], [], Counter[str]()
    words: list[tuple[str, bytes]] = []
    for key, body, label in _bodies(target.splits[name]):
        try:
            picture = decoder.pixels(body)
        except ImageError as error:
            left_out[error.kind] += 1
            continue
        pictures.append(picture)
        labels.append(label_of(label))
        if labels[-1] is None and label is not None:
            words.append((key, label))
    if all(label is None for label in labels):
        wanted = list(range(len(pictures)))
    else:
        wanted = [i for i, label in enumerate(labels) if label is not None]
        left_out["bad-label"] += len(labels) - len(wanted)
    if not wanted:
        raise CurateError(f"the target's {name}/ holds no image that decodes ({dict(left_out) or 'it is empty'})")
    known = [label for label in labels if label is not None]
    return LabelledImages(
        torch.stack([pictures[i] for i in wanted]),
        torch.tensor(known) if known else None,
        dict(+left_out),
        _in_words(name, words) if words and not known else "",
    )


def _bodies(split: Split) -> Iterator[tuple[str, bytes, bytes | None]]:
    """The key of each sample, its image, empty where there is none, and its label."""
    if isinstance(split, Photos):
        yield from ((path, body, None) for path, body in zip(split.paths, split.bodies()))
        return
    for sample in stream.samples(split, np.arange(len(split))):
        image = split.table["image"][sample["__row__"]].as_py()
        yield sample["__key__"], sample[image] if image else b"", sample.get("cls")


def _in_words(name: str, words: list[tuple[str, bytes]]) -> str:
    """That labels are there, but none of them a number."""
    key, text = words[0]
    shown = ascii(text[:40].decode("utf-8", "replace"))
    return (
        f"{name}/: none of its {len(words)} labels (.cls members) is a number, the first is {shown}, of {key}; "
        "write the class's number there, from 0, as `curate pack imagefolder --target` does for class folders"
    )


def label_of(text: bytes | None) -> int | None:
    """The integer of a .cls member; None where there is none, or something else.

    >>> label_of(b"10\\n"), label_of(b""), label_of(None)
    (10, None, None)
    """
    match = _LABEL.fullmatch(text or b"")
    return int(match[1]) if match else None


def refuse_gaps(labels: Ints, classes: int) -> None:
    """Refuse training labels that do not show every class.

    Args:
        labels: shape (n,), int64, in 0 .. classes - 1.

    Raises:
        CurateError: fewer than two classes, or a class without an example; the first five are named.
    """
    if classes < 2:
        raise CurateError(f"train: expected at least 2 classes, found {classes}; give a labelled target")
    missing = np.setdiff1d(np.arange(classes), labels)
    if len(missing):
        names = ", ".join(str(label) for label in missing[:5]) + (" ..." if len(missing) > 5 else "")
        raise CurateError(f"train: {len(missing)} of {classes} classes have no example ({names}); split by class")
