"""What bodies hold: every image decodes, every ``.json`` parses, every ``.cls`` is an integer.

Owns the judgement of one body. Which members are judged is told by `shards.samples`; nothing is changed or repaired.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from shards.faults import Fault
from shards.names import storable
from shards.pictures import PictureError, decode
from shards.samples import Sample
from shards.tars import Buffer


def check_samples(buffer: Buffer, shard: str, samples: list[Sample], wanted: str | None) -> Iterator[Fault]:
    """Yield a fault for every image, ``.json`` and ``.cls`` of the samples that does not hold."""
    for sample in samples:
        images = {id(part) for part in sample.images(wanted)}
        for part in sample.parts:
            if not part.readable:
                continue
            data = bytes(buffer[part.body : part.body + part.size])
            wrong = image_fault(data) if id(part) in images else sidecar_fault(part.suffix, data)
            # An empty image is reported without looking inside.
            if wrong is not None and wrong[0] != "empty-member":
                detail = f"{storable(part.member.name)}: {wrong[1]}"
                yield Fault(wrong[0], shard, sample.key, part.member.header, detail)


def image_fault(data: bytes) -> tuple[str, str] | None:
    """Kind and detail of what is wrong with an image; None where it decodes."""
    try:
        decode(data)
    except PictureError as error:
        return error.kind, error.detail
    return None


def sidecar_fault(suffix: str, data: bytes) -> tuple[str, str] | None:
    """Kind and detail of what is wrong with a ``json`` or ``cls`` body; None where it holds, or is another thing."""
    if suffix == "json":
        try:
            json.loads(data)
        except (ValueError, RecursionError) as error:
            return "bad-sidecar", f"not JSON ({len(data)} bytes): {type(error).__name__}: {str(error)[:80]}"
    elif suffix == "cls":
        text = data[:40].strip()
        if not text.removeprefix(b"-").isdigit() or len(data) > 40:
            return "bad-label", f"not an integer label ({len(data)} bytes): {text.decode('utf-8', 'replace')!r}"
    return None


def count_images(samples: list[Sample], wanted: str | None, faults: list[Fault]) -> Counter[str]:
    """Images by last suffix, those that a fault names left out."""
    bad = {(fault.key, fault.offset) for fault in faults if fault.kind in IMAGE_FAULTS}
    images = ((sample.key, part) for sample in samples for part in sample.images(wanted))
    return Counter(part.suffix for key, part in images if (key, part.member.header) not in bad)


IMAGE_FAULTS = ("empty-member", "not-an-image", "truncated-image", "image-too-large", "unsupported-image")
