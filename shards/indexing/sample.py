"""Members of one shard -> samples: who belongs together, and which image counts.

Owns grouping by key and the choice of the image. Where members lie is `shards.tar.walk`'s, what is odd about them is
told by `shards.indexing.lint`, what their bodies hold by `shards.indexing.content`, and the index over all shards is
`shards.indexing.index`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from shards.member_names import split_name, storable
from shards.tar.bulk_walk import MemberRun, decode_names
from shards.tar.walk import FILE, FOLDER, HARD_LINK, SPARSE, SYMBOLIC_LINK, UNREADABLE, Member, members_of

#: The last suffix of a member that is taken for an image. What it really is, its bytes say.
IMAGE_SUFFIXES = frozenset(
    ("jpg", "jpeg", "jpe", "jfif", "png", "gif", "webp", "bmp", "dib", "tif", "tiff", "ppm", "pgm", "pbm", "pnm")
    + ("avif", "heic", "heif", "jp2", "j2k", "img", "image")
)

#: For the header offset of each hard link: the member whose bytes it stands for, None where there is none.
Links = dict[int, Member | None]


class SampleMember(NamedTuple):
    """A member as part of a sample.

    Args:
        name: the member's, as it can be stored.
        extension: what follows the key, lower-cased; ``suffix`` is its last piece (``jpg`` of ``left.jpg``).
        start, end: the member's bytes in the shard, headers and padding included.
        body, size: the content's; those of the link's target where the member is a hard link.
        kind: as `shards.tar.walk.Member` has it, that of the target where the member is a hard link. Only the content
        of a
            ``file`` is ever read.
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
    """The members of a shard that share a key, in tar order; ``apart``: other samples' members lie between them."""

    key: str
    parts: list[SampleMember] = field(default_factory=list)
    apart: bool = False

    def extents(self) -> list[tuple[int, int]]:
        """Offset and size of each run of bytes that the sample takes, in tar order; one where it lies in one piece."""
        runs: list[tuple[int, int]] = []
        start = end = self.parts[0].start
        for part in self.parts:
            if part.start != end:
                runs.append((start, end - start))
                start = part.start
            end = part.end
        return [*runs, (start, end - start)]

    def images(self, wanted: str | None = None) -> list[SampleMember]:
        """The parts that are taken for images, in tar order.

        Args:
            wanted: the one extension that is the image (``left.jpg``), or, where no part has it, the last suffix.
        """
        ranked = [
            (image_rank(part.extension, part.suffix, wanted) if part.kind == FILE else 0, part) for part in self.parts
        ]
        best = max(rank for rank, _ in ranked)
        return [part for rank, part in ranked if rank == best > 0]


def image_rank(extension: str, suffix: str, wanted: str | None) -> int:
    """Whether a member is taken for an image, 0 where it is not; of a sample those of the highest rank are taken.

    Args:
        extension, suffix: as `SampleMember` has them.
        wanted: the one extension that is the image (2), or, where no member of the sample has it, the last suffix (1).
    """
    if wanted is None:
        return int(suffix in IMAGE_SUFFIXES)
    return 2 if extension == wanted.lower() else int(suffix == wanted.lower())


def chosen_image(images: list[SampleMember]) -> SampleMember | None:
    """The image that counts: the first extension in tar order, and of an extension that is there twice the last."""
    return next((part for part in reversed(images) if part.extension == images[0].extension), None)


@dataclass(frozen=True)
class GroupedMembers:
    """The samples of one shard, in the order of their first members, and the members of no sample."""

    samples: list[Sample]
    keyless: list[SampleMember]


def group_members(pieces: Iterable[MemberRun | Member], links: Links) -> GroupedMembers:
    """Group the members of one shard by key, those that lie apart included.

    Folders, devices and what is of an unknown type are passed over. A symbolic link stays with its sample but is never
    read, and makes none.
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
    """Name, start, end, body, size and kind of what a sample may be made of; hard links as what they stand for."""
    for piece in pieces:
        if isinstance(piece, MemberRun):
            places = (column.tolist() for column in (piece.starts, piece.ends, piece.bodies, piece.sizes))
            yield from zip(decode_names(piece.names), *places, repeat(FILE))
        elif piece.kind == HARD_LINK and (target := links.get(piece.header)) is not None:
            yield piece.name, piece.header, piece.end, target.body, target.size, target.kind
        elif piece.kind not in (FOLDER, *UNREADABLE):
            yield piece.name, piece.header, piece.end, piece.body, piece.size, piece.kind


def _sample_of_key(samples: dict[str, Sample], key: str, current: Sample) -> Sample:
    """The sample of a key: a new one, or the earlier one whose members lie apart then."""
    sample = samples.get(key)
    if sample is None:
        sample = samples[key] = Sample(key)
    elif sample is not current:
        sample.apart = True
    return sample


def link_targets(pieces: Iterable[MemberRun | Member]) -> Links:
    """What each hard link of a shard stands for: the last member before it that has the name it points to."""
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
