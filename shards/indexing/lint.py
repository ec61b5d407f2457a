"""Reports what is unusual about members and samples (links, duplicates, no image ...) as faults; nothing is dropped.

`shards.tar.walk` reports damage of the archive, `shards.indexing.content` bad bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shards.faults import Fault
from shards.indexing.sample import GroupedMembers, Links, Sample, SampleMember
from shards.member_names import is_hidden, is_reserved, is_safe, split_name, storable
from shards.tar.bulk_walk import MemberRun, decode_names
from shards.tar.walk import HARD_LINK, SPARSE, SYMBOLIC_LINK, UNREADABLE, Member

#: Faults of one kind in one shard that are reported one by one; the rest are counted.
MAX_FAULTS_OF_A_KIND = 1000


def member_faults(pieces: Iterable[MemberRun | Member], shard: str, links: Links) -> Iterator[Fault]:
    """Faults of single members: links, sparse files, devices, names that are not UTF-8."""
    for piece in pieces:
        if isinstance(piece, MemberRun):
            for name, start in zip(decode_names(piece.names), piece.starts.tolist(), strict=True):
                if not name.isascii():
                    yield from _odd_name(name, shard, start)
            continue
        name, link = storable(piece.name), storable(piece.link)
        if piece.kind == HARD_LINK:
            outcome = "no such member comes before it" if links[piece.header] is None else "its bytes are read there"
            detail = f"{name} is a hard link to {link}: {outcome}"
            yield Fault("link-member", shard, _key(piece.name), piece.header, detail)
        elif piece.kind == SYMBOLIC_LINK:
            detail = f"{name} is a symbolic link to {link}: not followed"
            yield Fault("link-member", shard, _key(piece.name), piece.header, detail)
        elif piece.kind == SPARSE:
            detail = f"{name} is sparse: copied as it stands, never read"
            yield Fault("sparse-member", shard, _key(piece.name), piece.header, detail)
        elif piece.kind in UNREADABLE:
            detail = f"{name} is {UNREADABLE[piece.kind]}: belongs to no sample"
            yield Fault("other-member", shard, _key(piece.name), piece.header, detail)
        yield from _odd_name(piece.name, shard, piece.header)


def _key(name: str) -> str | None:
    split = split_name(name)
    return None if split is None else storable(split[0])


def _odd_name(name: str, shard: str, start: int) -> Iterator[Fault]:
    stored = storable(name)
    if stored != name:
        yield Fault("odd-name", shard, _key(name), start, f"{stored} is not UTF-8: its bytes are written \\xNN")


def sample_faults(grouped: GroupedMembers, shard: str, wanted: str | None) -> Iterator[Fault]:
    """Faults of samples: no key, not adjacent, an unsafe key, an extension twice, no image or several, an empty image.

    A fault that every one of several samples has (no image, several images) is reported once for the shard.
    """
    for part in grouped.keyless:
        if is_hidden(part.name):
            yield Fault("hidden-member", shard, None, part.start, f"{part.name} is hidden: belongs to no sample")
        elif is_reserved(part.name):
            detail = f"{part.name} has an extension that readers keep for themselves: belongs to no sample"
            yield Fault("reserved-name", shard, None, part.start, detail)
        else:
            yield Fault("no-extension", shard, None, part.start, f"{part.name} belongs to no sample")
    imageless, several = [], []
    for sample in grouped.samples:
        yield from _shape_faults(sample, shard)
        images = sample.images(wanted)
        if not images:
            imageless.append(_sample_fault("no-image", shard, sample, f"sample {sample.key!r} has no image"))
        elif len(images) > 1 and any(part.extension != images[0].extension for part in images):
            several.append(_sample_fault("several-images", shard, sample, _images_detail(sample, images)))
        for part in images:
            if part.size == 0:
                yield Fault("empty-member", shard, sample.key, part.start, f"{part.name}: 0 bytes")
    n_samples = len(grouped.samples)
    yield from _once_for_all(imageless, n_samples, f"none of the {n_samples} samples has an image")
    detail = f"all {n_samples} samples hold several images; the first in tar order counts"
    yield from _once_for_all(several, n_samples, detail)


def capped(faults: Iterable[Fault]) -> Iterator[Fault]:
    """At most `MAX_FAULTS_OF_A_KIND` faults of each kind, then one that counts the rest."""
    counts: dict[str, int] = {}
    shard = ""
    for fault in faults:
        shard = fault.shard
        counts[fault.kind] = counts.get(fault.kind, 0) + 1
        if counts[fault.kind] <= MAX_FAULTS_OF_A_KIND:
            yield fault
    for kind, n in counts.items():
        if n > MAX_FAULTS_OF_A_KIND:
            yield Fault(kind, shard, None, None, f"{n - MAX_FAULTS_OF_A_KIND} more of this kind")


def _shape_faults(sample: Sample, shard: str) -> Iterator[Fault]:
    if not is_safe(sample.key):
        yield _sample_fault("unsafe-name", shard, sample, f"unsafe name {sample.parts[0].name!r}")
    if sample.apart:
        yield _sample_fault(
            "non-adjacent", shard, sample, f"members of sample {sample.key!r} lie apart; they are joined"
        )
    if len(sample.parts) > 1:
        yield from _duplicates(sample, shard)


def _duplicates(sample: Sample, shard: str) -> Iterator[Fault]:
    places: dict[str, int] = {}
    for place, part in enumerate(sample.parts):
        if part.extension in places:
            both = f"members {places[part.extension]} and {place} of sample {sample.key!r}"
            detail = f"duplicate member {part.name!r} ({both}); the last counts"
            yield Fault("duplicate-member", shard, sample.key, part.start, detail)
        places[part.extension] = place


def _once_for_all(faults: list[Fault], n_samples: int, detail: str) -> Iterator[Fault]:
    if len(faults) == n_samples > 1:
        yield Fault(faults[0].kind, faults[0].shard, None, faults[0].offset, detail)
    else:
        yield from faults


def _sample_fault(kind: str, shard: str, sample: Sample, detail: str) -> Fault:
    return Fault(kind, shard, sample.key, sample.parts[0].start, detail)


def _images_detail(sample: Sample, images: list[SampleMember]) -> str:
    names = ", ".join(dict.fromkeys(part.extension for part in images))
    return f"sample {sample.key!r} holds several images ({names}); {images[0].extension} counts"
