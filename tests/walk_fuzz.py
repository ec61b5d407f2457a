"""Tiny hostile tars, many a second, and the exact reading of each, member by member, held against every fast one.

Fast are: the walk in runs (close, and far ahead along many chains), the rows of a regular shard, the grouping of
members by what follows the key of the one before, and the checksum of headers along the samples. Each may give up, and
none may give another answer than the exact one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import xxhash
from tar_makers import END, header, padded, pax, summed

from shards.faults import Fault
from shards.indexing.bulk_rows import bulk_rows
from shards.indexing.content import count_images
from shards.indexing.lint import member_faults, sample_faults
from shards.indexing.sample import Links, group_members, link_targets
from shards.indexing.schema import rows_from_samples
from shards.member_names import is_utf8, split_name, storable
from shards.tar import bulk_walk, header_chain, walk
from shards.tar.bulk_walk import MAX_LOOKAHEAD, MemberRun
from shards.tar.header import BLOCK
from shards.tar.walk import FILE, FOLDER, SYMBOLIC_LINK, UNREADABLE, Member

#: Names whose keys meet in every way that the rule of keys knows.
NAMES = [
    *(b"a.jpg", b"a.cls", b"a.JPG", b"a.txt", b"b.jpg", b"b.cls", b"c.jpg", b"a.png", b"a.", b"a..jpg", b"ab.jpg"),
    *(b"a.v1/0001.txt", b"a.v1/0001.jpg", b"a.v1/0002.jpg", b"a.v1.jpg", b"a/b.jpg", b"a/b.cls", b"./a.jpg", b"a/.x"),
    *(b"a.v1/._0001.jpg", b".x", b"__m__/a.jpg", b"__a.jpg", b"a.__key__", b"a.__row__", b"a.__x.jpg", b"a", b"a/b"),
    *(b"../a.jpg", b"/a.jpg", b"a/../b.jpg", b"a.l.jpg", b"a.r.jpg", b"a\nb.jpg", b"a.b\nc/d.jpg", b"caf\xe9.jpg"),
    *(b"a.jpg\0x", b"n" * 95 + b".jpg", b"n" * 96 + b".jpg", b"", b"d/", b"a.jpg/"),
]
SIZES = [0, 1, 1, 1, 511, 512, 513, 1024]
RECORDS = [b"mtime=1.5", b"mtime=2", b"comment=x", b"uid=7", b"mtime=1.5", b"mtime=1.5"]
TELLING = [b"path=a.txt", b"path=b.v1/c.jpg", b"size=1", b"size=", b"path=", b"size=x", b"GNU.sparse.map=0,1"]
_header, _pax, _summed = cache(header), cache(pax), cache(summed)


def tar_of_chance(chance: random.Random) -> bytes:
    """A tar of a few pieces, some of them damaged, some with a checksum that was made right again."""
    tar = b"".join(_piece(chance) for _ in range(chance.randint(1, 5)))
    tar += END[: chance.choice((0, BLOCK, 2 * BLOCK, 2 * BLOCK, 2 * BLOCK))]
    if chance.random() < 0.1:
        tar = tar[: chance.randrange(len(tar) + 1)]
    if chance.random() < 0.1 and tar:
        damaged = bytearray(tar)
        damaged[chance.randrange(len(tar))] = chance.choice((0, 32, 46, 47, 48, 49, 55, 56, 120, 255))
        tar = bytes(damaged)
    return tar


def _piece(chance: random.Random) -> bytes:
    name, size = chance.choice(NAMES[: chance.choice((4, 12, len(NAMES)))]), chance.choice(SIZES)
    kind = chance.random()
    if kind < 0.62:
        return _header(name, size) + padded(b"x" * size)
    if kind < 0.74:
        return _pax(chance.choice(RECORDS)) + _header(name, size) + padded(b"x" * size)
    if kind < 0.84:
        return _changed(_header(name, size), chance) + padded(b"x" * size)
    if kind < 0.88:
        return _pax(chance.choice(TELLING), kind=chance.choice((b"x", b"x", b"X", b"g")))
    if kind < 0.90:
        return _header(b"long", len(name), chance.choice((b"L", b"K"))) + padded(name)
    if kind < 0.95:
        return _header(name, 0, chance.choice((b"1", b"2", b"3", b"5", b"5", b"6", b"V", b"7", b"\0")), b"a.jpg")
    if kind < 0.97:
        return bytes(BLOCK * chance.randint(1, 3))
    return b"?" * BLOCK if kind < 0.98 else _header(name, 1, b"S") + padded(b"x")


def _changed(block: bytes, chance: random.Random) -> bytes:
    """A header with a byte that means something changed, its checksum right."""
    place = chance.choice((0, 1, 2, 124, 130, 133, 134, 135, 154, 155, 156, 157, 257, 262, 263, 345, 482))
    value = chance.choice((0, 32, 46, 47, 48, 50, 56, 95, 120, 128, 255))
    changed = block[:place] + bytes((value,)) + block[place + 1 :]
    return _summed(changed, signed=chance.random() < 0.2) if place not in (154, 155) else changed


@contextmanager
def chains_begin_near() -> Iterator[None]:
    """Let the reading far ahead begin several chains in a tiny tar."""
    near = patch.object(bulk_walk, "_HEADERS_A_CHAIN", 1)
    with near, patch.multiple(header_chain, _MAX_CHAINS=8, _SEARCH_BLOCKS=2):
        yield


def no_runs(*_: object) -> Iterator[Any]:
    return iter(())


def far_ahead(buffer: bytes, place: int, _: int) -> Iterator[Any]:
    return bulk_walk.member_runs(buffer, place, MAX_LOOKAHEAD)


Walked = tuple[list[MemberRun | Member], list[Fault], str]


def walked(tar: bytes, runs: Callable[..., Iterator[Any]]) -> Walked:
    """Members, faults and the checksum of all headers, by a walk that takes runs as ``runs`` does."""
    digest, before = xxhash.xxh3_64(), walk.member_runs
    walk.member_runs = runs  # patch() would take longer than the walk
    try:
        found = list(walk.walk_runs(tar, "x.tar", digest.update))
    finally:
        walk.member_runs = before
    parts = [one for one in found if not isinstance(one, Fault)]
    return parts, [one for one in found if isinstance(one, Fault)], digest.hexdigest()


def singly(parts: list[MemberRun | Member]) -> list[Member]:
    """Members one by one; a run does not say what stands in the link field of a file, where it means nothing."""
    members = [
        member for part in parts for member in (walk.members_of(part) if isinstance(part, MemberRun) else (part,))
    ]
    return [member._replace(link="") if member.kind == FILE else member for member in members]


def hold_equal(tar: bytes, far: bool) -> bool:
    """Assert that the fast readings of a tar are the exact one; whether the fast half of a scan did its work."""
    exact, exact_faults, exact_digest = walked(tar, no_runs)
    members = singly(exact)
    parts, faults, digest = walked(tar, far_ahead if far else bulk_walk.member_runs)
    assert (singly(parts), faults, digest) == (members, exact_faults, exact_digest)
    links = link_targets(members)
    grouped = group_members(members, links)
    by_name = _by_name(members, links)
    assert {
        sample.key: [(part.start, part.extension) for part in sample.parts] for sample in grouped.samples
    } == by_name
    extents = sorted(extent for sample in grouped.samples for extent in sample.extents())
    if extents and not far:
        found = header_chain.headers_checksum(tar, *(np.array(column, np.int64) for column in zip(*extents)))
        assert found in (None, exact_digest)
    rows = bulk_rows(parts, None)
    if rows is None:
        return False
    assert [*member_faults(exact, "x.tar", links), *sample_faults(grouped, "x.tar", None)] == []
    assert rows[0].equals(rows_from_samples(grouped.samples, None))
    assert rows[1] == count_images(grouped.samples, None, [])
    return True


def _by_name(members: list[Member], links: Links) -> dict[str, list[tuple[int, str]]]:
    """Start and extension of the members of every sample, each member by its own name alone."""
    samples: dict[str, list[tuple[int, str]]] = {}
    real = set()
    for member in members:
        split = split_name(member.name)
        if member.kind in (FOLDER, *UNREADABLE) or split is None:
            continue
        key, extension = storable(split[0]), split[1] if is_utf8(member.name) else storable(split[1])
        samples.setdefault(key, []).append((member.header, extension))
        if member.kind != SYMBOLIC_LINK:
            real.add(key)
    return {key: parts for key, parts in samples.items() if key in real}


def hold_many(seed: int, n: int) -> int:
    """Hold ``n`` tars of chance equal; how many of them were regular. A failure names the tar's own seed."""
    n_regular = 0
    with chains_begin_near():
        for number in range(n):
            chance = random.Random(f"{seed}-{number}")
            try:
                n_regular += hold_equal(tar_of_chance(chance), chance.random() < 0.4)
            except Exception as error:
                raise AssertionError(f"tar {seed}-{number}: {error}") from error
    return n_regular
