"""Small domains in the decathlon's layout, in folders or as tars, and how tests read what was packed of them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from shard_makers import indexed

from shards.stream import samples

#: Ids of three categories as in a domain of which only some classes are there: the second and fifth are missing.
GAPS = (30_000_001, 30_000_003, 30_000_007)

Annotations = dict[str, list[dict[str, Any]]]


def jpeg(value: int, size: tuple[int, int] = (9, 8)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (value, 255 - value, 7)).save(file, "JPEG")
    return file.getvalue()


def annotations_of(domain: str, split: str, per_class: int, first: int) -> Annotations:
    """``per_class`` images of each of three categories, in the order of the images' ids."""
    images, annotations = [], []
    for number in range(3 * per_class):
        file = f"data/{domain}/{split}/{number % 3 + 1:04d}/{number:06d}.jpg"
        images.append({"id": first + number, "width": 9, "height": 8, "file_name": file})
        annotations.append({"id": number, "image_id": first + number, "category_id": GAPS[number % 3], "area": 0.5})
    categories = [{"id": id, "name": name, "supercategory": domain} for id, name in zip(GAPS, ("ant", "bee", "fly"))]
    return {"images": images, "annotations": annotations, "categories": categories}


def make_domain(root: Path, domain: str, train: int, val: int) -> None:
    """A domain in folders, with so many images a class in train and val; annotations stand in reverse order."""
    for split, per_class, first in (("train", train, 200_001), ("val", val, 300_001)):
        said = annotations_of(domain, split, per_class, first)
        for image in said["images"]:
            path = root / image["file_name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(image["id"] % 251))
        said["annotations"].reverse()
        (root / "annotations").mkdir(exist_ok=True)
        (root / "annotations" / f"{domain}_{split}.json").write_text(json.dumps({"info": {"year": 2017}, **said}))


def into_tar(root: Path, domain: str, prefix: str = "", mode: str = "w") -> None:
    """Move a domain's folder into its tar."""
    with tarfile.open(root / "data" / f"{domain}.tar", mode) as tar:
        tar.add(root / "data" / domain, prefix + domain)
    (root / "data" / domain).rename(root / f"was-{domain}")


def change(root: Path, change: Callable[[Annotations], Any], name: str = "dtd_train") -> None:
    """Rewrite an annotation file."""
    path = root / "annotations" / f"{name}.json"
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


def make_root(root: Path) -> Path:
    """A source of 12 images and two targets, 12 train and 6 val images each."""
    for name, train, val in (("imagenet12", 4, 1), ("dtd", 4, 2), ("svhn", 4, 2)):
        make_domain(root, name, train, val)
    return root


def held(split: Path) -> dict[str, dict[str, Any]]:
    """Every sample of a shard set by its key."""
    index = indexed(split)
    return {sample["__key__"]: sample for sample in samples(index, np.arange(len(index)))}
