"""A store of real digits with copies of several kinds, for the tests of duplicates."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import toyset
from PIL import Image, ImageEnhance, ImageOps

from shards.tar.writer import write_shards

#: Copies of each kind, of the first digits.
EACH = 6


def digit(number: int) -> Image.Image:
    """64 px, grey, smooth."""
    return Image.fromarray(toyset.digits()[0][number]).resize((64, 64), Image.Resampling.BICUBIC)


def jpeg(picture: Image.Image, quality: int = 90) -> bytes:
    """Encoded."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


def kinds(number: int) -> dict[str, bytes]:
    """A digit and its copies, by kind."""
    picture = digit(number)
    return {
        "original": toyset.png(np.asarray(picture)),
        "bytes": toyset.png(np.asarray(picture)),
        "pixels": toyset.png(np.asarray(picture.convert("RGB"))),
        "recompressed": jpeg(picture, 50),
        "half": jpeg(picture.resize((32, 32), Image.Resampling.LANCZOS)),
        "mirrored": jpeg(ImageOps.mirror(picture)),
        "brightened": jpeg(ImageEnhance.Brightness(picture).enhance(1.2)),
    }


def make_store(folder: Path, singles: int = 40, plain: int = 12) -> Path:
    """Copies of `EACH` digits, ``singles`` others, ``plain`` images of one colour in two sizes, and two broken ones."""
    bodies = {f"{kind}-{number:02d}": body for number in range(EACH) for kind, body in kinds(number).items()}
    bodies |= {f"single-{n:02d}": toyset.png(np.asarray(digit(n))) for n in range(EACH, EACH + singles)}
    bodies |= {f"plain-{n:02d}": toyset.png(np.full((8 + n % 2, 8), 7, np.uint8)) for n in range(plain)}
    bodies |= {"broken-0": b"no image", "broken-1": b"no image", "empty": b""}
    samples = [[(key + (".jpg" if body[:2] == b"\xff\xd8" else ".png"), body)] for key, body in sorted(bodies.items())]
    write_shards(folder, iter(samples), shard_size=32 * 1024)
    return folder
