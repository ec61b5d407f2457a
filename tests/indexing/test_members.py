"""The members of one sample, from its own bytes: the quick way finds what the walk finds, or leaves it to the walk."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tar_makers import header, member, pax

from shards.indexing import members
from shards.indexing.members import bodies_in_sample

TIMES = pax(b"mtime=1700000000.25", b"uname=me")


@pytest.mark.parametrize(
    "data",
    [
        member(b"a.jpg", b"image") + member(b"a.json", b"{}"),
        member(b"d.1/a.left.JPG", b"image"),
        TIMES + member(b"a.jpg", b"image") + TIMES + member(b"a.txt", b""),
        member(b"a.jpg", b"image", b"\0"),
        member(b"a.jpg", b"image")[: 512 + 5],  # the last of a tar may lack its padding
        member(b"a.jpg", b"1") + member(b"a.jpg", b"2"),
    ],
)
def test_plain_members_are_found_quickly(data: bytes) -> None:
    key = "d.1/a" if data.startswith(b"d.1") else "a"
    found = members._plain_bodies(data, key)
    assert found
    assert found == bodies_in_sample(data, key, "0.tar")


@pytest.mark.parametrize(
    "data",
    [
        member(b"b.jpg", b"image"),
        member(b"a.jpg", b"image") + header(b"a.txt", 0, b"1", b"b.txt"),
        pax(b"path=a.jpg") + member(b"x", b"image"),
        pax(b"comment=x", kind=b"g") + member(b"a.jpg", b"image"),
        member(b"long", b"a.jpg", b"L") + member(b"x", b"image"),
        member(b"a.d/b.jpg", b"image"),
        member(b"a.__key__", b"image"),
        member(b"a.jpg", b"image")[: 512 + 4],
        member(b"a.jpg", b"image")[:300],
        b"?" * 512,
        member(b"a.\xff", b"image"),
    ],
)
def test_all_else_is_left_to_the_walk(data: bytes) -> None:
    assert members._plain_bodies(data, "a") is None


names = st.text("ab./_é", min_size=1, max_size=8)
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.CONTTYPE])


@given(
    parts=st.lists(st.tuples(names, kinds, st.binary(max_size=600), st.sampled_from([0, 1.5])), max_size=4),
    key=names,
    form=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    cut=st.integers(0, 600),
)
def test_what_is_found_quickly_is_what_the_walk_finds(
    parts: list[tuple[str, bytes, bytes, float]], key: str, form: int, cut: int
) -> None:
    """Any members, whole or cut short, under names that meet the key's or not."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, kind, body, mtime in parts:
            info = tarfile.TarInfo(f"{key}.{name}")
            info.type, info.size, info.mtime = kind, len(body) if kind == tarfile.REGTYPE else 0, mtime
            tar.addfile(info, io.BytesIO(body))
        end = tar.offset
    data = file.getvalue()[: max(0, end - cut)]
    found = members._plain_bodies(data, key)
    assert not found or found == bodies_in_sample(data, key, "0.tar") or bodies_in_sample(data, key, "0.tar") is None
