"""Reads and checks the Visual Decathlon's annotations, COCO-like JSON, into columns.

The files come from elsewhere: whatever is inconsistent is one `ShardError` that names the file. `images` reads the
images.

Layout: ``annotations/<domain>_<split>.json``; images in ``data/<domain>/`` or ``data/<domain>.tar``.
Reference: Rebuffi, Bilen, Vedaldi 2017, Learning multiple visual domains with residual adapters.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array
from shards.errors import Misuse, ShardError
from shards.indexing.domains import check_name
from shards.member_names import IMAGE_SUFFIXES

SPLITS = ("train", "val")
_IMAGES = pa.schema([("id", pa.int64()), ("file_name", pa.string()), ("width", pa.int64()), ("height", pa.int64())])
_ANNOTATIONS = pa.schema([("image_id", pa.int64()), ("category_id", pa.int64())])
_CATEGORIES = pa.schema([("id", pa.int64()), ("name", pa.string())])
_FIELDS = {"images", "annotations", "categories", *_IMAGES.names, *_ANNOTATIONS.names, *_CATEGORIES.names}
_SUFFIX = "|".join(sorted(IMAGE_SUFFIXES))


class Category(NamedTuple):
    """A class: the decathlon's id, and its name."""

    id: int
    name: str


@dataclass(frozen=True)
class AnnotatedSplit:
    """A split of a domain, images in the order of the JSON.

    Args:
        domain, split: names.
        source: path of the JSON file, for messages.
        files: shape (n,), string: unique image paths from the root, below ``data/<domain>/``.
        ids: shape (n,), int64: the decathlon's image ids, unique.
        sizes: shape (n, 2), int64: annotated width and height, pixels.
        labels: shape (n,), int64: positions in ``categories``; -1 for an image without annotation.
        categories: by label; their ids may have gaps.
    """

    domain: str
    split: str
    source: str
    files: pa.StringArray
    ids: Int64Array
    sizes: Int64Array
    labels: Int64Array
    categories: tuple[Category, ...]


def domains(root: Path) -> tuple[str, ...]:
    """Sorted names of the domains with annotations for both train and val.

    Raises:
        Misuse: ``root`` has none, or one with a name that no domain may have.
    """
    found = tuple(sorted(set.intersection(*_annotated(root))))
    folder = root / "annotations"
    if not found:
        expected = "annotations/<domain>_train.json and _val.json"
        raise Misuse("no folder of the decathlon's layout", shard=str(root), expected=expected, found="no such pair")
    for name in found:
        check_name(name, str(folder))
    return found


def with_one_split(root: Path) -> tuple[str, ...]:
    """Sorted names of the domains with annotations for only one of train and val."""
    train, val = _annotated(root)
    return tuple(sorted(train ^ val))


def _annotated(root: Path) -> list[set[str]]:
    """Names of the domains that have annotations for train, and for val."""
    folder = root / "annotations"
    return [{path.name.removesuffix(f"_{split}.json") for path in folder.glob(f"*_{split}.json")} for split in SPLITS]


def read_domain(root: Path, domain: str) -> tuple[AnnotatedSplit, AnnotatedSplit]:
    """Train and val of a domain.

    Raises:
        ShardError: as `read_split`, or the two have different categories.
    """
    train, val = (read_split(root, domain, split) for split in SPLITS)
    if train.categories != val.categories:
        differing = next(iter(set(train.categories) ^ set(val.categories)), train.categories[0])
        found = f"{differing.id} {differing.name!r} in one of them, or elsewhere"
        raise ShardError("train and val have other categories", shard=val.source, expected="equal lists", found=found)
    return train, val


def read_split(root: Path, domain: str, split: str) -> AnnotatedSplit:
    """The content of ``annotations/<domain>_<split>.json``.

    Raises:
        ShardError: the file is missing or no JSON of that form; an id, path or annotation occurs twice; an annotation
            refers to an image or category that is not listed; a path leaves ``data/<domain>/`` or is no image's.
    """
    path = root / "annotations" / f"{domain}_{split}.json"
    source = str(path)
    document = _parse_json(path)
    images = _table(document, "images", _IMAGES, source)
    categories = _categories(document, source)
    for name in ("id", "file_name"):
        _check_unique(images[name], f"{name} of images", source)
    _check_files(images["file_name"], domain, source)
    labels = _labels(_table(document, "annotations", _ANNOTATIONS, source), images["id"], categories, source)
    sizes = np.stack([images["width"].to_numpy(), images["height"].to_numpy()], axis=1)
    files = images["file_name"].combine_chunks()
    return AnnotatedSplit(domain, split, source, files, images["id"].to_numpy(), sizes, labels, categories)


def _parse_json(path: Path) -> dict[str, Any]:
    """The JSON object of a file, without the fields that nobody reads: there may be a million records."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ShardError("is no regular file", shard=str(path))
        text = path.read_bytes()
    except OSError as error:
        raise ShardError(f"cannot be read ({error.strerror})", shard=str(path)) from error
    try:
        # Fractions stay text: Arrow would round them to ids.
        document = json.loads(text, object_hook=_known_fields, parse_float=str, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ShardError(f"is no JSON: {str(error)[:80]}", shard=str(path)) from error
    if not isinstance(document, dict):
        raise ShardError("no annotations", shard=str(path), expected="a JSON object", found=type(document).__name__)
    return document


def _known_fields(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name in _FIELDS}


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def _table(document: dict[str, Any], name: str, schema: pa.Schema, source: str) -> pa.Table:
    """A list of records as an Arrow table without nulls."""
    records = document.get(name)
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        found = type(records).__name__ if not isinstance(records, list) else "something else in it"
        raise ShardError(f"no {name}", shard=source, expected="a list of objects", found=found)
    try:
        table = pa.Table.from_pylist(records, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError) as error:
        expected = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise ShardError(f"{name} of another form", shard=source, expected=expected, found=str(error)[:120]) from error
    for field in schema.names:
        if table[field].null_count:
            place = pc.index(table[field].is_null(), True).as_py()
            raise ShardError(f"{name}: record {place} has no {field}", shard=source)
    return table


def _categories(document: dict[str, Any], source: str) -> tuple[Category, ...]:
    table = _table(document, "categories", _CATEGORIES, source)
    _check_unique(table["id"], "id of categories", source)
    found = tuple(Category(record["id"], record["name"]) for record in table.to_pylist())
    odd = next((category for category in found if not category.name.isprintable() or not category.name.strip()), None)
    if odd is not None:
        problem = f"the name of category {odd.id}"
        raise ShardError(problem, shard=source, expected="a line of text", found=repr(odd.name))
    return found


def _labels(annotations: pa.Table, ids: pa.ChunkedArray, categories: tuple[Category, ...], source: str) -> Int64Array:
    """Position in ``categories`` for each image id, shape (n,), int64; -1 where no annotation refers to it."""
    _check_unique(annotations["image_id"], "image_id of annotations", source)
    rows = pc.index_in(annotations["image_id"], ids)
    _check_known(rows, annotations["image_id"], "an annotation names an image that is not in images", source)
    known = pa.array([category.id for category in categories], pa.int64())
    places = pc.index_in(annotations["category_id"], known)
    _check_known(places, annotations["category_id"], "an annotation names a category that is not in categories", source)
    labels = np.full(len(ids), -1, np.int64)
    labels[rows.to_numpy()] = places.to_numpy()
    return labels


def _check_files(files: pa.ChunkedArray, domain: str, source: str) -> None:
    """Refuse paths that do not lead to an image below ``data/<domain>/``."""
    name = r"[^/\\\pC]+"
    good = pc.match_substring_regex(files, rf"^data/{re.escape(domain)}/({name}/)*{name}\.(?i:{_SUFFIX})$")
    climbs = pc.match_substring_regex(files, r"(^|/)\.\.?(/|$)")
    place = pc.index(pc.and_not(good, climbs), False).as_py()
    if place >= 0:
        expected, found = f"an image below data/{domain}/", repr(files[place].as_py())
        raise ShardError("a file_name that is not followed", shard=source, expected=expected, found=found)


def _check_unique(column: pa.ChunkedArray, what: str, source: str) -> None:
    counts = pc.value_counts(column)
    place = pc.index(pc.greater(counts.field("counts"), 1), True).as_py()
    if place >= 0:
        raise ShardError(f"{what} stands there twice: {counts.field('values')[place].as_py()}", shard=source)


def _check_known(places: pa.ChunkedArray, ids: pa.ChunkedArray, problem: str, source: str) -> None:
    place = pc.index(places.is_null(), True).as_py()
    if place >= 0:
        raise ShardError(f"{problem}: {ids[place].as_py()}", shard=source)
