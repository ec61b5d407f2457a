"""The members of single samples with their bytes, hard links resolved.

A sample's own bytes are enough, as a rule; where they are not (a hard link, a global header), its shard is walked.
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
    """The members in a sample's own bytes; None where these do not tell all of them."""
    found = [piece for piece in walk(data, shard) if isinstance(piece, Member)]
    samples = group_members(found, {}).samples
    if len(samples) != 1 or samples[0].key != key or any(member.kind != FILE for member in found):
        return None
    return _bodies(data, samples[0].parts)


def bodies_in_shard(location: str, shard: str, keys: Iterable[str]) -> Iterator[Bodies]:
    """The members of the samples with these keys, in the order of ``keys``, by a walk over the whole shard.

    Raises:
        ShardsChanged: a key is not in the shard.
    """
    with open_mapped(location) as source:
        walked = members_by_key(source.buffer, shard)
        for key in keys:
            yield readable_bodies(source.buffer, members_of_key(walked, key, shard))


def shard_members_by_key(location: str, shard: str) -> dict[str, SampleMembers]:
    """The parts of all samples of the shard at a path, by key."""
    with open_mapped(location) as source:
        return members_by_key(source.buffer, shard)


def members_by_key(buffer: Buffer, shard: str) -> dict[str, SampleMembers]:
    """The parts of all samples of a shard by key."""
    found = [piece for piece in walk(buffer, shard) if isinstance(piece, Member)]
    at = {member.header: member for member in found}
    samples = group_members(found, link_targets(found)).samples
    return {sample.key: [(part, at[part.start]) for part in sample.parts] for sample in samples}


def members_of_key(walked: dict[str, SampleMembers], key: str, shard: str) -> SampleMembers:
    """The parts of one of the samples walked; `ShardsChanged` where it is not among them."""
    if key not in walked:
        raise ShardsChanged(
            "the sample is not in the shard any more", shard=shard, key=key, todo="index the store again"
        )
    return walked[key]


def without_duplicates(parts: SampleMembers) -> SampleMembers:
    """The parts without those that another of the same extension replaces: of these the last counts, as in tar itself.

    What no reader takes for a member's content (links without a target, symbolic ones) is left as it is.
    """
    last = {part.extension: part for kind in (SPARSE, FILE) for part, _ in parts if part.kind == kind}
    return [(part, member) for part, member in parts if part.kind not in (FILE, SPARSE) or last[part.extension] is part]


def readable_bodies(buffer: Buffer, parts: SampleMembers) -> Bodies:
    """Extension and body of the parts that can be read."""
    return _bodies(buffer, [part for part, _ in parts])


def _bodies(buffer: Buffer, parts: Iterable[SampleMember]) -> Bodies:
    return [(part.extension, bytes(buffer[part.body : part.body + part.size])) for part in parts if part.kind == FILE]
