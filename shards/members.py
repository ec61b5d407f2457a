"""The members of single samples with their bytes, hard links resolved.

A sample's own bytes are enough, as a rule; where they are not (a hard link, a global header), its shard is walked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .errors import ShardsChanged
from .samples import Part, Sample, group
from .sources import opening
from .tars import FILE, Buffer, Member, walk

#: Extension (lower case) and body of each member that can be read, in tar order.
Bodies = list[tuple[str, bytes]]


def members_of_bytes(data: bytes, key: str, shard: str) -> Bodies | None:
    """The members in a sample's own bytes; None where these do not tell all of them."""
    found = [step for step in walk(data, shard) if isinstance(step, Member)]
    grouped = group(found, shard).samples
    if len(grouped) != 1 or grouped[0].key != key or any(member.kind != FILE for member in found):
        return None
    return bodies(data, grouped[0].parts)


def members_of_shard(location: str, shard: str, keys: Iterable[str]) -> Iterator[Bodies]:
    """The members of the samples with these keys, in the order of ``keys``, by a walk over the whole shard.

    Raises:
        ShardsChanged: a key is not in the shard.
    """
    with opening(location) as source:
        samples = walked_samples(source.buffer, shard)
        for key in keys:
            if key not in samples:
                raise ShardsChanged(
                    "the sample is not in the shard any more", shard=shard, key=key, todo="index the store again"
                )
            yield bodies(source.buffer, samples[key].parts)


def walked_samples(buffer: Buffer, shard: str) -> dict[str, Sample]:
    """All samples of a shard by key."""
    found = (step for step in walk(buffer, shard) if isinstance(step, Member))
    return {sample.key: sample for sample in group(found, shard).samples}


def bodies(buffer: Buffer, parts: Iterable[Part]) -> Bodies:
    return [(part.extension, bytes(buffer[part.body : part.body + part.size])) for part in parts if part.readable]
