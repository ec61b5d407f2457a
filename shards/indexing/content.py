"""Checks bodies: images decode, ``.json`` parses, ``.cls`` is an integer, texts are UTF-8. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from shards.faults import Fault
from shards.indexing.sample import Sample
from shards.io.images import ImageError, decode
from shards.io.json_files import parse_json
from shards.io.mapped import Buffer
from shards.tar.walk import FILE

#: Suffixes of texts, as webdataset decodes them, and one more of captions.
TEXTS = ("txt", "text", "transcript", "caption")
SIDECARS = ("json", "cls", *TEXTS)
IMAGE_FAULTS = frozenset(("empty-member", "not-an-image", "truncated-image", "image-too-large", "unsupported-image"))


def check_samples(buffer: Buffer, shard: str, samples: list[Sample], wanted: str | None) -> Iterator[Fault]:
    """Yield a fault for every image, ``.json``, ``.cls`` and text of the samples that does not hold."""
    for sample in samples:
        images = {part.start for part in sample.images(wanted)}
        for part in sample.parts:
            is_image = part.start in images
            # An empty image is reported by `lint`.
            if part.kind != FILE or (is_image and part.size == 0):
                continue
            if is_image or part.suffix in SIDECARS:
                data = bytes(buffer[part.body : part.body + part.size])
                wrong = image_fault(data) if is_image else sidecar_fault(part.suffix, data)
                if wrong is not None:
                    yield Fault(wrong[0], shard, sample.key, part.start, f"{part.name}: {wrong[1]}")


def image_fault(data: bytes) -> tuple[str, str] | None:
    """Kind and detail of what is wrong with an image; None where it decodes."""
    try:
        decode(data)
    except ImageError as error:
        return error.kind, error.detail
    return None


def sidecar_fault(suffix: str, data: bytes) -> tuple[str, str] | None:
    """Kind and detail of what is wrong with a ``json``, ``cls`` or text; None where it holds, or is another thing."""
    if suffix == "json":
        try:
            parse_json(data)
        except ValueError as error:
            return "bad-sidecar", f"not JSON ({len(data)} bytes): {type(error).__name__}: {str(error)[:80]}"
    elif suffix in TEXTS:
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            return "bad-sidecar", f"not UTF-8 ({len(data)} bytes): byte 0x{data[error.start]:02x} at {error.start}"
    elif suffix == "cls":
        text = data[:40].strip()
        if not text.removeprefix(b"-").isdigit() or len(data) > 40:
            return "bad-label", f"not an integer label ({len(data)} bytes): {text.decode('utf-8', 'replace')!r}"
    return None


def count_images(samples: list[Sample], wanted: str | None, faults: list[Fault]) -> Counter[str]:
    """Images by last suffix, those that a fault names left out."""
    bad = {fault.offset for fault in faults if fault.kind in IMAGE_FAULTS}
    images = (part for sample in samples for part in sample.images(wanted))
    return Counter(part.suffix for part in images if part.start not in bad)
