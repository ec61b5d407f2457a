"""The target's images that a pilot is scored on: few, small, decoded once and kept in a file.

Networks are read on val, not on test: advice is a choice, and what a choice was made on says nothing any more of what
came of it. Test stays for `curate evaluate`.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from curate.data.decode import Decoder
from curate.data.photos import Photos
from curate.data.target import Split, TargetIndex, label_of
from curate.errors import CurateError
from curate.types import Ints
from shards import shuffle, stream
from shards.indexing.index import Index
from shards.io.atomic import write_bytes
from shards.io.images import ImageError

#: Classes, and images of all of them together on each side, at most: a regression on 1,600 classes takes minutes.
CLASSES, IMAGES = 50, 2000


class Unscorable(CurateError):
    """A target by which no pilot can be scored; its text says why."""


@dataclass(frozen=True)
class Scored:
    """What a pilot's networks are read on.

    Args:
        train, held: uint8 pixels (n, C, S, S) and int64 labels (n,) in 0 .. classes - 1: labels are drawn from the
            first, the second is told.
        classes: how many.
        notes: what is to be known of them.
    """

    train: tuple[Tensor, Tensor]
    held: tuple[Tensor, Tensor]
    classes: int
    notes: tuple[str, ...] = ()


def draw(target: TargetIndex, decoder: Decoder, seed: int) -> Scored:
    """Draw classes and images; without a labelled val, half of each class's train images are held out.

    Raises:
        Unscorable: the target has no labels, or fewer than two classes on both sides.
    """
    train = target.splits["train"]
    known, notes = labels_in(train), []
    if not (known >= 0).any():
        raise Unscorable("the target has no labels (.cls members with a number)")
    held, told = target.splits.get("val", train), known
    if held is not train:
        told = labels_in(held)
    if held is train or not (told >= 0).any():
        held, told, known = train, *_halved(known, seed)
        notes.append("no labelled val/: half of train is held out image by image, so near-copies may flatter every set")
    both = np.intersect1d(known[known >= 0], told[told >= 0])
    chosen = np.sort(both[shuffle.permutation(seed, "pilot's classes", 0, len(both))[:CLASSES]])
    if len(chosen) < len(both):
        notes.append(f"scored on {len(chosen)} of {len(both)} classes, drawn by the seed")
    sides = [
        _decoded(split, _some(labels, chosen, seed), labels, decoder)
        for split, labels in ((train, known), (held, told))
    ]
    return _relabelled(sides, notes)


def labels_in(split: Split) -> Ints:
    """The label of every sample of a split, -1 where there is none."""
    if isinstance(split, Photos):
        return np.full(len(split), -1, np.int64)
    found = (label_of(sample.get("cls")) for sample in stream.samples(split, np.arange(len(split))))
    return np.array([-1 if label is None else label for label in found], np.int64)


def save(path: Path, scored: Scored) -> None:
    """Keep them where the pilot's processes find them."""
    file = io.BytesIO()
    x, y, held_x, held_y = (tensor.numpy() for tensor in (*scored.train, *scored.held))
    np.savez(file, x=x, y=y, held_x=held_x, held_y=held_y)
    write_bytes(path, file.getvalue())


def load(path: Path) -> Scored:
    """What `save` kept, without its notes.

    Raises:
        CurateError: the file is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as held:
            x, y, held_x, held_y = (torch.from_numpy(held[name]) for name in ("x", "y", "held_x", "held_y"))
    except (ValueError, KeyError, OSError) as error:
        raise CurateError(f"{path}: is damaged ({error!r:.80}); remove it, and it is made again") from error
    return Scored((x, y), (held_x, held_y), int(y.max()) + 1)


def _halved(labels: Ints, seed: int) -> tuple[Ints, Ints]:
    """Labels twice, each image's in one of them, -1 in the other; every other image of a class, in an order drawn."""
    one, other = np.full(len(labels), -1, np.int64), np.full(len(labels), -1, np.int64)
    turn = np.asarray(shuffle.permutation(seed, "held out of train", 0, len(labels)))
    for label in np.unique(labels[labels >= 0]):
        rows = turn[labels[turn] == label]
        one[rows[::2]] = other[rows[1::2]] = label
    return other, one


def _some(labels: Ints, classes: Ints, seed: int) -> Ints:
    """Rows of these classes, as many of each at most, increasing."""
    turn = np.asarray(shuffle.permutation(seed, "pilot's images", 0, len(labels)))
    most = max(1, IMAGES // max(1, len(classes)))
    return np.sort(np.concatenate([np.empty(0, np.int64), *(turn[labels[turn] == each][:most] for each in classes)]))


def _decoded(split: Split, rows: Ints, labels: Ints, decoder: Decoder) -> tuple[list[Tensor], list[int]]:
    """Pixels and labels of the rows that decode."""
    assert isinstance(split, Index)  # image files have no labels
    pictures, known = [], []
    for row, body in zip(rows.tolist(), stream.images(split, rows), strict=True):
        try:
            pictures.append(decoder.pixels(body))
        except ImageError:
            continue
        known.append(int(labels[row]))
    return pictures, known


def _relabelled(sides: list[tuple[list[Tensor], list[int]]], notes: list[str]) -> Scored:
    """Classes that are left on both sides, from 0."""
    classes = sorted(set(sides[0][1]) & set(sides[1][1]))
    if len(classes) < 2:
        raise Unscorable(
            f"{len(classes)} class(es) have labelled images that decode in train and held out; two are needed"
        )
    found = []
    for pictures, labels in sides:
        places = [place for place, label in enumerate(labels) if label in classes]
        found.append(
            (
                torch.stack([pictures[place] for place in places]),
                torch.tensor([classes.index(labels[p]) for p in places]),
            )
        )
    return Scored(found[0], found[1], len(classes), tuple(notes))
