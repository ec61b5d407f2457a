"""Reads all members of a sample, hard links resolved.

A sample's own bytes suffice as a rule; where they do not (a hard link, a global PAX header), the shard is walked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shards.errors import ShardsChanged
from shards.indexing.sample import SampleMember, group_members, link_targets
from shards.io.mapped import Buffer, open_mapped
from shards.tar.walk import FILE, SPARSE, Member, walk

#: Extension (lower case) and body of each member that can be read, in tar order.
Bodies = list[tuple[str, bytes]]
#: The parts of a sample, each with its member as it stands in the tar (a hard link still is one there).
SampleMembers = list[tuple[SampleMember, Member]]


def bodies_in_sample(data: bytes, key: str, shard: str) -> Bodies | None:
    """Extension and body of the members in a sample's own bytes; None where those do not suffice."""
    found = [piece for piece in walk(data, shard) if isinstance(piece, Member)]
    samples = group_members(found, {}).samples
    if len(samples) != 1 or samples[0].key != key or any(member.kind != FILE for member in found):
        return None
    return _bodies(data, samples[0].parts)


def bodies_in_shard(location: str, shard: str, keys: Iterable[str]) -> Iterator[Bodies]:
    """Extension and body of the members of these samples, in the order of ``keys``, by a walk of the shard.

    Raises:
        ShardsChanged: a key is not in the shard.
    """
    with open_mapped(location) as source:
        walked = members_by_key(source.buffer, shard)
        for key in keys:
            yield readable_bodies(source.buffer, members_of_key(walked, key, shard))


def shard_members_by_key(location: str, shard: str) -> dict[str, SampleMembers]:
    """The members of all samples of the shard at a path or URL, by key."""
    with open_mapped(location) as source:
        return members_by_key(source.buffer, shard)


def members_by_key(buffer: Buffer, shard: str) -> dict[str, SampleMembers]:
    """The members of all samples of a mapped shard, by key."""
    found = [piece for piece in walk(buffer, shard) if isinstance(piece, Member)]
    at = {member.header: member for member in found}
    samples = group_members(found, link_targets(found)).samples
    return {sample.key: [(part, at[part.start]) for part in sample.parts] for sample in samples}


def members_of_key(walked: dict[str, SampleMembers], key: str, shard: str) -> SampleMembers:
    """The members of one sample; raises `ShardsChanged` where the key is missing."""
    if key not in walked:
        raise ShardsChanged(
            "the sample is not in the shard any more", shard=shard, key=key, todo="index the store again"
        )
    return walked[key]


def without_duplicates(parts: SampleMembers) -> SampleMembers:
    """The members without those that a later one of the same extension replaces, as it would when a tar is unpacked.

    Members without readable content (symbolic links, links without a target) are kept.
    """
    last = {part.extension: part for kind in (SPARSE, FILE) for part, _ in parts if part.kind == kind}
    return [(part, member) for part, member in parts if part.kind not in (FILE, SPARSE) or last[part.extension] is part]


def readable_bodies(buffer: Buffer, parts: SampleMembers) -> Bodies:
    """Extension and body of the members that can be read."""
    return _bodies(buffer, [part for part, _ in parts])


def _bodies(buffer: Buffer, parts: Iterable[SampleMember]) -> Bodies:
    return [(part.extension, bytes(buffer[part.body : part.body + part.size])) for part in parts if part.kind == FILE]
