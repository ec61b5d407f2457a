"""Reads the image files that annotations list, from a domain's folder or straight from its tar, without unpacking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import BoolArray, Int64Array
from shards.errors import ShardError
from shards.io.folders import PassedOver, walk_folder
from shards.io.mapped import Buffer, open_mapped
from shards.io.regular_files import read_regular
from shards.io.shard_set import SUFFIXES
from shards.member_names import IMAGE_SUFFIXES
from shards.packing.decathlon.annotations import AnnotatedSplit
from shards.tar.bulk_walk import MemberRun, decode_names
from shards.tar.walk import FILE, Member, walk_runs

#: Row of the annotations -> bytes of the image file.
ImageReader = Callable[[int], bytes]


def images_path(root: Path, domain: str) -> Path | None:
    """The folder ``data/<domain>``, or the tar of that name; None where there is neither."""
    folder = root / "data" / domain
    if folder.is_dir():
        return folder
    return next((path for suffix in SUFFIXES if (path := folder.with_name(domain + suffix)).is_file()), None)


@contextmanager
def open_images(root: Path, split: AnnotatedSplit) -> Iterator[ImageReader]:
    """Open the images of a split; yields a function from row to bytes.

    Raises:
        ShardError: there is neither folder nor tar, or images are missing in it.
    """
    place = images_path(root, split.domain)
    if place is None:
        expected = f"{split.domain}/ or {split.domain}.tar"
        raise ShardError("no images of this domain", shard=str(root / "data"), expected=expected, found="neither")
    if place.is_dir():
        there = np.fromiter(((root / file.as_py()).is_file() for file in split.files), bool, len(split.files))
        _check_present(there, split, place)
        yield lambda row: read_regular(root / split.files[row].as_py())
        return
    with open_mapped(str(place)) as source:
        bodies, sizes = _locate_in_tar(source.buffer, split)
        _check_present(bodies >= 0, split, place)
        yield lambda row: bytes(source.buffer[bodies[row] : bodies[row] + sizes[row]])


def unannotated(root: Path, domain: str, files: set[str]) -> PassedOver:
    """What the folder of a domain holds besides ``files`` (paths from ``root``); nothing where it is a tar."""
    place = images_path(root, domain)
    if place is None or not place.is_dir():
        return PassedOver()
    found, passed_over = walk_folder(place, lambda name: Path(name).suffix[1:].lower() in IMAGE_SUFFIXES)
    others = Counter(Path(path).suffix.lower() for path in found if f"data/{domain}/{path}" not in files)
    # A link is followed where annotations lead through it.
    links = {path: f"data/{domain}/{path}/" for path in passed_over.linked_folders}
    linked = tuple(path for path, start in links.items() if not any(file.startswith(start) for file in files))
    return replace(passed_over, linked_folders=linked, others=dict(Counter(passed_over.others) + others))


def _locate_in_tar(buffer: Buffer, split: AnnotatedSplit) -> tuple[Int64Array, Int64Array]:
    """Offset and size in the tar of each image of the split: two arrays (n,), int64; -1 where it is missing."""
    names, bodies, sizes = [pa.array([], pa.string())], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for piece in walk_runs(buffer, split.domain):
        if isinstance(piece, MemberRun):
            names.append(_names(decode_names(piece.names)))
            bodies.append(piece.bodies)
            sizes.append(piece.sizes)
        elif isinstance(piece, Member) and piece.kind == FILE:
            names.append(_names([piece.name]))
            bodies.append(np.array([piece.body]))
            sizes.append(np.array([piece.size]))
    wanted = pc.replace_substring_regex(split.files, "^data/", "")
    # Of two members of one name the last counts, as when a tar is unpacked.
    held = pa.concat_arrays(names)[::-1]
    found = pc.fill_null(pc.index_in(wanted, held), len(held)).to_numpy()
    at, long = (np.append(np.concatenate(column)[::-1], -1) for column in (bodies, sizes))
    return at[found], long[found]


def _names(names: list[str]) -> pa.StringArray:
    """Member names as annotations write them; one that is not UTF-8 cannot match any."""
    plain = (name.removeprefix("./") for name in names)
    return pa.array([name.encode("utf-8", "replace").decode() for name in plain], pa.string())


def _check_present(there: BoolArray, split: AnnotatedSplit, place: Path) -> None:
    missing = np.flatnonzero(~there)
    if len(missing):
        of, first = f"{len(missing)} of {len(there)} images of {Path(split.source).name}", split.files[missing[0]]
        raise ShardError(f"{of} are missing, the first {first}", shard=str(place), todo="get the whole archive again")
