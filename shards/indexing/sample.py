"""Groups the members of one shard to samples by key, and chooses each sample's image.

`shards.tar.walk` finds the members, `shards.indexing.lint` reports what is unusual about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from shards.member_names import IMAGE_SUFFIXES, split_name, storable
from shards.tar.bulk_walk import MemberRun, decode_names
from shards.tar.walk import FILE, FOLDER, HARD_LINK, SPARSE, SYMBOLIC_LINK, UNREADABLE, Member, members_of

#: Header offset of each hard link -> its target; None where there is none.
Links = dict[int, Member | None]


class SampleMember(NamedTuple):
    """A member as part of a sample.

    Args:
        name: its name, in the form that an index stores.
        extension: what follows the key, lower-cased; ``suffix`` is its last piece (``jpg`` of ``left.jpg``).
        start, end: its bytes in the shard, header and padding included.
        body, size: offset and size of its content; the target's if it is a hard link.
        kind: as in `shards.tar.walk.Member`; the target's if it is a hard link. Only a ``file`` has readable content.
    """

    name: str
    extension: str
    suffix: str
    start: int
    end: int
    body: int
    size: int
    kind: str


@dataclass(slots=True)
class Sample:
    """The members of a shard with one key, in tar order; ``apart``: they are not adjacent."""

    key: str
    parts: list[SampleMember] = field(default_factory=list)
    apart: bool = False

    def extents(self) -> list[tuple[int, int]]:
        """Offset and size of every byte extent of the sample, in tar order; one where its members are adjacent."""
        runs: list[tuple[int, int]] = []
        start = end = self.parts[0].start
        for part in self.parts:
            if part.start != end:
                runs.append((start, end - start))
                start = part.start
            end = part.end
        return [*runs, (start, end - start)]

    def images(self, wanted: str | None = None) -> list[SampleMember]:
        """The members that count as images, in tar order.

        Args:
            wanted: extension of the image (``left.jpg``); where no member has it, the last suffix is compared.
        """
        ranked = [
            (image_rank(part.extension, part.suffix, wanted) if part.kind == FILE else 0, part) for part in self.parts
        ]
        best = max(rank for rank, _ in ranked)
        return [part for rank, part in ranked if rank == best > 0]


def image_rank(extension: str, suffix: str, wanted: str | None) -> int:
    """How well a member fits as the image: 0 not at all; of a sample those of the highest rank are taken.

    Args:
        extension, suffix: as in `SampleMember`.
        wanted: extension of the image (rank 2), or its last suffix (rank 1); None gives rank 1 to `IMAGE_SUFFIXES`.
    """
    if wanted is None:
        return int(suffix in IMAGE_SUFFIXES)
    return 2 if extension == wanted.lower() else int(suffix == wanted.lower())


def chosen_image(images: list[SampleMember]) -> SampleMember | None:
    """The image of a sample: of the first extension in tar order, the last member that has it."""
    return next((part for part in reversed(images) if part.extension == images[0].extension), None)


@dataclass(frozen=True)
class GroupedMembers:
    """The samples of one shard, in order of their first members, and the members without a key."""

    samples: list[Sample]
    keyless: list[SampleMember]


def group_members(pieces: Iterable[MemberRun | Member], links: Links) -> GroupedMembers:
    """Group the members of one shard by key, whether adjacent or not.

    Folders, devices and members of unknown type belong to no sample. A symbolic link belongs to its sample, is never
    read, and alone makes no sample.
    """
    samples: dict[str, Sample] = {}
    keyless: list[SampleMember] = []
    current = Sample("")
    beginning = "\0"
    for name, start, end, body, size, kind in _contents(pieces, links):
        rest = name[len(beginning) :] if name.startswith(beginning) else "/"
        if "/" not in rest and not rest.startswith("__"):
            extension = rest.lower()
        else:
            split = split_name(name)
            if split is None:
                keyless.append(SampleMember(storable(name), "", "", start, end, body, size, kind))
                continue
            key, extension = split
            # What follows the same key and a dot needs no second look, but for keys and extensions like __this__.
            beginning = "\0" if key.startswith("__") else f"{key}."
            current = _sample_of_key(samples, storable(key), current)
        suffix = extension.rpartition(".")[2]
        if not name.isascii():
            name, extension = storable(name), storable(extension)
        current.parts.append(SampleMember(name, extension, suffix, start, end, body, size, kind))
    made = [sample for sample in samples.values() if any(part.kind != SYMBOLIC_LINK for part in sample.parts)]
    return GroupedMembers(made, keyless)


def _contents(pieces: Iterable[MemberRun | Member], links: Links) -> Iterator[tuple[str, int, int, int, int, str]]:
    """Name, start, end, body, size and kind of each member that may belong to a sample; hard links as their targets."""
    for piece in pieces:
        if isinstance(piece, MemberRun):
            places = (column.tolist() for column in (piece.starts, piece.ends, piece.bodies, piece.sizes))
            yield from zip(decode_names(piece.names), *places, repeat(FILE))
        elif piece.kind == HARD_LINK and (target := links.get(piece.header)) is not None:
            yield piece.name, piece.header, piece.end, target.body, target.size, target.kind
        elif piece.kind not in (FOLDER, *UNREADABLE):
            yield piece.name, piece.header, piece.end, piece.body, piece.size, piece.kind


def _sample_of_key(samples: dict[str, Sample], key: str, current: Sample) -> Sample:
    """The sample of a key: a new one, or an earlier one, which is not adjacent then."""
    sample = samples.get(key)
    if sample is None:
        sample = samples[key] = Sample(key)
    elif sample is not current:
        sample.apart = True
    return sample


def link_targets(pieces: Iterable[MemberRun | Member]) -> Links:
    """The target of each hard link: the last file before it with the name it points to; None where there is none."""
    links: Links = {}
    named: dict[str, Member] = {}
    for piece in pieces:
        for member in members_of(piece) if isinstance(piece, MemberRun) else (piece,):
            meant: Member | None = member
            if member.kind == HARD_LINK:
                meant = named.get(member.link)
                links[member.header] = meant
            if meant is not None and meant.kind in (FILE, SPARSE):
                named[member.name] = meant
    return links
