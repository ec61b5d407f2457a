"""Samples of real images for the benchmarks that read and decode, over and over."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import sklearn

from shards.tar.writer import Sample


def small(data: Path) -> Iterator[Sample]:
    """The decathlon's images, mostly of 72 px, with a caption and a JSON each, as img2dataset writes them."""
    images = []
    for path in sorted((data / "decathlon-1.0" / "data").glob("*.tar")):
        with tarfile.open(path) as tar:
            images += [body.read() for member in tar if member.isreg() and (body := tar.extractfile(member))]
    for number, image in enumerate(cycle(images)):
        key, caption = f"{number:09d}", f"a picture of thing {number}"
        facts = json.dumps({"caption": caption, "url": f"http://images/{number}.jpg", "key": key}).encode()
        yield [(f"{key}.jpg", image), (f"{key}.txt", caption.encode()), (f"{key}.json", facts)]


def large() -> Iterator[Sample]:
    """Two photographs of 640 x 427 px, in turns."""
    folder = Path(sklearn.__file__).parent / "datasets" / "images"
    images = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    for number, image in enumerate(cycle(images)):
        yield [(f"{number:09d}.jpg", image)]
