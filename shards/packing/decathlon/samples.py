"""The samples of annotated images: bytes as they stand, decoded beforehand; a target's with label and original ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array
from shards.faults import Fault
from shards.io.images import ImageError, decode
from shards.packing.decathlon.annotations import AnnotatedSplit
from shards.packing.decathlon.images import ImageReader
from shards.packing.made import Made, Maker

#: Some images of a split: shape (n,), int64.
Rows = tuple[AnnotatedSplit, Int64Array]


class Raw(NamedTuple):
    """An image as it was read.

    Args:
        file: its path from the root.
        size: annotated width and height, pixels.
        members: of its sample: name and body, the image first.
    """

    file: str
    size: Sequence[int]
    members: Sequence[tuple[str, bytes]]


def maker_of(parts: Sequence[Rows], readers: Sequence[ImageReader], labelled: bool) -> Maker[list[Raw]]:
    """What makes the samples of several parts, one after the other.

    Args:
        readers: of each part's split.
        labelled: each sample has its label (``.cls``) and original ids (``.json``).
    """
    rows = np.concatenate([rows for _, rows in parts])
    of = np.repeat(np.arange(len(parts)), [len(rows) for _, rows in parts])
    keys = [keys_of(split.files) for split, _ in parts]

    def load(numbers: range) -> list[Raw]:
        return [_raw(rows[number], of[number]) for number in numbers]

    def _raw(row: int, part: int) -> Raw:
        split, key, row = parts[part][0], keys[part][row].as_py(), int(row)
        file = split.files[row].as_py()
        members = [(f"{key}.{file.rpartition('.')[2]}", readers[part](row))]
        if labelled:
            label = int(split.labels[row])
            ids = {"image_id": int(split.ids[row]), "category_id": split.categories[label].id}
            members += [(f"{key}.cls", b"%d" % label), (f"{key}.json", json.dumps(ids).encode())]
        return Raw(file, split.sizes[row].tolist(), members)

    return Maker(len(rows), load, decoded)


def decoded(raws: Sequence[Raw]) -> list[Made]:
    """The sample of each image that decodes; said is the ``fault`` of one that does not, or another ``size``."""
    return [_decoded(raw) for raw in raws]


def _decoded(raw: Raw) -> Made:
    try:
        picture = decode(raw.members[0][1])
    except ImageError as error:
        return Made(None, {"fault": Fault(error.kind, raw.file, None, None, error.detail).record()})
    said: dict[str, Any] = {}
    if sorted(picture.size) != sorted(raw.size):  # which is which depends on how the annotator's reader turned it
        width, height = picture.size
        said["size"] = f"{raw.file}: {width} x {height}, annotated {raw.size[0]} x {raw.size[1]}"
    return Made(raw.members, said)


def keys_of(files: pa.StringArray) -> pa.StringArray:
    """Paths from the root -> keys: no ``data/``, no extension, no other dot in the file's name.

    >>> keys_of(pa.array(["data/dtd/train/0001/a.1.jpg"])).to_pylist()
    ['dtd/train/0001/a_1']
    """
    parts = pc.extract_regex(files, r"^data/(?P<folder>.*/)(?P<stem>[^/]*)\.[^/.]*$")
    stem = pc.replace_substring(pc.struct_field(parts, "stem"), ".", "_")
    return pc.binary_join_element_wise(pc.struct_field(parts, "folder"), stem, "")
