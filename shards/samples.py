"""Members of one shard -> samples: who belongs together, which image counts, and what is odd about it.

Owns grouping by key and the choice of the image. Where members lie is `shards.tars`'s, what bodies hold is
`shards.check`'s, and the index over all shards is `shards.index`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from shards.faults import Fault
from shards.names import is_hidden, is_safe, is_utf8, split_name, storable
from shards.tars import FILE, FOLDER, HARD_LINK, OTHER, SPARSE, SYMBOLIC_LINK, Member

#: The last suffix of a member that is taken for an image. What it really is, its bytes say.
IMAGE_SUFFIXES = frozenset(
    ("jpg", "jpeg", "jpe", "jfif", "png", "gif", "webp", "bmp", "dib", "tif", "tiff", "ppm", "pgm", "pbm", "pnm")
    + ("avif", "heic", "heif", "jp2", "j2k", "img", "image")
)


class Part(NamedTuple):
    """A member as part of a sample. ``body`` and ``size`` are the link target's where the member is a hard link."""

    extension: str
    member: Member
    body: int
    size: int
    readable: bool

    @property
    def suffix(self) -> str:
        """The last suffix: ``jpg`` of the extension ``left.jpg``."""
        return self.extension.rpartition(".")[2]


@dataclass
class Sample:
    """The members of a shard that share a key, in tar order."""

    key: str
    parts: list[Part] = field(default_factory=list)

    def extents(self) -> list[tuple[int, int]]:
        """Offset and size of each run of bytes that the sample takes, in tar order; one where it lies in one piece."""
        runs: list[tuple[int, int]] = []
        for _, member, *_ in self.parts:
            if runs and sum(runs[-1]) == member.header:
                runs[-1] = runs[-1][0], member.end - runs[-1][0]
            else:
                runs.append((member.header, member.end - member.header))
        return runs

    def images(self, wanted: str | None = None) -> list[Part]:
        """The parts that are taken for images, in tar order.

        Args:
            wanted: the one extension that is the image (``left.jpg``), or, where no part has it, the last suffix.
        """
        readable = [part for part in self.parts if part.readable]
        if wanted is None:
            return [part for part in readable if part.suffix in IMAGE_SUFFIXES]
        exact = [part for part in readable if part.extension == wanted.lower()]
        return exact or [part for part in readable if part.suffix == wanted.lower()]

    def image(self, wanted: str | None = None) -> Part | None:
        """The image that counts: the first extension in tar order, and of an extension that is there twice the last."""
        images = self.images(wanted)
        return next((part for part in reversed(images) if part.extension == images[0].extension), None)


@dataclass
class Grouped:
    """The samples of one shard, in the order of their first members, and what was odd on the way."""

    samples: list[Sample]
    faults: list[Fault]


def group(members: Iterable[Member], shard: str) -> Grouped:
    """Group the members of one shard by key, those that lie apart included.

    Members without a key belong to no sample. A symbolic link stays with its sample but is never read, and makes none.
    """
    members = list(members)
    links = _link_targets(members) if any(member.kind == HARD_LINK for member in members) else {}
    samples: dict[str, Sample] = {}
    apart: dict[str, int] = {}
    faults: list[Fault] = []
    last = None
    for member in members:
        if member.kind in (FOLDER, OTHER):
            continue
        split = split_name(member.name)
        key = None if split is None else storable(split[0])
        if member.kind != FILE or split is None or not member.name.isascii():
            faults += _member_faults(member, shard, key, links)
        if key is None or split is None:
            continue
        sample = samples.get(key)
        if sample is None:
            sample = samples[key] = Sample(key)
        elif key != last:
            apart.setdefault(key, member.header)
        last = key
        sample.parts.append(_part(storable(split[1]), member, links))
    kept = [sample for sample in samples.values() if any(p.member.kind != SYMBOLIC_LINK for p in sample.parts)]
    faults += [
        Fault("non-adjacent", shard, key, offset, f"members of sample {key!r} lie apart; they are joined")
        for key, offset in apart.items()
    ]
    return Grouped(kept, faults)


def sample_faults(samples: list[Sample], shard: str, wanted: str | None) -> Iterator[Fault]:
    """What is odd about samples: unsafe names, extensions twice, no image, several images, empty images.

    Where every one of several samples lacks an image, or holds several, that is said once for the shard.
    """
    imageless, several = [], []
    for sample in samples:
        if not is_safe(sample.key):
            yield _fault("unsafe-name", shard, sample, f"unsafe name {storable(sample.parts[0].member.name)!r}")
        if len(sample.parts) > 1:
            yield from _duplicates(sample, shard)
        images = sample.images(wanted)
        if not images:
            imageless.append(_fault("no-image", shard, sample, f"sample {sample.key!r} has no image"))
        elif len(images) > 1 and any(part.extension != images[0].extension for part in images):
            several.append(_fault("several-images", shard, sample, _which(sample, images)))
        for part in images:
            if part.size == 0:
                yield _fault("empty-member", shard, sample, f"{storable(part.member.name)}: 0 bytes")
    yield from _said_once(imageless, len(samples), f"none of the {len(samples)} samples has an image")
    yield from _said_once(
        several, len(samples), f"every sample ({len(samples)}) holds several images; the first in tar order counts"
    )


def _said_once(faults: list[Fault], n_samples: int, detail: str) -> Iterator[Fault]:
    if len(faults) == n_samples > 1:
        yield Fault(faults[0].kind, faults[0].shard, None, faults[0].offset, detail)
    else:
        yield from faults


def _fault(kind: str, shard: str, sample: Sample, detail: str) -> Fault:
    return Fault(kind, shard, sample.key, sample.parts[0].member.header, detail)


def _which(sample: Sample, images: list[Part]) -> str:
    names = ", ".join(dict.fromkeys(part.extension for part in images))
    return f"sample {sample.key!r} holds several images ({names}); {images[0].extension} counts"


def _duplicates(sample: Sample, shard: str) -> Iterator[Fault]:
    places: dict[str, int] = {}
    for place, part in enumerate(sample.parts):
        if part.extension in places:
            name, first = storable(part.member.name), places[part.extension]
            detail = (
                f"duplicate member {name!r} (members {first} and {place} of sample {sample.key!r}); the last counts"
            )
            yield Fault("duplicate-member", shard, sample.key, part.member.header, detail)
        places[part.extension] = place


def _part(extension: str, member: Member, links: dict[int, Member | None]) -> Part:
    if member.kind == HARD_LINK:
        target = links[member.header]
        if target is not None:
            return Part(extension, member, target.body, target.size, target.kind == FILE)
    return Part(extension, member, member.body, member.size, member.kind == FILE)


def _link_targets(members: list[Member]) -> dict[int, Member | None]:
    """For the header offset of each hard link: the member before it whose bytes it stands for, None where none is."""
    named: dict[str, Member | None] = {}
    targets: dict[int, Member | None] = {}
    for member in members:
        meant: Member | None = member
        if member.kind == HARD_LINK:
            meant = targets[member.header] = named.get(member.link)
        elif member.kind not in (FILE, SPARSE):
            meant = None
        named[member.name] = meant
    return targets


def _member_faults(member: Member, shard: str, key: str | None, links: dict[int, Member | None]) -> Iterator[Fault]:
    name, link = storable(member.name), storable(member.link)
    if member.kind == HARD_LINK:
        target = links[member.header]
        outcome = "its bytes are read there" if target is not None else "no such member comes before it"
        yield Fault("link-member", shard, key, member.header, f"{name} is a hard link to {link}: {outcome}")
    elif member.kind == SYMBOLIC_LINK:
        yield Fault("link-member", shard, key, member.header, f"{name} is a symbolic link to {link}: not followed")
    elif member.kind == SPARSE:
        yield Fault("sparse-member", shard, key, member.header, f"{name} is sparse: copied as it stands, never read")
    if key is None:
        kind = "hidden-member" if is_hidden(member.name) else "no-extension"
        yield Fault(kind, shard, None, member.header, f"{name} belongs to no sample")
    if not is_utf8(member.name):
        yield Fault("odd-name", shard, key, member.header, f"{name} is not UTF-8: its bytes are written \\xNN")
